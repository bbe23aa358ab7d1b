"""Whether Slurm hides other users' jobs (PrivateData): it does so silently, and what is read looks complete."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable

from accounting.errors import SlurmError
from slurm_plugin.slurm.command import run
from slurm_plugin.slurm.limits import config_words
from slurm_plugin.slurm.rights import admin_level, user_number

# What precedes it comes from slurm.conf, which does not apply to sacct.
_OF_SLURMDBD = "SlurmDBD configuration:"
# The AdminLevel of users who see everybody's jobs.
_SEE_ALL = ("operator", "administrator")


def hidden_jobs() -> str:
    """Return why sacct does not show this process all jobs, and what to do; '' if it does, or that is not known."""
    name = _shown_his_own(lambda: run("sacctmgr", "show", "configuration").partition(_OF_SLURMDBD)[2])
    if not name:
        return ""
    return (
        f"slurmdbd (PrivateData) hides other users' jobs from {name}, so they are not read. Run this as "
        f"SlurmUser, or run `sacctmgr modify user {name} set adminlevel=operator`; then ingest once "
        "with --since, because skipped jobs are not read again by themselves"
    )


def hidden_queue() -> str:
    """Return why slurmctld does not show this process all jobs, and what to do; '' if it does, or that is not known."""
    name = _shown_his_own(lambda: run("scontrol", "show", "config"))
    return (
        f"slurm.conf (PrivateData) hides other users' jobs from {name}; run this as SlurmUser" if name else ""
    )


def _shown_his_own(configuration: Callable[[], str]) -> str:
    """Return the name of this process's user if a configuration hides others' jobs from that user; else ''."""
    user_id = os.geteuid()
    try:
        if user_id == 0 or not keeps_jobs(configuration(), user_id):
            return ""
        name = pwd.getpwuid(user_id).pw_name
        return "" if admin_level(name) in _SEE_ALL else name
    except (SlurmError, KeyError):
        return ""


def keeps_jobs(configuration: str, user_id: int) -> bool:
    """Whether a configuration hides others' jobs from this user, unless the user is an operator."""
    words = config_words(configuration)
    return (
        "jobs" in words.get("PrivateData", "").split(",")
        and user_number(words.get("SlurmUser", "")) != user_id
    )
