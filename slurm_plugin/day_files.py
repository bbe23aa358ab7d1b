"""Journals of one file a day, append only: what a crash cut off spoils no later line, and what is old goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

from accounting.owned_files import append_lines, make_folder, open_owned

KEPT_DAYS = 60
DAY_S = 86_400


def day_name(pattern: str, moment_s: float) -> str:
    """Return the name of a day's file: `cycles-*.jsonl` → `cycles-20261122.jsonl`."""
    return pattern.replace("*", time.strftime("%Y%m%d", time.gmtime(moment_s)))


def append_line(
    folder: Path, pattern: str, moment_s: float, line: bytes, *, mode: int = 0o666, synced: bool = False
) -> None:
    """Append a line, with its end, to the file of a day; OSError where the disk refuses it.

    It begins on a line of its own where a full disk or a crash cut the last one off. A `synced` one is on disk when
    this returns. A new file (of this `mode`, as far as the umask allows) is when those older than KEPT_DAYS go.
    """
    make_folder(folder)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    handle = open_owned(folder / day_name(pattern, moment_s), flags, mode)
    try:
        is_new = os.fstat(handle).st_size == 0
        append_lines(handle, line)
        if synced:
            os.fsync(handle)
    finally:
        os.close(handle)
    if is_new:
        oldest = day_name(pattern, moment_s - KEPT_DAYS * DAY_S)
        for old in [old for old in folder.glob(pattern) if old.name < oldest]:
            old.unlink()
