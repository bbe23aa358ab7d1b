"""The file that records which version of a registry was made current, when, by whom and why. It changes no link.

    <models>/promotions.jsonl   one promotion a line, the oldest first; appended to, never rewritten

A promotion is on disk before its link is swapped (succession.py says what a crash in between means). Only one process
at a time promotes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from accounting.errors import UnreadModelError
from accounting.owned_files import append_lines, open_owned
from models.versions.succession import Promotion, decode_promotions, encode_promotion

LOG = "promotions.jsonl"


def read_promotions(directory: Path) -> list[Promotion]:
    """Return the promotions of a registry; none if an earlier release made it. UnreadModelError if unreadable."""
    try:
        return decode_promotions((directory / LOG).read_bytes().splitlines())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnreadModelError(
            f"cannot read {directory / LOG}: {error.strerror}; correct its permissions"
        ) from None


@contextlib.contextmanager
def locked_log(directory: Path) -> Iterator[int]:
    """Lock the log of a registry, so that nobody else promotes, and yield its descriptor; OSError on failure."""
    handle = open_owned(directory / LOG, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def append_promotion(handle: int, promotion: Promotion) -> None:
    """Append a promotion to a locked log; it is on disk when this returns. OSError if the disk refuses it."""
    append_lines(handle, encode_promotion(promotion))
    os.fsync(handle)


def user_name() -> str:
    """Return the user who runs this process, and the user who became that one by sudo."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container without a user database
        name = str(os.geteuid())
    asked_by = os.environ.get("SUDO_USER", "")
    return f"{asked_by} as {name}" if asked_by and asked_by != name else name
