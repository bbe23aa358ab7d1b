"""What is journalled of a cycle. Pure.

For a large queue that is not every job in every cycle: only changed and new jobs, up to a bound.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping

from accounting.journal.advice import AdvisedJob, Cycle
from models.planning.problem import Plan, PlannedJob, Problem
from slurm_plugin.slurm.queue import Written
from slurm_plugin.slurm.snapshot import Snapshot

MOST_JOBS = 500


def cycle_of(
    snapshot: Snapshot,
    problem: Problem,
    plan: Plan,
    *,
    cycle_id: str,
    cluster: str,
    objective: str,
    applied: bool,
    control: bool,
    written: Iterable[Written] = (),
    seen: Iterable[int] = (),
) -> Cycle:
    """Return a cycle as it is journalled; `seen` are the ids of jobs that earlier cycles have journalled."""
    problems = {one.job_id: one.problem for one in written if one.problem}
    likely_s = {job.job_id: job.likely_s for job in problem.pending}
    submit_s = {job.job_id: job.submit_s for job in snapshot.jobs}
    return Cycle(
        id=cycle_id,
        time_s=snapshot.time_s,
        cluster=cluster,
        objective=objective,
        order=plan.order,
        why=plan.why,
        gain=_finite(plan.gain, 0.0) or 0.0,
        pending=len(problem.pending),
        running=len(problem.running),
        applied=applied,
        control=control,
        tried=tuple((one.order, one.value) for one in plan.tried if math.isfinite(one.value)),
        jobs=tuple(
            _advised(job, snapshot.time_s, submit_s.get(job.job_id, 0.0), likely_s, problems)
            for job in told(plan, frozenset(seen))
        ),
    )


def told(plan: Plan, seen: frozenset[int]) -> list[PlannedJob]:
    """Return the jobs of a plan to be journalled: changed ones first, then a sample of new ones, by lot."""
    changed = [job for job in plan.jobs if job.before != job.after]
    fresh = [job for job in plan.jobs if job.before == job.after and job.job_id not in seen]
    fresh.sort(key=lambda job: zlib.crc32(str(job.job_id).encode()))
    return (changed + fresh)[:MOST_JOBS]


def _advised(
    job: PlannedJob,
    now_s: float,
    submit_s: float,
    likely_s: Mapping[int, float],
    problems: Mapping[int, str],
) -> AdvisedJob:
    return AdvisedJob(
        job_id=job.job_id,
        submit_s=submit_s,
        before=job.before,
        after=job.after,
        base_start_s=_finite(now_s + job.base_start_s),
        start_s=_finite(now_s + job.start_s),
        low_s=_finite(now_s + job.low_s),
        high_s=_finite(now_s + job.high_s),
        likely_s=_finite(likely_s.get(job.job_id, math.inf)),
        reason=job.reason,
        problem=problems.get(job.job_id, ""),
    )


def _finite(value: float, otherwise: float | None = None) -> float | None:
    return value if math.isfinite(value) else otherwise
