"""Finds why a requeued attempt had failed if its state no longer says so. Pure.

22.05 shows each such attempt as REQUEUED. A kill for memory is still visible in its step; running out of time is
not, and only recovery's journal records it. Recovery requeues only jobs that failed because of us.
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
# The end time that Slurm shows for such an attempt is that of the requeue, which is journalled right after it.
APART_S = 600.0
# Slurm's limits are whole minutes: a limit lowered by `scontrol update EndTime=` is rounded up.
LIMIT_UNIT_S = 60
_COLUMNS = ("job_id", "end_s", "elapsed_s", "limit_s", "admin_comment")


def out_of_time(jobs: pa.Table, recoveries: Mapping[int, Sequence[Recovered]]) -> Flags:
    """Flag the attempts that ran out of time and that we requeued; `recoveries` are by job id."""
    flags = np.zeros(len(jobs), dtype=bool)
    for row in queued_again(jobs):
        job = {name: jobs[name][row].as_py() for name in _COLUMNS}
        token = find_token(job["admin_comment"])
        flags[row] = (
            token is not None
            and token.recovered_at is None
            # Its user, or a preemption, may have requeued it a moment before.
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
    """Return the rows of requeued attempts, whoever requeued them; at most sites there are none."""
    return np.flatnonzero(pc.equal(jobs["state"], REQUEUED).to_numpy()).tolist()
