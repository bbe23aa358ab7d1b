"""A plan in words and as values: each job's factor, starts and reason, what was tried, and why this order. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy

from accounting.units import counted
from models.planning.candidates import NOT_CLOSELY, Candidate
from models.planning.cells import slurm_order
from models.planning.futures import look_ahead
from models.planning.orders import AS_IS
from models.planning.problem import Pending, Plan, PlannedJob, Problem, Tried
from models.planning.prospects import Ahead, untils_of
from models.planning.rollout import drawn_futures, span_of
from models.scheduling.room import Floats

LEAST_DRAWN, MOST_DRAWN = 3, 9


def told(
    ahead: Ahead,
    as_is: Candidate,
    best: Candidate,
    tried: Sequence[Candidate],
    left_out: Sequence[str],
    most_starts: int,
    seed: int,
) -> Plan:
    """Return the plan of a candidate; intervals come from as many drawn futures as `most_starts` leave room for."""
    gain = best.prospect.gain(as_is.prospect) if best is not as_is else 0.0
    base_s, start_s = as_is.prospect.start_s, best.prospect.start_s
    low_s, high_s = _spans(ahead, best, start_s, most_starts, seed)
    jobs = tuple(
        PlannedJob(
            job_id=job.job_id,
            before=job.factor,
            after=_factor(job, best.factors.get(number)),
            base_start_s=float(base_s[number]),
            start_s=float(start_s[number]),
            low_s=float(low_s[number]),
            high_s=float(high_s[number]),
            reason=_reason(job, best, float(base_s[number]), float(start_s[number])),
        )
        for number, job in enumerate(ahead.problem.pending)
    )
    return Plan(
        order=best.order,
        why=_why(ahead, best, gain, tried, left_out),
        gain=gain,
        tried=tuple(Tried(order=one.order, value=one.prospect.value, refused=one.refused) for one in tried),
        jobs=bounded(jobs, slurm_order(ahead.problem.pending), ahead.bounds.most_changes),
    )


def unchanged(problem: Problem, why: str) -> Plan:
    """Return the plan that leaves the queue as Slurm has it."""
    endless = math.inf
    jobs = tuple(
        PlannedJob(
            job_id=job.job_id,
            before=job.factor,
            after=_factor(job, None),
            base_start_s=endless,
            start_s=endless,
            low_s=endless,
            high_s=endless,
            reason=why,
        )
        for job in problem.pending
    )
    return Plan(order=AS_IS, why=why, gain=0.0, tried=(), jobs=jobs)


def _factor(job: Pending, factor: int | None) -> int:
    return job.factor if job.kept or job.out or factor is None else factor


def bounded(
    jobs: tuple[PlannedJob, ...], in_order: Sequence[int], most_changes: int
) -> tuple[PlannedJob, ...]:
    """Return the jobs with no more changes than are allowed: only plans that take factors back can have more.

    `in_order` is Slurm's own. Jobs that were put behind come back first, in Slurm's order, then those that were put
    ahead, in reverse order: so on the way, no job passes one that it passes neither before nor after.
    """
    changed = [at for at in in_order if jobs[at].before != jobs[at].after]
    behind = [at for at in changed if jobs[at].before < 0]
    ahead = [at for at in reversed(changed) if jobs[at].before >= 0]
    later = set((behind + ahead)[most_changes:])
    return tuple(
        msgspec.structs.replace(job, after=job.before, reason="next time") if at in later else job
        for at, job in enumerate(jobs)
    )


def _spans(
    ahead: Ahead, best: Candidate, start_s: Floats, most_starts: int, seed: int
) -> tuple[Floats, Floats]:
    problem, cells = ahead.problem, list(ahead.cells)
    number = max(LEAST_DRAWN, min(MOST_DRAWN, most_starts // max(1, ahead.starts)))
    untils = untils_of(problem, cells, ahead.bounds.horizon_s, ahead.starts + len(cells))
    turns = ahead.turns_s[0] if best.order != AS_IS else None
    drawn = [
        look_ahead(cells, best.places, future, untils, turns)
        for future in drawn_futures(problem, cells, number, seed)
    ]
    return span_of(start_s, drawn)


def _why(
    ahead: Ahead, best: Candidate, gain: float, tried: Sequence[Candidate], left_out: Sequence[str]
) -> str:
    measure, least = ahead.bounds.objective, ahead.bounds.least_gain
    others = [one for one in tried if one.order not in (AS_IS, best.order)]
    better = [one for one in others if one.prospect.value < best.prospect.value]
    if best.order == AS_IS and not others and not left_out:
        words = "every order but Slurm's own treats the waiting jobs alike"
    elif best.order == AS_IS and len(others) == 1:
        words = f'"{others[0].order}" is no better ({measure}) within the bounds'
    elif best.order == AS_IS:
        words = f"none of {len(others)} orders is better by enough ({measure}) within the bounds"
    elif gain <= least:
        words = f'"{best.order}" is kept ({measure}: {gain:+.1%})'
    else:
        words = f'"{best.order}" is better by {gain:.0%} ({measure})'
        words += f", of {len(others) + 1} orders" if others else ""
    refused = [f'"{one.order}": {one.refused}' for one in better if one.refused not in ("", NOT_CLOSELY)]
    if refused:
        words += "; refused: " + ", ".join(refused)
    passed_over = [one.order for one in better if one.refused == NOT_CLOSELY]
    if passed_over:
        words += "; only looked at roughly: " + ", ".join(passed_over)
    if left_out:
        words += "; not tried, because the queue is long: " + ", ".join(left_out)
    seen_s = [rolled.until_s for rolled in ahead.base[0].rolled]
    if min(seen_s) < ahead.bounds.horizon_s:
        words += (
            f"; simulated {min(seen_s) / 60:.0f} min ahead, by which {counted(ahead.starts, 'task')} started"
        )
    return words


def _reason(job: Pending, best: Candidate, base_s: float, start_s: float) -> str:
    if job.kept:
        return f"kept: {job.kept}"
    if job.out:
        return "it cannot start now"
    if best.order == AS_IS:
        return "as Slurm has it"
    words = f"{best.order}, likely {job.likely_s / 60:.0f} of {job.limit_s / 60:.0f} min"
    if not (numpy.isfinite(base_s) and numpy.isfinite(start_s)) or abs(base_s - start_s) < 60:
        return words
    return f"{words}: {abs(base_s - start_s) / 60:.0f} min {'sooner' if start_s < base_s else 'later'}"
