"""Users' names by uid, and the uid that the kernel shows for users it cannot map."""

from __future__ import annotations

import pwd
from functools import lru_cache
from pathlib import Path

_FILE = Path("/proc/sys/kernel/overflowuid")
_USUAL = 65534


def nobody() -> int:
    """Return the uid shown for owners and peers unknown here: in a user namespace, or behind a file server."""
    try:
        return int(_FILE.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _USUAL


@lru_cache(maxsize=4096)
def user_name(uid: int) -> str:
    """Return a user's name, or the uid as text if no name is known."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
