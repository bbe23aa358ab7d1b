"""Where the advisor writes its cycles: one file a day, append only; `rightsizer ingest` reads them on.

It decides how long they are kept: what is old goes, read or not, so that no disk fills up.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from accounting.advice import CYCLES, Cycle, encode_cycle
from accounting.errors import ServiceError

KEPT_DAYS = 60
DAY_S = 86_400


def append_cycle(folder: Path, cycle: Cycle) -> None:
    """Append a cycle to the file of its day; ServiceError where the disk refuses it.

    Lines are ended before one begins where a full disk or a crash cut the last one off.
    """
    name = CYCLES.replace("*", time.strftime("%Y%m%d", time.gmtime(cycle.time_s)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_new = not (folder / name).exists()
        with (folder / name).open("a+b") as file:
            torn = file.tell() > 0 and _last_byte(file.fileno()) != b"\n"
            file.write((b"\n" if torn else b"") + encode_cycle(cycle))
        if is_new:
            _remove_old(folder, cycle.time_s - KEPT_DAYS * DAY_S)
    except OSError as error:
        raise ServiceError(
            f"cannot write cycles to {folder}: {error.strerror}; "
            "set advisor.directory to a folder that the advisor may write"
        ) from None


def _last_byte(handle: int) -> bytes:
    return os.pread(handle, 1, os.fstat(handle).st_size - 1)


def _remove_old(folder: Path, before_s: float) -> None:
    oldest = CYCLES.replace("*", time.strftime("%Y%m%d", time.gmtime(before_s)))
    for file in folder.glob(CYCLES):
        if file.name < oldest:
            file.unlink()
