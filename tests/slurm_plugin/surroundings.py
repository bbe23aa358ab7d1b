"""What surrounds a service, as the doctor finds it: Slurm's and systemd's commands, and the hook next to slurm.conf."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from slurm_plugin.config.hook import hook_settings, lua_folder
from tests.builders import executable
from tests.conftest import Site

SETTINGS = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "JobAcctGatherType": "jobacct_gather/cgroup",
    "JobSubmitPlugins": "lua",
    "PriorityType": "priority/multifactor",
}
UNITS = {
    "rightsizer-ingest.timer": "active",
    "rightsizer-ingest-watch.service": "inactive",
    "rightsizer-train.timer": "active",
    "rightsizer-ingest.service": "inactive",
    "rightsizer-train.service": "inactive",
}


def surround(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a site a Slurm and a systemd that answer as they should."""
    tools = site.folder / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    beside = conf_folder(site)
    beside.mkdir()
    shutil.copy(lua_folder() / "job_submit.lua", beside)
    shutil.copytree(lua_folder() / "rightsizer", beside / "rightsizer")
    (beside / "rightsizer_site.lua").write_text(hook_settings(site.config), encoding="utf-8")
    say_settings(site)
    say_counts(site, submitted=0, since_s=time.time() - 3600)
    say_units(site)


def conf_folder(site: Site) -> Path:
    return site.folder / "slurm"


def told_time(time_s: int) -> str:
    """Return shell code that prints a time (unix seconds) as Slurm's commands do: in the format SLURM_TIME_FORMAT."""
    return f'$(date -d @{time_s} "+${{SLURM_TIME_FORMAT:-%Y-%m-%dT%H:%M:%S}}")'


def say_settings(site: Site, **changes: str) -> None:
    """Make `scontrol show config` give these settings; everything else of scontrol fails, as without a slurmctld."""
    booted = told_time(int(time.time()) + 1)
    log = site.folder / "slurmctld.log"
    own = {"BOOT_TIME": booted, "SLURM_CONF": f"{conf_folder(site)}/slurm.conf", "SlurmctldLogFile": str(log)}
    lines = "\n".join(f"{name:<24}= {value}" for name, value in {**own, **SETTINGS, **changes}.items())
    _say(site, "scontrol", f'[ "$*" = "show config" ] || exit 1\ncat <<END\n{lines}\nEND\n')


def say_counts(site: Site, *, submitted: int, since_s: float) -> None:
    since = f"Data since      {time.ctime(since_s)} ({int(since_s)})"
    _say(site, "sdiag", f"cat <<END\n{since}\nJobs submitted: {submitted}\nJobs started:   0\nEND\n")


def say_units(site: Site, ended_s: float | None = None, **changes: str) -> None:
    """Make systemd report these states; all units ended at `ended_s` (unix s). In names _ stands for - and dots."""
    ended_us = 0 if ended_s is None else int(1e6 * (time.monotonic() - time.time() + ended_s))
    states = {
        name: changes.get(name.replace("-", "_").replace(".", "_"), state) for name, state in UNITS.items()
    }
    blocks = "\n\n".join(
        f"Id={name}\nActiveState={state}\nInactiveEnterTimestampMonotonic={ended_us}"
        for name, state in states.items()
    )
    _say(site, "systemctl", f"cat <<END\n{blocks}\nEND\n")


def _say(site: Site, command: str, script: str) -> None:
    executable(site.folder / "tools" / command, f"#!/bin/sh\n{script}")
