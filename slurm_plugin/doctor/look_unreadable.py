"""Look which files a user cannot read: the user of this process or, if that is root, any other."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from pathlib import Path

PATIENCE_S = 10.0
SHELL = "/bin/sh"
# What the shell does as that user: name those of its arguments that the user cannot read.
NAME_UNREADABLE = 'for file; do [ -r "$file" ] || printf "%s\\0" "$file"; done'


def unreadable(files: Sequence[Path], reader: str = "") -> frozenset[Path]:
    """Return those files that exist and that the user `reader` ('': of this process) may not read.

    Only root can answer for another user. If this process may not become that user, it answers for itself.
    """
    if os.geteuid() == 0 and reader:
        try:
            return _unreadable_by(pwd.getpwnam(reader), files)
        except (KeyError, OSError, subprocess.SubprocessError):
            pass
    return frozenset(file for file in files if _is_closed(file))


def _unreadable_by(user: pwd.struct_passwd, files: Sequence[Path]) -> frozenset[Path]:
    there = [str(file) for file in files if file.exists()]
    told = subprocess.run(
        [SHELL, "-c", NAME_UNREADABLE, SHELL, *there],
        stdout=subprocess.PIPE,
        check=True,
        cwd="/",
        env={},  # that user could read the environment of this process
        timeout=PATIENCE_S,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=os.getgrouplist(user.pw_name, user.pw_gid),
    ).stdout
    return frozenset(Path(os.fsdecode(name)) for name in told.split(b"\0") if name)


def _is_closed(file: Path) -> bool:
    try:
        file.open("rb").close()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False
