"""Whether sacct leaves others' jobs out: slurmdbd keeps them to itself without a word, and what is read looks whole."""

from __future__ import annotations

import os
import pwd

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
    user_id = os.geteuid()
    try:
        if user_id == 0 or not keeps_jobs(run("sacctmgr", "show", "configuration"), user_id):
            return ""
        name = pwd.getpwuid(user_id).pw_name
        level = admin_level(name)
    except (SlurmError, KeyError):
        return ""
    if level in _SEE_ALL:
        return ""
    return (
        f"slurmdbd (PrivateData) shows {name} no jobs of others: theirs are passed over. Run this as SlurmUser, or "
        f"`sacctmgr modify user {name} set adminlevel=operator`, and then once with --since: what was passed over is "
        "not read again by itself"
    )


def keeps_jobs(configuration: str, user_id: int) -> bool:
    """Whether `sacctmgr show configuration` says that slurmdbd keeps jobs from this user, if he is no operator."""
    words = config_words(configuration.partition(_OF_SLURMDBD)[2])
    private = words.get("PrivateData", "").split(",")
    return "jobs" in private and user_number(words.get("SlurmUser", "")) != user_id
