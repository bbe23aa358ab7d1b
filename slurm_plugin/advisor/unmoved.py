"""What the shadow, the queue as it would be without us, learns from a snapshot in a cycle. Pure.

It decides how Slurm's records enter it: a running task of an array belongs to the record that it was split from; a
waiting job is as the plan has it, a running one as it holds its nodes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from models.planning.problem import Holding, Pending, Problem
from models.planning.shadow import Seen, Shadow, Site, begun_anew, usable
from models.planning.shadow_rolling import Shadows, measured, passed_on
from models.scheduling.room import Amounts
from slurm_plugin.advisor.preemption import Ranks
from slurm_plugin.advisor.problem import own_priority
from slurm_plugin.advisor.room import numbers_of, pools_of
from slurm_plugin.advisor.run_time import limit_of
from slurm_plugin.slurm.snapshot import QueuedJob, Snapshot


class Unmoved(NamedTuple):
    """The shadow that the next cycle continues, and the problem measured against what would be now."""

    shadow: Shadow
    problem: Problem


def unmoved(before: Shadow | None, snapshot: Snapshot, problem: Problem, horizon_s: float) -> Unmoved:
    """Return what would be without us at a snapshot; the real queue if what was kept does not fit."""
    site = site_of(snapshot, problem)
    now_s = snapshot.time_s
    kept = before if usable(before, site, now_s) else None
    seen = seen_of(snapshot, problem, _known(kept))
    if kept is None:
        anew = begun_anew(site, now_s, seen, problem.running)
        shadows = Shadows(anew, anew)
    else:
        shadows = passed_on(kept, site, now_s, seen)
    tasks = {job.job_id: job.tasks for job in snapshot.jobs if job.waits}
    return Unmoved(shadows.certain, measured(problem, shadows, site, horizon_s, tasks))


def site_of(snapshot: Snapshot, problem: Problem) -> Site:
    """Return the cluster of a snapshot, as the problem has it."""
    numbers = numbers_of(snapshot)
    return Site(
        machines=problem.machines,
        nodes=tuple(node.name for node in snapshot.nodes if not node.away),
        pools=" ".join(
            (
                *sorted(numbers.pools),
                *(f"gpu:{name}" for name in numbers.gpu_types),
                *(f"cpus:{one.name}" for one in numbers.capped),
            )
        ),
        windows=problem.windows,
        bounds=problem.bounds,
        limits=problem.limits,
        elsewhere=problem.elsewhere,
        clock=problem.clock,
    )


def seen_of(snapshot: Snapshot, problem: Problem, known: Collection[int]) -> list[Seen]:
    """Return what waits and runs; running tasks of arrays that are `known` are no records of their own."""
    waiting = [job for job in snapshot.jobs if job.waits]
    found = [
        _that_waits(job, one, snapshot.time_s) for job, one in zip(waiting, problem.pending, strict=True)
    ]
    running = {job.job_id: job for job in snapshot.jobs if not job.waits}
    numbers = numbers_of(snapshot)
    ranks = Ranks(snapshot)
    for held in problem.running:
        job = running[held.job_id]
        if job.array_job_id in known and job.array_job_id != job.job_id:
            continue
        pools = pools_of(job, job.partitions, numbers)
        tier = ranks.tier(job.qos, job.partitions)
        found.append(_that_runs(job, held, snapshot.time_s, pools, tier))
    return found


def _that_waits(job: QueuedJob, one: Pending, now_s: float) -> Seen:
    return Seen(
        job_id=job.job_id,
        phase="waits",
        came_s=now_s - one.waited_s,
        pools=one.pools,
        priority=one.priority,
        tier=one.tier,
        demand=one.demand,
        nodes=one.nodes,
        limit_s=one.limit_s,
        run_s=one.likely_s,
        tasks=job.tasks,
        out=one.out,
        dues=one.dues,
    )


def _that_runs(job: QueuedJob, held: Holding, now_s: float, pools: frozenset[int], tier: int) -> Seen:
    return Seen(
        job_id=job.job_id,
        phase="runs",
        came_s=_came_s(job, now_s - held.ran_s),
        pools=pools,
        priority=own_priority(job, job.site_factor),
        tier=tier,
        demand=_sum([amounts for _, amounts in held.parts]),
        nodes=len(held.parts),
        limit_s=limit_of(job),
        run_s=held.ran_s + held.likely_left_s,
        ran_s=held.ran_s,
        dues=held.dues,
    )


def _known(shadow: Shadow | None) -> frozenset[int]:
    if shadow is None:
        return frozenset()
    records = frozenset(one.job_id for one in (*shadow.waiting, *shadow.came))
    return records | frozenset(task.job_id for task in shadow.running) | frozenset(shadow.begun)


def _came_s(job: QueuedJob, start_s: float) -> float:
    """Return when a running job came to wait."""
    since_s = job.eligible_s or job.submit_s
    return since_s if 0 < since_s <= start_s else start_s


def _sum(parts: list[Amounts]) -> Amounts:
    return tuple(sum(column) for column in zip(*parts, strict=True))
