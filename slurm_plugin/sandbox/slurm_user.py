"""A SlurmUser other than the user who starts the sandbox: what that user must be able to enter, write and own."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

from accounting.errors import SandboxError
from slurm_plugin.sandbox.files import closed_parent
from slurm_plugin.sandbox.layout import Layout


def check(user: str, layout: Layout, prefix: Path | None) -> None:
    """Raise SandboxError if slurmctld cannot become `user`, or that user cannot reach the sandbox or Slurm."""
    if os.geteuid() != 0:
        raise SandboxError(f"only root can start a slurmctld that runs as {user}; leave out slurm_user")
    try:
        pwd.getpwnam(user)
    except KeyError:
        raise SandboxError(f"there is no user {user}; choose another slurm_user") from None
    for folder in (layout.root, *([prefix.absolute()] if prefix else [])):
        closed = closed_parent(folder)
        if closed is not None:
            raise SandboxError(f"{user} may not enter {closed}; choose a folder outside it")


def hand_over(layout: Layout, user: str) -> None:
    """Make `user` the owner of what slurmctld and slurmdbd write, and of slurmdbd.conf, as slurmdbd requires."""
    for path in (layout.controller_state, layout.log, layout.etc / "slurmdbd.conf"):
        shutil.chown(path, user)
