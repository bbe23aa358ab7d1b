"""Recovery's journal and its form in the store: what became of runs that failed because we had cut them.

Ingest reads that journal incrementally. The last line about a run counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from accounting.damage import UNREADABLE, Count, JobNumber
from accounting.journal.files import Part, new_lines, take_lines
from accounting.wants import Cause

# The journal's files, one a day.
FILES = "recoveries-*.jsonl"
SOURCE = "recovery"

What = Literal["begun", "requeued", "lost"]
# A job's number may recur; together with its decision it does not.
Run = tuple[int, int, str]


class Recovered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one failed run (a job and how often it had been restarted), at a time in unix seconds.

    `hours` are what the run held in vain: of CPUs, and of GiB of memory. `why` says why it is lost, or came back
    with less than was asked. `account` is '' in lines of earlier releases.
    """

    job_id: JobNumber
    restarts: Count
    what: What
    time_s: float
    cause: Cause
    user: str
    decision_id: str
    cpu_hours: float = 0.0
    mem_gib_hours: float = 0.0
    why: str = ""
    array_job_id: JobNumber = 0
    account: str = ""

    @property
    def run(self) -> Run:
        """Identifies the run and its job."""
        return self.job_id, self.restarts, self.decision_id


def read_recoveries(folder: Path, offsets: Mapping[str, int]) -> Iterator[Part[Recovered]]:
    """Yield what is new in a folder's files, part by part; `offsets` says how far each was read before."""
    return take_lines(new_lines(folder, FILES, offsets), _taken, "a recovery", SOURCE)


def _taken(_file_name: str, line: bytes) -> Recovered | None:
    try:
        return msgspec.json.decode(line, type=Recovered)
    except UNREADABLE:
        return None
