"""The advisor's journal of cycles: ingest reads it on from where it stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from accounting.advice import CYCLES, Cycle, decode_cycle
from accounting.errors import StoreError
from accounting.journal import read_lines
from accounting.records import Quarantined

SOURCE = "advisor"
# As much of a file is held in memory at a time; no line is as long.
PART_BYTES = 16 * 1024**2


class CyclesPart(msgspec.Struct):
    """What a part of a file held: its cycles, and how far the file is read with it, in bytes."""

    file: str
    read_bytes: int
    cycles: list[Cycle]
    quarantined: list[Quarantined]


def read_cycles(folder: Path, offsets: dict[str, int], part_bytes: int = PART_BYTES) -> Iterator[CyclesPart]:
    """Yield what is new in a folder's files, part by part, given how far each was read before.

    A last line without its newline is still being written and waits for the next time. StoreError where a file
    cannot be read.
    """
    for file in sorted(folder.glob(CYCLES)):
        offset = offsets.get(file.name, 0)
        while True:
            lines, read_bytes = read_lines(file, offset, part_bytes)
            if read_bytes == offset:
                break
            offset = read_bytes
            yield _part_of(file.name, offset, lines)


def _part_of(name: str, read_bytes: int, lines: list[bytes]) -> CyclesPart:
    part = CyclesPart(name, read_bytes, [], [])
    for line in lines:
        try:
            part.cycles.append(decode_cycle(line))
        except StoreError:
            text = line.decode(errors="replace")
            part.quarantined.append(
                Quarantined(line=text, reason=f"{name}: not a cycle of the advisor", source=SOURCE)
            )
    return part
