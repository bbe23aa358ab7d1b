"""The advisor's journal of cycles: ingest reads it on from where it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from accounting.errors import StoreError
from accounting.journal.advice import CYCLES, Cycle, decode_cycle
from accounting.journal.files import PART_BYTES, new_lines
from accounting.records import Quarantined

SOURCE = "advisor"


class CyclesPart(msgspec.Struct):
    """What a part of a file held: its cycles, and how far the file is read with it, in bytes."""

    file: str
    read_bytes: int
    cycles: list[Cycle]
    quarantined: list[Quarantined]


def read_cycles(
    folder: Path, offsets: Mapping[str, int], part_bytes: int = PART_BYTES
) -> Iterator[CyclesPart]:
    """Yield what is new in a folder's files, part by part, given how far each was read before."""
    found = new_lines(folder, CYCLES, offsets, part_bytes)
    return (_part_of(name, read_bytes, lines) for name, lines, read_bytes in found)


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
