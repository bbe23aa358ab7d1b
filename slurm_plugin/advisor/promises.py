"""By when each waiting job has to have started, kept from cycle to cycle so that delays do not add up. Pure.

What counts is its start without us as the first cycle told it that could, and the site's bound on delay: later cycles
start from a queue that we have changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from models.planning.problem import PlannedJob
from slurm_plugin.slurm.queue import QueuedJob

# More jobs than this are not remembered; those that are seen first are.
MOST_PROMISES = 200_000


class Promise(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Of a record of `tasks` tasks, submitted then (unix seconds), when it has to have started; None: not told yet."""

    submit_s: float
    tasks: int = 1
    latest_s: float | None = None

    def holds_for(self, job: QueuedJob) -> bool:
        """Whether it is about this record still: of an array that has begun, the next task's start counts anew."""
        return (self.submit_s, self.tasks) == (job.submit_s, job.tasks)


Promises = Mapping[int, Promise]


def latest_starts(promises: Promises, jobs: Sequence[QueuedJob]) -> dict[int, float]:
    """Return when waiting jobs have to have started (unix seconds), by job, as far as that was told before."""
    known = ((job, promises.get(job.job_id)) for job in jobs if job.waits)
    return {
        job.job_id: promise.latest_s
        for job, promise in known
        if promise is not None and promise.latest_s is not None and promise.holds_for(job)
    }


def promised(
    before: Promises,
    jobs: Sequence[QueuedJob],
    planned: Sequence[PlannedJob],
    now_s: float,
) -> dict[int, Promise]:
    """Return the promises after a cycle: those of jobs that still wait, and new ones by what was planned."""
    latest_start_s = {each.job_id: each.latest_start_s for each in planned}
    after: dict[int, Promise] = {}
    for job in (job for job in jobs if job.waits):
        known = before.get(job.job_id)
        if known is not None and known.holds_for(job) and known.latest_s is not None:
            after[job.job_id] = known
        elif len(after) < MOST_PROMISES:
            told_s = latest_start_s.get(job.job_id, math.inf)
            latest_s = now_s + told_s if math.isfinite(told_s) else None
            after[job.job_id] = Promise(submit_s=job.submit_s, tasks=job.tasks, latest_s=latest_s)
    return after
