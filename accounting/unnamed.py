"""What users are called by their uids, and whom the kernel names in place of those whom it cannot."""

from __future__ import annotations

import pwd
from functools import lru_cache
from pathlib import Path

_FILE = Path("/proc/sys/kernel/overflowuid")
_USUAL = 65534


def nobody() -> int:
    """Return the uid of owners and peers that are unknown here: in a user namespace, or behind a file server."""
    try:
        return int(_FILE.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _USUAL


@lru_cache(maxsize=4096)
def user_name(uid: int) -> str:
    """Return a user's name; his number where nobody knows it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
