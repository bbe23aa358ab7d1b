"""The service's journal of decisions: one file a day, append only; `rightsizer ingest` reads them incrementally.

Each line is linked to the one before it (accounting/journal/links.py), across days and restarts.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from pathlib import Path

from accounting.decisions.decision import Decision, encode_decision
from accounting.errors import ServiceError
from accounting.journal.links import Linker, chain_name, newest_head
from accounting.owned_files import fix_for, make_folder, open_owned
from slurm_plugin.day_files import DAY_S, day_name
from slurm_plugin.log_lines import SaidOnce

log = logging.getLogger(__name__)

# How much of a file's end is searched for its newest link: many times the longest line.
TAIL_BYTES = 256 * 1024
# How often it is checked that the file still lies where ingest looks for it.
LOOK_S = 1.0


class Journal:
    """An open journal folder, with a file for each writer: `NAME-DAY.jsonl`.

    A decision is one write, so that a reader never sees half of one, and a crash of the service never leaves half.
    Ingest reads the files whose name begins with `decisions`.
    """

    def __init__(self, folder: Path, name: str = "decisions", key: bytes = b"") -> None:
        """Continue the chain of that name; `key` is the site's key for its links, b"" if it has none."""
        self._folder = folder
        self._name = name
        self._linker = Linker(key)
        self._head = self._linker.begin(name)
        self._day = -1.0  # since 1970
        self._file = self._newest = ""  # the names of the open file, and of the one with the newest line
        self._handle = -1
        self._next_look_s = 0.0  # of the monotonic clock
        self._end_bytes = 0
        self._torn = False
        self._refusals = SaidOnce()
        try:
            make_folder(folder)
            for file in reversed(self._files()):
                with file.open("rb") as opened:
                    self._take_up(opened.fileno())
                if self._head.number:
                    self._newest = file.name
                    break
            self._open_day(time.time())
        except OSError as error:
            fix = fix_for(
                error,
                "run this as the service's user, give that user the folder (chown), or set service.journal",
            )
            raise ServiceError(f"cannot write decisions to {folder}: {error.strerror}; {fix}") from None

    def _files(self) -> list[Path]:
        found = self._folder.glob(f"{self._name}-*.jsonl")
        return sorted(file for file in found if chain_name(file.name) == self._name)

    def _open_day(self, now_s: float) -> None:
        day = now_s // DAY_S
        if day == self._day:
            return
        name = self._name_at(now_s)
        make_folder(self._folder)
        handle = open_owned(self._folder / name, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640)
        self.close()
        self._day, self._file, self._handle = day, name, handle
        self._take_up(handle)

    def _name_at(self, now_s: float) -> str:
        """Return the file to write to: that day's, or the next day's if the clock was set back over midnight."""
        pattern = f"{self._name}-*.jsonl"
        name, tomorrow = day_name(pattern, now_s), day_name(pattern, now_s + DAY_S)
        # Files are read in the order of their days: in that day's file the line would precede the one that it
        # follows. A clock that was further ahead must not keep us in a file that no retention reaches: that shows in
        # an audit.
        return self._newest if name < self._newest <= tomorrow else name

    def _look(self) -> None:
        """Open the day's file anew if somebody has moved or removed it: nobody would read what is written there."""
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + LOOK_S
        try:
            is_there = os.path.samestat((self._folder / self._file).stat(), os.fstat(self._handle))
        except OSError:
            is_there = False
        if not is_there:
            self._day = -1.0

    def _take_up(self, handle: int) -> None:
        """Continue from the newest line of a file, and check whether a crash or a full disk cut off its end."""
        self._end_bytes = os.lseek(handle, 0, os.SEEK_END)
        begin = max(0, self._end_bytes - TAIL_BYTES)
        tail = os.pread(handle, self._end_bytes - begin, begin)
        self._torn = bool(tail) and not tail.endswith(b"\n")
        self._head = max(self._head, newest_head(tail) or self._head, key=lambda head: head.number)

    def append(self, decision: Decision) -> None:
        """Append a decision to the file of its day; raises OSError if the disk refuses it."""
        self._look()
        self._open_day(decision.time_s)
        # Something else wrote to the file, or cut it off. This takes a third of the time of fstat.
        if os.lseek(self._handle, 0, os.SEEK_END) != self._end_bytes:
            self._take_up(self._handle)
        line, head = self._linker.linked(encode_decision(decision)[:-1], self._head)
        # What a full disk cut off must not swallow the next decision too.
        text = b"\n" + line if self._torn else line
        written = os.write(self._handle, text)
        self._end_bytes += written
        self._newest = self._file
        missing = len(text) - written
        self._torn = missing > 0
        if missing > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        # If only its newline is missing, the line is there.
        self._head = head

    def keep(self, decision: Decision) -> bool:
        """Append a decision; whether it was written. A refusing disk is logged once: hundreds may come a second."""
        try:
            self.append(decision)
        except OSError as error:
            if self._refusals.is_new(str(error)):
                log.error("decision %s is not journalled: %s", decision.id, error)  # noqa: TRY400
            return False
        self._refusals.over()
        return True

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
