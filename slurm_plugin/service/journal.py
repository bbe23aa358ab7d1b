"""Where the service writes its decisions: one file a day, append only; `rightsizer ingest` reads them on."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from accounting.decisions import Decision, encode_decision
from accounting.errors import ServiceError


class Journal:
    """An open journal folder. A decision is one write, so that a reader or a crash never sees half of one.

    Each writer has a file of its own, `NAME-DAY.jsonl`; ingest reads those whose name begins with `decisions`.
    """

    def __init__(self, folder: Path, name: str = "decisions") -> None:
        self._folder = folder
        self._name = name
        self._day = ""
        self._handle = -1
        self._torn = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._open_day(time.time())
        except OSError as error:
            raise ServiceError(
                f"cannot write decisions to {folder}: {error.strerror}; set service.journal to a folder you may write"
            ) from None

    def _open_day(self, now_s: float) -> None:
        day = time.strftime("%Y%m%d", time.gmtime(now_s))
        if day == self._day:
            return
        handle = os.open(
            self._folder / f"{self._name}-{day}.jsonl",
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
            0o640,
        )
        self.close()
        self._day, self._handle = day, handle

    def append(self, decision: Decision) -> None:
        """Append a decision to the file of its day; OSError where the disk refuses it."""
        self._open_day(decision.time_s)
        # What a full disk cut off must not swallow the next decision too.
        line = (b"\n" if self._torn else b"") + encode_decision(decision)
        written = os.write(self._handle, line)
        self._torn = written < len(line)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
