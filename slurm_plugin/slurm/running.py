"""Asks squeue how many jobs of a family run just now."""

from __future__ import annotations

from models.past.job_names import normal_name
from slurm_plugin.slurm.command import run


def count_running(user: str, name: str) -> int:
    """Return how many jobs of a user and of a family's name run; raises SlurmError if squeue does not answer."""
    told = run("squeue", "--noheader", "--all", "--states=RUNNING", f"--user={user}", "--format=%j")
    names = told.splitlines()
    return sum(normal_name(one.strip()) == name for one in names)
