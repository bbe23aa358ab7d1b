"""Reads the files of the GPU spool (`*.jsonl` of one folder) from where the last read ended, in bounded parts.

Jobs' users may write there too, so a file's owner decides what counts: every line of those whom the site trusts, and of
a user the lines of the user's own jobs (accounting/gpu_spool/owners.py). Anything but a regular file is skipped and
reported, and so is a file with several names if others may write to the folder; no file delays the others.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from accounting.gpu_spool.samples import NAME_CHARS, SOURCE, merge_uses, of_cluster, parse_line
from accounting.journal.marks import Known, Mark, read_to
from accounting.plain_files import open_plain
from accounting.records import GpuUse, Quarantined
from accounting.units import MIB_IN_BYTES

PATTERN = "*.jsonl"
KEY_PREFIX = "gpu-spool/"
# How much of a file is read at once, in bytes: some 100,000 lines.
PART_BYTES = 16 * 1024**2
DAY_S = 86400
# A file written to more recently than this may still grow.
FINISHED_AFTER_S = 2 * DAY_S
# How long a user's lines wait until sacct knows their jobs: longer than jobs run.
WAITS_S = 31 * DAY_S
# How much of one user's files is read in a run; each file counts as at least one block.
USER_BYTES = 64 * MIB_IN_BYTES
BLOCK_BYTES = 4096
# How many kinds of rejected input one run reports.
MOST_TOLD = 100

# For each use, whether it is of a job of the file's owner (uid); None if the job is not known yet.
Verdicts = Callable[[int, Sequence[GpuUse]], Sequence[bool | None]]


class SpoolPart(msgspec.Struct):
    """New contents of one spool file, at most PART_BYTES of it.

    `file` is its key among all journals, `read_bytes` how far it is read now; '' and 0 in a report about several files.
    """

    file: str
    path: Path
    read_bytes: int
    uses: list[GpuUse]
    quarantined: list[Quarantined]


class Owners(msgspec.Struct, frozen=True):
    """Whose files count: every line of `trusted` uids; of others, what `verdicts` says is of their own jobs."""

    trusted: frozenset[int]
    verdicts: Verdicts


class Line(NamedTuple):
    """One line: its text, and the use that it records or why it is invalid."""

    text: bytes
    use: GpuUse | None
    reason: str


def read_spool_on(
    folder: Path, offsets: Mapping[str, int], now_s: int, cluster: str, owners: Owners
) -> Iterator[SpoolPart]:
    """Yield what is new in the spool, in parts of bounded size; `offsets` by `SpoolPart.file` says what was read.

    A last line without a newline is still being written and waits for the next run, as does everything written
    meanwhile; in a finished file such a line is quarantined. `now_s` decides what lies in the future. `cluster` is
    that of the nodes that write here; it is used for uses that name none. Unreadable files, and users' lines about
    jobs that are not theirs, are reported at the end, each kind once per owner.
    """
    reading = _Reading(now_s, cluster, owners, others_may_write(folder))
    for file in sorted(folder.glob(PATTERN)):
        yield from reading.read_on(file, offsets.get(spool_key(file.name), 0))
    if reading.refused:
        yield SpoolPart("", folder, 0, [], list(reading.refused.values()))


def others_may_write(folder: Path) -> bool:
    """Whether anybody but its owner may put files into a folder."""
    try:
        return bool(folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    except OSError:
        return False


def spool_key(file_name: str) -> str:
    """Return a file's key among all journals."""
    key = KEY_PREFIX + file_name
    if len(key) <= NAME_CHARS:
        return key
    return KEY_PREFIX + hashlib.sha256(file_name.encode(errors="replace")).hexdigest()


def spool_offsets(folder: Path, marks: Mapping[str, Mark], known: Known | None = None) -> dict[str, int]:
    """Return how far the spool's files were read, in bytes, by key (`known`: `read_to` in journal/marks.py)."""
    named = ((spool_key(file.name), file) for file in folder.glob(PATTERN))
    return {name: read_to(name, file, marks, known) for name, file in named}


def finished_files(folder: Path, offsets: Mapping[str, int], now_s: int) -> list[Path]:
    """Return the files that are read to their end and no longer written to: they can be removed."""
    found = []
    for file in sorted(folder.glob(PATTERN)):
        try:
            known = file.lstat()
        except FileNotFoundError:
            continue
        is_read = stat.S_ISREG(known.st_mode) and known.st_size <= offsets.get(spool_key(file.name), 0)
        if is_read and _is_older(known.st_mtime, FINISHED_AFTER_S, now_s):
            found.append(file)
    return found


class _Reading:
    """One pass over the spool: how much of each user's files may still be read, and what was rejected."""

    def __init__(self, now_s: int, cluster: str, owners: Owners, is_open: bool) -> None:
        self._now_s, self._cluster, self._owners, self._is_open = now_s, cluster, owners, is_open
        self._left_bytes: dict[int, int] = {}
        self.refused: dict[tuple[int, str], Quarantined] = {}

    def read_on(self, file: Path, offset: int) -> Iterator[SpoolPart]:
        """Yield what one file holds beyond an offset, up to its size when it was opened."""
        try:
            with open_plain(file) as spool:
                known = os.fstat(spool.fileno())
                if self._is_open and known.st_nlink > 1:
                    self._refuse(known.st_uid, "it has several names (hard links); leave only one", file)
                    return
                # Shorter than before: another file under the same name.
                yield from self._parts(file, spool, known, offset if offset <= known.st_size else 0)
        except FileNotFoundError:
            return  # its collector removed it, or another ingester did
        except OSError as error:
            self._refuse(_owner_of(file), f"it cannot be read: {error.strerror}", file)

    def _parts(self, file: Path, spool: BinaryIO, known: os.stat_result, offset: int) -> Iterator[SpoolPart]:
        is_trusted = known.st_uid in self._owners.trusted
        until = known.st_size if is_trusted else min(known.st_size, offset + self._share(known.st_uid))
        old = _is_older(known.st_mtime, FINISHED_AFTER_S, self._now_s)
        spool.seek(offset)
        while block := spool.read(min(PART_BYTES, until - offset)):
            ends = old and offset + len(block) >= known.st_size
            complete, newline, rest = block.rpartition(b"\n")
            if ends or (len(block) == PART_BYTES and not newline):
                # Cut off for good, or not a line at all: it would be read again and again.
                complete, newline, rest = block, b"", b""
            if not complete and not newline:
                return
            read_bytes = offset + len(block) - len(rest)
            part = SpoolPart(spool_key(file.name), file, read_bytes, [], [])
            lines = [Line(text, *parse_line(text, self._now_s)) for text in complete.split(b"\n")]
            if is_trusted:
                self._take(part, lines)
            else:
                self._left_bytes[known.st_uid] -= min(len(block), self._left_bytes[known.st_uid])
                self._take_own(part, lines, known, offset)
            if part.read_bytes > offset:
                yield part
            if part.read_bytes < read_bytes:
                return
            offset = read_bytes
            spool.seek(offset)

    def _share(self, uid: int) -> int:
        """Return how many bytes of a user's next file may be read; 0 if the user's share is used up."""
        left = self._left_bytes.setdefault(uid, USER_BYTES)
        self._left_bytes[uid] = max(0, left - BLOCK_BYTES)
        return left

    def _take(self, part: SpoolPart, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.use is None and line.text:
                text = line.text[:10_000].decode(errors="replace")
                reason = f"{part.path.name}: {line.reason}"
                part.quarantined.append(Quarantined(line=text, reason=reason, source=SOURCE))
        part.uses = merge_uses(of_cluster(line.use, self._cluster) for line in lines if line.use is not None)

    def _take_own(self, part: SpoolPart, lines: Sequence[Line], known: os.stat_result, offset: int) -> None:
        """Take a user's lines about the user's own jobs, up to the first about a job that is not known yet."""
        uid = known.st_uid
        uses = [of_cluster(line.use, self._cluster) for line in lines if line.use is not None]
        verdicts = self._owners.verdicts(uid, uses)
        if _is_older(known.st_mtime, WAITS_S, self._now_s):
            verdicts = [bool(verdict) for verdict in verdicts]
        decided = list(takewhile(lambda verdict: verdict is not None, verdicts))
        part.uses = merge_uses(use for use, his in zip(uses, decided, strict=False) if his)
        passed = _until_use(lines, len(decided))
        if any(line.text and line.use is None for line in lines[:passed]):
            self._refuse(uid, "lines that are not valid", part.path)
        if not all(decided):
            self._refuse(uid, "lines of jobs that are not known to belong to the file's owner", part.path)
        if passed < len(lines):
            part.read_bytes = offset + sum(len(line.text) + 1 for line in lines[:passed])

    def _refuse(self, uid: int, reason: str, file: Path) -> None:
        """Report rejected input by owner and reason: only the first file is named, however many there are."""
        if len(self.refused) < MOST_TOLD:
            told = f"{file.name!a} of uid {uid}: {reason}"
            kind = Quarantined(line=f"GPU spool, uid {uid}: {reason}", reason=told, source=SOURCE)
            self.refused.setdefault((uid, reason), kind)


def _until_use(lines: Sequence[Line], count: int) -> int:
    """Return how many lines precede the use after the first `count` uses; all lines if there is none."""
    places = [place for place, line in enumerate(lines) if line.use is not None]
    return places[count] if count < len(places) else len(lines)


def _is_older(written_s: float, age_s: int, now_s: int) -> bool:
    return written_s < now_s - age_s


def _owner_of(file: Path) -> int:
    try:
        return file.lstat().st_uid
    except OSError:
        return -1
