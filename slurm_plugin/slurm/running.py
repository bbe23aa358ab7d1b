"""Asks squeue how many jobs of a family run just now."""

from __future__ import annotations

from models.past.job_names import normal_name
from slurm_plugin.slurm.command import run


def count_running(user: str, name: str) -> int:
    """Return how many jobs of a user, by the name that a family goes by, run; SlurmError where squeue does not say."""
    told = run("squeue", "--noheader", "--all", "--states=RUNNING", f"--user={user}", "--format=%j")
    names = told.splitlines()
    return sum(normal_name(one.strip()) == name for one in names)
