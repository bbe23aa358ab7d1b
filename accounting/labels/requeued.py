"""What an attempt that was queued again had failed for, where its state does not tell that any more. Pure.

22.05 shows each as REQUEUED. A kill for memory is still seen by its step; a run out of time is not, and only the
journal of recovery tells of it, which queues again none but what had failed by us.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.decisions.token import find_token
from accounting.journal.recoveries import Recovered
from accounting.labels.usage import Flags

REQUEUED = "REQUEUED"
# The end that Slurm shows of such an attempt is the moment when it was queued again, which is journaled right after.
APART_S = 600.0
# Slurm's limits are whole minutes: one that `scontrol update EndTime=` brought down is rounded up.
LIMIT_UNIT_S = 60
_COLUMNS = ("job_id", "end_s", "elapsed_s", "limit_s", "admin_comment")


def out_of_time(jobs: pa.Table, recoveries: Mapping[int, Sequence[Recovered]]) -> Flags:
    """Flag the attempts that ran out of time and were queued again by us; `recoveries` are by job id."""
    flags = np.zeros(len(jobs), dtype=bool)
    for row in queued_again(jobs):
        job = {name: jobs[name][row].as_py() for name in _COLUMNS}
        token = find_token(job["admin_comment"])
        flags[row] = (
            token is not None
            and token.recovered_at is None
            # Its user, or a preemption, may have queued it again a moment before.
            and job["elapsed_s"] > (job["limit_s"] or 0) - LIMIT_UNIT_S
            and any(
                one.cause == "timeout"
                and one.decision_id == token.decision_id
                and abs(one.time_s - job["end_s"]) <= APART_S
                for one in recoveries.get(job["job_id"], ())
            )
        )
    return flags


def queued_again(jobs: pa.Table) -> list[int]:
    """Return the rows of attempts that were queued again, by whomever; none of most sites' jobs."""
    return np.flatnonzero(pc.equal(jobs["state"], REQUEUED).to_numpy()).tolist()
