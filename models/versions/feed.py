"""The feed of jobs that have ended since a model was trained: files of lines next to the models.

    <models>/recent/jobs-20260131.jsonl   the jobs that were found new on that day (UTC), one a line (past/recent.py)

Ingestion appends; a predictor reads on. A job may be there twice: History.join counts it once, and a line that
`corrects` replaces what an earlier line said. What cannot be written or read costs nothing but freshness: the next
training reads the store.
"""

from __future__ import annotations

import calendar
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from accounting.owned_files import append_lines, make_folder, open_owned
from models.demand.prediction import Predictor
from models.past.recent import Finished, decode_finished, encode_finished

FOLDER = "recent"
DAMAGED = "holds lines that are no finished jobs; they are passed over"
# This much is read at a time, some hundred jobs: answers wait a few milliseconds for it at most. A line that fills it
# is none of ours.
PART_BYTES = 256 * 1024
DAY_S = 86400
# Training reads the store less than a day before its version is named, so a version covers all days but its own and
# the one before.
COVERED_AFTER_DAYS = 2
# Without any training, the feed stays bounded too; no family needs more days.
MOST_DAYS = 30

_DAY = re.compile(r"jobs-(\d{8})\.jsonl\Z")
_VERSION_DAY = re.compile(r"(\d{8})T")


class Part(msgspec.Struct):
    """What was new in the feed: its jobs, what is wrong with which files, and whether there is more to read."""

    jobs: list[Finished] = []
    problems: dict[str, str] = {}
    more: bool = False


class FeedReader:
    """Reads on in the feed of a registry, each line once."""

    def __init__(self, models: Path, offsets: Mapping[str, int] | None = None) -> None:
        """Continue where another reader was (its `offsets`), else begin at the start."""
        self._folder = models / FOLDER
        self._offsets: dict[str, int] = dict(offsets or {})

    @property
    def offsets(self) -> dict[str, int]:
        """How far each file was read, in bytes."""
        return dict(self._offsets)

    def read_on(self, most_bytes: int = PART_BYTES) -> Part:
        """Return what is new, up to `most_bytes`, the oldest first; a file that cannot be read delays no other.

        A last line without its newline is still being written, and waits for the next call.
        """
        part = Part()
        try:
            names = _names(self._folder)
        except OSError as error:
            part.problems[FOLDER] = _unread(error)
            return part
        self._offsets = {name: self._offsets.get(name, 0) for name in names}
        for name in names:
            try:
                part.more = self._read_file(name, part, most_bytes)
            except FileNotFoundError:  # removed, since its day is covered by now
                continue
            except OSError as error:
                part.problems[name] = _unread(error)
            if part.more:
                break
        return part

    def _read_file(self, name: str, part: Part, most_bytes: int) -> bool:
        """Read on in one file; return True if something was read, so that the rest waits for the next part."""
        file = self._folder / name
        size = file.stat().st_size
        # A file that shrank is another one: begin at its start. What is read twice counts once.
        offset = self._offsets[name] if self._offsets[name] <= size else 0
        self._offsets[name] = offset
        if size == offset:
            return False
        with file.open("rb") as lines:
            lines.seek(offset)
            content = lines.read(most_bytes)
        complete, newline, rest = content.rpartition(b"\n")
        # What fills a whole part without a line end is no line of ours: skip it.
        passed = rest if not newline and len(content) == most_bytes else b""
        self._offsets[name] = offset + len(complete) + len(newline) + len(passed)
        for line in filter(None, [*complete.split(b"\n"), passed]):
            one = decode_finished(line)
            if one is None:
                part.problems[name] = DAMAGED
            else:
                part.jobs.append(one)
        return bool(newline or passed)


def read_parts(reader: FeedReader) -> Iterator[Part]:
    """Yield all that is new, part by part."""
    more = True
    while more:
        part = reader.read_on()
        yield part
        more = part.more


def join_feed(predictor: Predictor, models: Path, until_s: float | None = None) -> dict[str, str]:
    """Let a predictor learn what the feed holds, or what it held at a moment (unix seconds).

    Return what is wrong with which file; the rest of the feed counts.
    """
    problems: dict[str, str] = {}
    for part in read_parts(FeedReader(models)):
        problems |= part.problems
        for one in part.jobs:
            if until_s is None or one.told_s <= until_s:
                predictor.join(one.request, one.job, corrects=one.corrects)
    return problems


def _unread(error: OSError) -> str:
    return (
        f"cannot be read: {error.strerror}; correct its permissions. Until then its jobs count only from "
        "the next training on"
    )


def _names(folder: Path) -> list[str]:
    """Return the files of a feed, the oldest first; none if there is no feed."""
    try:
        return sorted(file.name for file in folder.iterdir() if _DAY.match(file.name))
    except FileNotFoundError:
        return []


def append_jobs(models: Path, jobs: Iterable[Finished], now_s: float) -> None:
    """Append jobs to the feed of a registry, in the file of the day; OSError if that fails."""
    content = b"".join(map(encode_finished, jobs))
    if not content:
        return
    folder = models / FOLDER
    make_folder(folder)
    file = folder / f"jobs-{_day(now_s)}.jsonl"
    # Readable as the models are, which hold the same: the umask decides by whom.
    handle = open_owned(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        append_lines(handle, content)
    finally:
        os.close(handle)


def remove_covered(models: Path, version: str | None, now_s: float) -> None:
    """Remove the days that a version of the registry was trained on, and those beyond MOST_DAYS.

    OSError if a file cannot be removed.
    """
    for name in covered(_names(models / FOLDER), version, now_s):
        (models / FOLDER / name).unlink(missing_ok=True)


def covered(names: Sequence[str], version: str | None, now_s: float) -> list[str]:
    """Return the names of files whose days the current version was trained on, or that are too old to matter.

    So is what was written while a clock was ahead: those days are still to come, as is that of a version made then,
    which covers none of the others.
    """
    first = _day(now_s - MOST_DAYS * DAY_S)
    made = _VERSION_DAY.match(version or "")
    if made:
        try:
            made_s = float(calendar.timegm(time.strptime(made[1], "%Y%m%d")))
        except ValueError:  # not named by a training of ours
            made_s = 0.0
        if made_s <= now_s:
            first = max(first, _day(made_s - (COVERED_AFTER_DAYS - 1) * DAY_S))
    # Hosts' clocks differ: one may have begun the next day already.
    last = _day(now_s + DAY_S)
    return sorted(name for name in names if (day := _DAY.match(name)) and not first <= day[1] <= last)


def _day(time_s: float) -> str:
    return time.strftime("%Y%m%d", time.gmtime(time_s))
