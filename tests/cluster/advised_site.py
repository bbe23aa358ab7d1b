"""A saturated cluster whose queue an advisor would reorder, and what can be seen of it from outside."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from slurm_plugin.config.file import load_config, render_config
from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.cluster import Options, Sandbox
from tests.cluster.conftest import Shell
from tests.cluster.matrix.prefixes import chosen_prefix
from tests.waiting import wait_until

# All jobs of the queue except one that is held; an array is one record.
SHOWN = 13


class Site(NamedTuple):
    """A saturated cluster, and configurations of an advisor by name."""

    sandbox: Sandbox
    shell: Shell
    files: Mapping[str, Path]

    def factors(self) -> dict[str, int]:
        """Return what sprio shows, by job."""
        lines = self.shell.run("sprio", "--noheader", "--format=%i %S").splitlines()
        return {job: int(factor) for job, factor in map(str.split, lines)}

    def advise(self, name: str, *options: str, code: int = 0) -> tuple[str, str]:
        """Run an advisor with that configuration, and return its output."""
        return self.shell.run_both(
            "rightsizer", "advise", "--config", str(self.files[name]), *options, code=code
        )

    def start(self, name: str, log: Path) -> "subprocess.Popen[bytes]":
        """Start an advisor with that configuration, which runs until it is stopped."""
        command = ["rightsizer", "advise", "--config", str(self.files[name]), "--watch", "--apply"]
        with log.open("ab") as errors:
            return subprocess.Popen(command, env={**os.environ, **self.sandbox.environment()}, stderr=errors)

    def jobs(self) -> set[str]:
        """Return all jobs with their states."""
        return set(self.shell.run("squeue", "--noheader", "--format=%i %T").splitlines())


# Longer than any test takes.
FILLS = "sleep 1200"


def start_site(
    folder: Path, settings: Mapping[str, Mapping[str, int]], scripts: tuple[str, str], waiting_s: int = 20
) -> Site:
    """Start a site whose two nodes are full while these scripts run, with a configuration for each of `settings`.

    The jobs that wait run for `waiting_s`.
    """
    options = Options(
        directory=folder / "site", nodes=2, slurm_prefix=chosen_prefix(), hook=False, serve=False
    )
    sandbox = cluster.start(options)
    own = load_config(str(sandbox.layout.rightsizer_toml))
    files = {name: folder / f"{name}.toml" for name in settings}
    for name, values in settings.items():
        advisor = msgspec.structs.replace(own.advisor, control_share=0.0, period_s=1, **values)
        files[name].write_text(render_config(msgspec.structs.replace(own, advisor=advisor)), encoding="utf-8")
    site = Site(sandbox, Shell(sandbox), files)
    jobs = fill(site.shell, scripts, waiting_s)
    wait_until(lambda: len(site.factors()) == SHOWN, "sprio does not show what waits")
    wait_until(
        lambda: all(is_numbered(site.shell, job) for job in jobs), "slurmdbd gives the jobs no numbers"
    )
    return site


def is_numbered(shell: Shell, job: int) -> bool:
    """Whether slurmctld has the number that slurmdbd gives a job.

    Before 24.11, a job that ends while slurmctld asks for that number never changes again.
    """
    if not shell.accounted(job, "JobID"):
        return False
    try:
        shell.run("scontrol", "update", f"JobId={job}", "Comment=numbered")
    except AssertionError:
        return False
    return True


def until(file: Path) -> str:
    """Return the script of a job that runs until this file exists: not for less time, however slow the machine is."""
    return f"until test -e {file}; do sleep 0.2; done"


def fill(shell: Shell, scripts: Sequence[str], waiting_s: int = 20) -> set[int]:
    """Fill a whole node with each of these scripts, and queue more jobs than run; most of those run for `waiting_s`.

    Return the ids of all of them.
    """

    def submit(*options: str, script: str) -> int:
        return shell.submit("--comment=rightsize=off", *options, script=script)

    jobs = {submit("--time=20", "--cpus-per-task=16", "--mem=1000", script=script) for script in scripts}
    for job in jobs:
        shell.wait_state(job, "RUNNING")
    jobs |= {
        submit("--time=300", "--cpus-per-task=16", "--mem=1000", script=f"sleep {waiting_s}")
        for _ in range(4)
    }
    jobs |= {
        submit("--time=5", "--cpus-per-task=2", "--mem=500", script=f"sleep {waiting_s}") for _ in range(8)
    }
    jobs.add(submit("--time=5", "--array=1-20", "--mem=100", script="sleep 5"))
    jobs.add(submit("--time=5", "--hold", "--mem=100", script="sleep 5"))
    return jobs
