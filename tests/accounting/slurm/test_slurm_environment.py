"""The environment of Slurm's commands: of every command that we run, however it is run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from accounting.slurm.sacct import slurm_release
from slurm_plugin.slurm.command import run
from slurm_plugin.slurm.scontrol_lines import run_update
from tests.builders import executable

CALLERS = {
    "SLURM_CLUSTERS": "elsewhere",
    "SQUEUE_STATES": "RUNNING",
    "SACCT_FORMAT": "JobID",
    "SCONTROL_FEDERATION": "1",
    "SPRIO_SIBLING": "1",
    "SINFO_SORT": "N",
    "SCANCEL_STATE": "PENDING",
}


@pytest.mark.parametrize(
    "call",
    [
        lambda _scontrol: run("scontrol", "show", "job", variables={"SLURM_BITSTR_LEN": "0"}),
        lambda _scontrol: run_update("update", "JobId=1", patience_s=10.0),
        slurm_release,
    ],
    ids=["run", "update", "sacct"],
)
def test_commands_report_on_our_own_cluster_whatever_the_caller_has_set(
    call: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = executable(tmp_path / "scontrol", f"#!/bin/sh\nenv > {tmp_path}/seen\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_CONF", "/etc/here")
    for name, value in CALLERS.items():
        monkeypatch.setenv(name, value)
    call(str(scontrol))
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines() if "=" in line)
    assert not CALLERS.keys() & seen.keys()
    assert seen["SLURM_CONF"] == "/etc/here"
    assert {
        name: seen.get(name) for name in ("SQUEUE_LOCAL", "SCONTROL_LOCAL", "SPRIO_LOCAL", "SACCT_LOCAL")
    } == {"SQUEUE_LOCAL": "1", "SCONTROL_LOCAL": "1", "SPRIO_LOCAL": "1", "SACCT_LOCAL": "1"}
