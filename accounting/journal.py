"""The decision journal: files that the service appends to and ingest reads on from where it stopped."""

from __future__ import annotations

from pathlib import Path

import msgspec

from accounting.decisions import Decision, decode_decision
from accounting.errors import StoreError
from accounting.records import Quarantined

PATTERN = "decisions-*.jsonl"
SOURCE = "journal"


class JournalPart(msgspec.Struct):
    """What one journal file held beyond `offset`: its decisions, and how far it was read, in bytes."""

    file: str
    read_bytes: int
    decisions: list[Decision]
    quarantined: list[Quarantined]


def read_journal(folder: Path, offsets: dict[str, int]) -> list[JournalPart]:
    """Return what is new in the journal files of a folder, given how far each was read before.

    A last line without its newline is still being written and waits for the next time. StoreError where a file
    cannot be read.
    """
    return [_read_on(file, offsets.get(file.name, 0)) for file in sorted(folder.glob(PATTERN))]


def read_lines(file: Path, offset: int, most_bytes: int = -1) -> tuple[list[bytes], int]:
    """Return the complete lines of a file beyond an offset, and how far that is, in bytes.

    `most_bytes` bounds what is read at a time; a line that is longer than that is not read. StoreError where the file
    cannot be read.
    """
    try:
        with file.open("rb") as journal:
            journal.seek(offset)
            complete, newline, _ = journal.read(most_bytes).rpartition(b"\n")
    except OSError as error:
        raise StoreError(
            f"cannot read the journal file {file}: {error.strerror}; mend its permissions"
        ) from None
    return list(filter(None, complete.split(b"\n"))), offset + len(complete) + len(newline)


def _read_on(file: Path, offset: int) -> JournalPart:
    lines, read_bytes = read_lines(file, offset)
    part = JournalPart(file.name, read_bytes, [], [])
    for line in lines:
        decision = decode_decision(line)
        if decision is None:
            part.quarantined.append(
                Quarantined(
                    line=line.decode(errors="replace"), reason=f"{file.name}: not a decision", source=SOURCE
                )
            )
        else:
            part.decisions.append(decision)
    return part
