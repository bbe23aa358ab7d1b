"""Whether Slurm lets this process change jobs in their users' names: only root, SlurmUser and administrators may.

An operator may requeue a job, hold it and set its SiteFactor, but may neither write its AdminComment nor change it as
its user (22.05 to 26.05).
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Collection

from accounting.errors import SlurmError
from slurm_plugin.slurm.command import run
from slurm_plugin.slurm.limits import config_words, has_no_qos

_USER_ID = re.compile(r"\((\d+)\)")


def why_not_in_their_names() -> str:
    """Return why this process may not change others' jobs, and what to do; '' if it may, or that is not known.

    Raises SlurmError if slurmctld does not answer.
    """
    return _why_not(("administrator",), "root, SlurmUser and administrators change the jobs of other users")


def why_no_site_factors() -> str:
    """Return why this process may not set a job's SiteFactor, and what to do; '' if it may, or that is not known.

    Raises SlurmError if slurmctld does not answer.
    """
    return _why_not(
        ("administrator", "operator"), "root, SlurmUser, administrators and operators set a SiteFactor"
    )


def _why_not(levels: Collection[str], who_may: str) -> str:
    user_id = os.geteuid()
    config = "" if user_id == 0 else run("scontrol", "show", "config")
    if user_id in (0, user_number(config_words(config).get("SlurmUser", ""))):
        return ""
    try:
        name = pwd.getpwuid(user_id).pw_name
        # Without slurmdbd nobody has a level.
        level = "none" if has_no_qos(config) else admin_level(name)
    except (SlurmError, KeyError):
        return ""
    if level in levels:
        return ""
    return f"Slurm lets only {who_may}, and {name} is none of these; run this as SlurmUser"


def admin_level(name: str) -> str:
    """Return a user's AdminLevel (none, operator, administrator), '' for an unknown user.

    Raises SlurmError if sacctmgr does not answer.
    """
    argv = ("--noheader", "--parsable2", "show", "user", f"name={name}", "format=AdminLevel")
    return run("sacctmgr", *argv).strip().lower()


def user_number(text: str) -> int | None:
    """Return the number in `slurm(64030)`, as Slurm's settings name a user; None if there is none."""
    found = _USER_ID.search(text)
    return int(found[1]) if found else None
