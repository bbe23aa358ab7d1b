"""The spool files that a collector writes: one a day, append only, bounded in size; `rightsizer ingest` reads them.

It never waits for the disk (no fsync) and never for the store.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from accounting.owned_files import open_owned
from accounting.plain_files import open_plain
from accounting.records import GpuUse
from accounting.units import MIB_IN_BYTES, counted

# A full disk may recover or not: no more lines than this are kept in memory for it.
MOST_WAITING_BYTES = MIB_IN_BYTES
# A day's file is split into parts, so that the oldest part can be removed and the newest stays.
PARTS = 8
_PLAIN = re.compile(r"[^A-Za-z0-9._-]")


class SpoolWriter:
    """Writes `NAME-DAY-PART.jsonl` in a folder; all files of this name together stay below `most_bytes`.

    To make room, the oldest file is removed. `say` is called once each time that lines begin to be lost.
    """

    def __init__(self, folder: Path, name: str, most_bytes: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._name = _PLAIN.sub("_", name)
        self._most_bytes = most_bytes
        self._say = say
        self._waiting: list[bytes] = []
        self._lost = 0
        self._failing = False
        self._torn: bool | None = None  # not known before the first write

    def write(self, uses: Sequence[GpuUse], now_s: float) -> None:
        """Append lines in one write; lines that the disk refuses wait for the next call, up to the limit."""
        self._waiting += [msgspec.json.encode(use) + b"\n" for use in uses]
        if not self._waiting:
            return
        try:
            self._append(now_s)
        except OSError as error:
            self._refused(error)
            return
        if self._failing:
            self._say(f"the spool {self._folder} accepts lines again; {counted(self._lost, 'line')} lost")
            self._failing, self._lost = False, 0
        # An ingester may remove a file meanwhile, or a shared folder be away: the next call will do.
        with contextlib.suppress(OSError):
            self._drop_oldest()

    def _append(self, now_s: float) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._file(now_s)
        if self._torn is None:
            self._torn = _ends_torn(file)
        # A line cut off by a full disk, or at the end of an earlier collector, must not swallow the next line too.
        data = (b"\n" if self._torn else b"") + b"".join(self._waiting)
        # Non-blocking, in case somebody puts a FIFO in its place.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = open_owned(file, flags, 0o640)
        try:
            written = os.write(handle, data)
        finally:
            os.close(handle)
        # A line that lacks only its newline is complete too: the next write begins with the newline.
        whole = data[: written + 1].count(b"\n") - int(self._torn) if written else 0
        self._torn = not data[:written].endswith(b"\n") if written else self._torn
        del self._waiting[:whole]
        if self._waiting:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _file(self, now_s: float) -> Path:
        day = time.strftime("%Y%m%d", time.gmtime(now_s))
        parts = [file for file in self._files() if file.name.startswith(f"{self._name}-{day}-")]
        if parts and parts[-1].stat().st_size < self._most_bytes // PARTS:
            return parts[-1]
        number = int(parts[-1].stem.rpartition("-")[2]) + 1 if parts else 0
        names = (self._folder / f"{self._name}-{day}-{number:04}.jsonl" for number in itertools.count(number))
        # Others may have put a file under our name; the latest of our own continues all the same.
        return next(file for file in names if not os.path.lexists(file))

    def _files(self) -> list[Path]:
        """List this writer's files, oldest first; those of `n1` do not include `n1-a`'s, or other owners'."""
        ours = re.compile(re.escape(self._name) + r"-[0-9]{8}-[0-9]{4}\.jsonl")
        owners = {os.geteuid()}
        if os.geteuid() == 0:
            owners.add(self._folder.stat().st_uid)
        return sorted(
            file for file in self._folder.iterdir() if ours.fullmatch(file.name) and _is_of(file, owners)
        )

    def _refused(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            self._say(f"cannot write the spool {self._folder}: {error.strerror}; trying again")
        waiting_bytes = sum(len(line) for line in self._waiting)
        while waiting_bytes > MOST_WAITING_BYTES:
            waiting_bytes -= len(self._waiting.pop(0))
            self._lost += 1

    def _drop_oldest(self) -> None:
        files = self._files()
        sizes = {file: file.stat().st_size for file in files}
        while len(files) > 1 and sum(sizes[file] for file in files) > self._most_bytes:
            oldest = files.pop(0)
            lines = _count_lines(oldest)
            oldest.unlink()
            self._say(
                f"the spool {self._folder} has more than {self._most_bytes // MIB_IN_BYTES} MiB of this "
                f"node: removed {oldest.name} with {counted(lines, 'line')}; run `rightsizer ingest --prune`, "
                "which removes files that were ingested"
            )


def _is_of(file: Path, owners: set[int]) -> bool:
    try:
        known = file.lstat()
    except FileNotFoundError:
        return False  # an ingester removed it
    return stat.S_ISREG(known.st_mode) and known.st_uid in owners


def _count_lines(file: Path) -> int:
    with open_plain(file) as opened:
        return sum(block.count(b"\n") for block in iter(lambda: opened.read(MIB_IN_BYTES), b""))


def _ends_torn(file: Path) -> bool:
    """Whether a file ends in the middle of a line."""
    try:
        with open_plain(file) as spool:
            spool.seek(max(0, os.fstat(spool.fileno()).st_size - 1))
            return spool.read() not in (b"", b"\n")
    except FileNotFoundError:
        return False
