"""Finds how a requeued attempt had ended if its state no longer says so. Pure.

Slurm shows each such attempt as REQUEUED (22.05 and 24.11). A kill for memory is still visible in its step. That it
ran out of time, or failed for another reason, is not, and only recovery's journal records it. Recovery requeues only
jobs that failed because of us.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.decisions.token import find_token
from accounting.journal.recoveries import Recovered
from accounting.wants import Cause

REQUEUED, FAILED, TIMEOUT = "REQUEUED", "FAILED", "TIMEOUT"
# What an attempt failed for if its step, or how long it ran, tells whether it did.
_TOLD_OTHERWISE: frozenset[Cause] = frozenset({"out_of_memory", "timeout"})
# The end time that Slurm shows for such an attempt is that of the requeue, which is journalled right after it.
APART_S = 600.0
# Slurm's limits are whole minutes: a limit lowered by `scontrol update EndTime=` is rounded up.
LIMIT_UNIT_S = 60
_COLUMNS = ("job_id", "end_s", "admin_comment")


def as_ended(jobs: pa.Table, recoveries: Mapping[int, Sequence[Recovered]]) -> pa.Table:
    """Return jobs in which attempts that we requeued have the state in which they had ended; `recoveries` by job id.

    Those that were killed for memory stay REQUEUED: their step says so.
    """
    ended = {row: state for row, causes in _causes(jobs, recoveries) if (state := _state(jobs, row, causes))}
    if not ended:
        return jobs
    states = [ended.get(row, state) for row, state in enumerate(jobs["state"].to_pylist())]
    return jobs.set_column(jobs.schema.get_field_index("state"), "state", pa.array(states, pa.string()))


def _state(jobs: pa.Table, row: int, causes: set[Cause]) -> str | None:
    # Its user, or a preemption, may have requeued it a moment before.
    in_time = jobs["elapsed_s"][row].as_py() <= (jobs["limit_s"][row].as_py() or 0) - LIMIT_UNIT_S
    if "timeout" in causes and not in_time:
        return TIMEOUT
    return FAILED if causes - _TOLD_OTHERWISE else None


def _causes(
    jobs: pa.Table, recoveries: Mapping[int, Sequence[Recovered]]
) -> Iterator[tuple[int, set[Cause]]]:
    """Yield each requeued attempt that had our token, and why we requeued it; nothing if we did not."""
    for row in queued_again(jobs):
        job = {name: jobs[name][row].as_py() for name in _COLUMNS}
        token = find_token(job["admin_comment"])
        if token is None or token.recovered_at is not None:
            continue
        # A token from the journal may be that of an alike job, submitted at the same moment.
        yield (
            row,
            {
                one.cause
                for one in recoveries.get(job["job_id"], ())
                if (one.decision_id == token.decision_id or token.from_journal)
                and abs(one.time_s - job["end_s"]) <= APART_S
            },
        )


def queued_again(jobs: pa.Table) -> list[int]:
    """Return the rows of requeued attempts, whoever requeued them; at most sites there are none."""
    return np.flatnonzero(pc.equal(jobs["state"], REQUEUED).to_numpy()).tolist()
