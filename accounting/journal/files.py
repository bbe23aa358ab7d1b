"""Reads journals, the files that this project appends to, from where the last read ended; and the decision journal."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Generic, NamedTuple, TypeVar

import msgspec

from accounting.decisions.decision import Decision, decode_decision
from accounting.errors import StoreError
from accounting.journal.links import chain_name, day_of, split_line
from accounting.records import Quarantined

PATTERN = "decisions-*.jsonl"
SOURCE = "journal"
_WHAT = "a decision"
_ID = re.compile(rb'"id":"([^"]*)"')
# How much of a file is in memory at a time, and a longer line only by itself: some thousand decisions. Decoded,
# they take several times their text, and a process that runs for months never returns all of that to the machine.
PART_BYTES = 1024**2


class JournalLink(msgspec.Struct, frozen=True, kw_only=True):
    """The link of a decision's line as written: the line's number in its chain, its own link and the previous one.

    `origin` distinguishes its chain from other hosts' chains of the same name, `reader` is the host that read it;
    ingest fills in both.
    """

    own: str
    previous: str
    chain: str
    number: int
    decision_id: str
    file: str
    time_s: float
    origin: str = ""
    reader: str = ""


class JournalLine(NamedTuple):
    """A line of the journal: its decision, and its link, None if it has none."""

    decision: Decision
    link: JournalLink | None


Taken = TypeVar("Taken")
NewLines = Iterable[tuple[str, Iterable[bytes], int]]


class Part(msgspec.Struct, Generic[Taken]):
    """Contents of a part of a file: parsed lines, lines that could not be parsed, and how far it is read, in bytes."""

    file: str
    read_bytes: int
    taken: list[Taken]
    quarantined: list[Quarantined]


def take_lines(
    found: NewLines, take: Callable[[str, bytes], Taken | None], what: str, source: str
) -> Iterator[Part[Taken]]:
    """Yield lines as parts; `take` parses a line, given its file's name, and returns None if it is not `what`."""
    for name, lines, read_bytes in found:
        part = Part[Taken](name, read_bytes, [], [])
        for line in lines:
            said = take(name, line)
            if said is None:
                text = line.decode(errors="replace")
                part.quarantined.append(Quarantined(line=text, reason=f"{name}: not {what}", source=source))
            else:
                part.taken.append(said)
        yield part


def read_journal(folder: Path, offsets: Mapping[str, int]) -> Iterator[Part[JournalLine]]:
    """Yield what is new in a folder's journal files, part by part; `offsets` says how far each was read before."""
    return take_lines(new_lines(folder, PATTERN, offsets), _taken, _WHAT, SOURCE)


def new_lines(
    folder: Path, pattern: str, offsets: Mapping[str, int], part_bytes: int = PART_BYTES
) -> Iterator[tuple[str, list[bytes], int]]:
    """Yield a file's name, its next lines, and how far it is read with them, in bytes: part by part, file by file.

    `offsets` says how far each was read before. A last line without a newline is still being written and waits for
    the next time. Raises StoreError if a file cannot be read.
    """
    for file in sorted(folder.glob(pattern)):
        offset = offsets.get(file.name, 0)
        while True:
            lines, read_bytes = read_lines(file, offset, part_bytes)
            if read_bytes == offset:
                break
            offset = read_bytes
            yield file.name, lines, read_bytes


def read_lines(file: Path, offset: int, most_bytes: int = -1) -> tuple[list[bytes], int]:
    """Return the complete lines of a file after an offset, and where they end, in bytes.

    `most_bytes` bounds what is read at a time, except for a longer line. Raises StoreError if the file cannot be read.
    """
    with opened(file) as journal:
        journal.seek(offset)
        text = journal.read(most_bytes)
        if len(text) == most_bytes and b"\n" not in text:
            text += journal.readline()
    complete, newline, _ = text.rpartition(b"\n")
    return list(filter(None, complete.split(b"\n"))), offset + len(complete) + len(newline)


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """Open a journal file for reading; StoreError if that fails."""
    try:
        with file.open("rb") as journal:
            yield journal
    except OSError as error:
        raise cannot_read(file, error) from None


def cannot_read(file: Path, error: OSError) -> StoreError:
    """Return the error for a journal file that cannot be read."""
    return StoreError(f"cannot read the journal file {file}: {error.strerror}; correct its permissions")


def is_older(file: Path, since_s: float) -> bool:
    """Whether a journal file is of a day (UTC) before that of a moment."""
    return "" < day_of(file.name) < time.strftime("%Y%m%d", time.gmtime(since_s))


def find_decisions(folder: Path, wanted: Collection[str], since_s: float) -> dict[str, Decision]:
    """Return the decisions with these ids from the files of a day (UTC) and later; others are left out.

    The newest file is read first, and no more once all are found. Lines are searched as bytes, so that a day of a
    large site takes a second. Raises StoreError if a file cannot be read.
    """
    missing = {decision_id.encode() for decision_id in wanted}
    found: dict[str, Decision] = {}
    for file in sorted(folder.glob(PATTERN), reverse=True):
        if missing and not is_older(file, since_s):
            with opened(file) as journal:
                for line in journal:
                    # Only lines that contain one of the ids are decoded; users' words may look like an id, too.
                    named = line.endswith(b"\n") and not missing.isdisjoint(_ID.findall(line))
                    decision = decode_decision(line) if named else None
                    if decision is not None and decision.id.encode() in missing:
                        found[decision.id] = decision
                        missing.discard(decision.id.encode())
    return found


def read_quarantined(item: Quarantined) -> Part[JournalLine]:
    """Parse a rejected line again; this does not change how far its file is read."""
    found = [(item.reason.removesuffix(f": not {_WHAT}"), [item.line.encode()], 0)]
    return next(take_lines(found, _taken, _WHAT, SOURCE))


def _taken(file_name: str, line: bytes) -> JournalLine | None:
    decision = decode_decision(line)
    return None if decision is None else JournalLine(decision, link_of(file_name, line, decision))


def link_of(file_name: str, line: bytes, decision: Decision) -> JournalLink | None:
    """Return the link of a decision's line, None if it has none."""
    parts = split_line(line)
    if parts is None:
        return None
    return JournalLink(
        own=parts[1].own.decode(),
        previous=parts[1].previous.decode(),
        chain=chain_name(file_name),
        number=parts[1].number,
        decision_id=decision.id,
        file=file_name,
        time_s=decision.time_s,
    )
