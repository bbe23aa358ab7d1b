"""The advisor's journal, which ingest reads incrementally: what a cycle proposed, and what it did.

Times are unix seconds; a time that is unknown, or beyond the horizon, is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from accounting.damage import UNREADABLE, Count, Factor, JobNumber, Moment
from accounting.journal.files import Part, new_lines, take_lines

# The journal's files, one a day.
CYCLES = "cycles-*.jsonl"
SOURCE = "advisor"


class AdvisedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pending job in a cycle: its SiteFactor before and after, its expected start without us and with the plan.

    `low_s` and `high_s` contain the start with a probability of 80 %. `problem` says why a change did not reach Slurm.
    """

    job_id: JobNumber
    submit_s: Moment
    before: Factor
    after: Factor
    base_start_s: float | None = None
    start_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    likely_s: float | None = None
    reason: str = ""
    problem: str = ""


class Cycle(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cycle: what it saw, what it chose and why. `control`: drawn to watch only; `applied`: it was carried out.

    `gain` is how much better the objective was expected to be with the chosen order than with none; `tried` has the
    value of each order that was tried.
    """

    id: str
    time_s: float
    cluster: str
    objective: str
    order: str
    why: str
    gain: float
    pending: Count
    running: Count
    applied: bool
    control: bool = False
    tried: tuple[tuple[str, float], ...] = ()
    jobs: tuple[AdvisedJob, ...] = ()


def encode_cycle(cycle: Cycle) -> bytes:
    """Return the journal line of a cycle, with its newline."""
    return msgspec.json.encode(cycle) + b"\n"


def decode_cycle(line: bytes) -> Cycle | None:
    """Return the cycle in a journal line; None if the line is damaged."""
    try:
        return msgspec.json.decode(line, type=Cycle)
    except UNREADABLE:
        return None


def read_cycles(folder: Path, offsets: Mapping[str, int]) -> Iterator[Part[Cycle]]:
    """Yield what is new in a folder's files, part by part; `offsets` says how far each was read before."""
    found = new_lines(folder, CYCLES, offsets)
    return take_lines(found, lambda _, line: decode_cycle(line), "a cycle of the advisor", SOURCE)
