"""Whether Slurm leaves others' jobs out (PrivateData): it does so without a word, and what is read looks whole."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable

from accounting.errors import SlurmError
from slurm_plugin.slurm.command import run
from slurm_plugin.slurm.limits import config_words
from slurm_plugin.slurm.rights import admin_level, user_number

# Before it stands what slurm.conf says, which does not count for sacct.
_OF_SLURMDBD = "SlurmDBD configuration:"
# AdminLevel of who sees everybody's.
_SEE_ALL = ("operator", "administrator")


def hidden_jobs() -> str:
    """Return why sacct shows this process not all jobs, and what to do; '' where it does, or nobody tells."""
    name = _shown_his_own(lambda: run("sacctmgr", "show", "configuration").partition(_OF_SLURMDBD)[2])
    if not name:
        return ""
    return (
        f"slurmdbd (PrivateData) shows {name} no jobs of others: theirs are passed over. Run this as SlurmUser, or "
        f"`sacctmgr modify user {name} set adminlevel=operator`, and then once with --since: what was passed over is "
        "not read again by itself"
    )


def hidden_queue() -> str:
    """Return why slurmctld shows this process not all jobs, and what to do; '' where it does, or nobody tells."""
    name = _shown_his_own(lambda: run("scontrol", "show", "config"))
    return f"slurm.conf (PrivateData) shows {name} no jobs of others: run this as SlurmUser" if name else ""


def _shown_his_own(configuration: Callable[[], str]) -> str:
    """Return the name of this process's user where a configuration keeps others' jobs from him; else ''."""
    user_id = os.geteuid()
    try:
        if user_id == 0 or not keeps_jobs(configuration(), user_id):
            return ""
        name = pwd.getpwuid(user_id).pw_name
        return "" if admin_level(name) in _SEE_ALL else name
    except (SlurmError, KeyError):
        return ""


def keeps_jobs(configuration: str, user_id: int) -> bool:
    """Whether a configuration says that jobs are kept from this user, if he is no operator."""
    words = config_words(configuration)
    return (
        "jobs" in words.get("PrivateData", "").split(",")
        and user_number(words.get("SlurmUser", "")) != user_id
    )
