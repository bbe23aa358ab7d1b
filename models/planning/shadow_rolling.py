"""The shadow, rolled on in Slurm's own order, and what a plan learns from it. Pure.

It gives each job a start without us: one that happened in the shadow, or one foreseen from it, never from the queue
that we have changed. A job that we hold back may have ended in the shadow before it really begins, so its run time is
not known yet. So the shadow is kept as of the last moment up to which all is certain; what follows is simulated again
when more is known.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy

from models.planning.cells import cells_of, slurm_order
from models.planning.forward import Course, Entry, Until
from models.planning.futures import likely_future, look_ahead
from models.planning.problem import SHORTEST_S, Holding, Pending, Problem
from models.planning.rollout import places_of
from models.planning.shadow import Begun, Seen, Shadow, Site, Task, learned, on_nodes
from models.planning.side_by_side import roll_all
from models.scheduling.room import Parts

# For this many days, the longest wait of each day is kept.
DAYS, DAY_S = 28, 86_400.0
# The most starts that are simulated again; older ones stay as they were assumed.
MOST_AGAIN = 2_000
# The most starts of tasks that are simulated ahead.
FORESEEN_STARTS = 670


class Start(NamedTuple):
    """A task of a record that starts in the shadow."""

    record: Seen
    at_s: float
    parts: Parts


class Shadows(NamedTuple):
    """What would be without us: up to the last certain moment, which is passed on, and as expected for now."""

    certain: Shadow
    now: Shadow


def passed_on(shadow: Shadow, site: Site, now_s: float, seen: Sequence[Seen]) -> Shadows:
    """Return the shadow up to the last certain moment, and as it is expected to be now.

    `seen` is all that waits or runs, and what ended since the last call. What waited and is not seen any more was
    cancelled by its user. Pass the certain shadow to the next call: from its moment on, all is simulated again by
    what is known then, but no more than MOST_AGAIN starts.
    """
    known = learned(on_nodes(shadow, site.nodes), now_s, seen)
    records = (*known.waiting, *known.came)
    starts = _starts(known, records, site, now_s)
    tasks = [*known.running, *(_task(start) for start in starts)]
    certain_s = min([now_s, *(task.certain_s for task in tasks)])
    if len(starts) > MOST_AGAIN:
        certain_s = max(certain_s, starts[-MOST_AGAIN].at_s)
    certain_s = max(certain_s, known.time_s)
    really = {one.job_id for one in seen if one.phase == "waits"}
    certain, now = (_at(known, records, tasks, starts, at_s, really) for at_s in (certain_s, now_s))
    return Shadows(msgspec.structs.replace(certain, seen_s=now_s), now)


def _at(
    known: Shadow,
    records: Sequence[Seen],
    tasks: Sequence[Task],
    starts: Sequence[Start],
    at_s: float,
    really: Collection[int],
) -> Shadow:
    """Return the shadow at a moment; `really` are the records that really wait now."""
    left = {one.job_id: one.tasks for one in records}
    starts_s = {job_id: list(one.starts_s) for job_id, one in known.begun.items() if job_id in really}
    longest_s = dict(known.longest_s)
    for record, start_s, _ in starts:
        if start_s > at_s:
            continue
        left[record.job_id] -= 1
        day = int(start_s // DAY_S)
        longest_s[day] = max(longest_s.get(day, 0.0), start_s - record.came_s)
        if record.job_id in really:
            starts_s.setdefault(record.job_id, []).append(start_s)
    of = known.begun | {one.job_id: Begun(tasks=one.tasks) for one in known.came}
    return msgspec.structs.replace(
        known,
        time_s=at_s,
        waiting=tuple(
            one if left[one.job_id] == one.tasks else msgspec.structs.replace(one, tasks=left[one.job_id])
            for one in records
            if left[one.job_id] and one.came_s <= at_s
        ),
        came=tuple(one for one in records if one.came_s > at_s),
        running=tuple(task for task in tasks if task.start_s <= at_s < task.end_s),
        begun={
            job_id: Begun(tasks=of[job_id].tasks, starts_s=tuple(starts_s.get(job_id, ())))
            for job_id in of
            if job_id in really
        },
        longest_s={day: wait_s for day, wait_s in longest_s.items() if day > at_s // DAY_S - DAYS},
    )


def _task(start: Start) -> Task:
    record = start.record
    return Task(
        job_id=record.job_id,
        start_s=start.at_s,
        parts=start.parts,
        limit_s=record.limit_s,
        run_s=record.run_s,
        # Slurm does not say which task of an array is which, so all run as long as is expected.
        ran_s=record.ran_s if record.tasks == 1 else record.run_s,
        dues=record.dues,
    )


def _problem(shadow: Shadow, records: Sequence[Seen], site: Site, now_s: float) -> Problem:
    """Return what waits, comes and runs in a shadow as a plan would see it; `site` is as of `now_s`."""
    from_s = shadow.time_s
    return Problem(
        machines=site.machines,
        pending=tuple(map(_pending, records)),
        running=tuple(_holding(task, from_s) for task in shadow.running),
        windows=tuple(
            msgspec.structs.replace(
                window, from_s=window.from_s + now_s - from_s, to_s=window.to_s + now_s - from_s
            )
            for window in site.windows
        ),
        bounds=site.bounds,
        limits=site.limits,
        elsewhere=tuple(
            msgspec.structs.replace(one, left_s=one.left_s + now_s - from_s, ran_s=one.ran_s + from_s - now_s)
            for one in site.elsewhere
        ),
        clock=site.clock.as_of(from_s - now_s),
    )


def _pending(one: Seen) -> Pending:
    run_s = min(max(SHORTEST_S, one.run_s), one.limit_s)
    return Pending(
        job_id=one.job_id,
        account=0,
        user=0,
        pools=one.pools,
        priority=one.priority,
        factor=0,
        demand=one.demand,
        limit_s=one.limit_s,
        likely_s=run_s,
        upper_s=run_s,
        waited_s=0.0,  # only orders that are proposed look at it
        tasks=one.tasks,
        nodes=one.nodes,
        out=one.out,
        tier=one.tier,
        dues=one.dues,
    )


def _holding(task: Task, from_s: float) -> Holding:
    return Holding(
        job_id=task.job_id,
        user=0,
        parts=task.parts,
        ran_s=from_s - task.start_s,
        limit_left_s=task.start_s + task.limit_s - from_s,
        likely_left_s=task.end_s - from_s,
        dues=task.dues,
    )


def _starts(shadow: Shadow, records: Sequence[Seen], site: Site, to_s: float) -> list[Start]:
    """Return what starts from the shadow's moment until `to_s`, in order of time."""
    from_s = shadow.time_s
    problem = _problem(shadow, records, site, to_s)
    places = places_of(slurm_order(problem.pending)).tolist()
    courses = [
        Course(
            cell=cell,
            entries=[
                Entry(
                    at, cell.needs[at], places[at], records[at].run_s, max(0.0, records[at].came_s - from_s)
                )
                for at in cell.active
            ],
            ends_s=numpy.array([held.likely_left_s for held in cell.running]),
            until=Until(until_s=to_s - from_s),
        )
        for cell in cells_of(problem)
    ]
    found = [
        Start(records[number], from_s + at_s, parts)
        for rolled in roll_all(courses)
        for number, at_s, parts in zip(rolled.numbers, rolled.starts_s, rolled.parts, strict=True)
    ]
    return sorted(found, key=lambda start: start.at_s)


def measured(
    problem: Problem, shadows: Shadows, site: Site, horizon_s: float, tasks: Mapping[int, int]
) -> Problem:
    """Return a problem that knows what would be without us; `tasks` has how many tasks of each record really wait."""
    certain, now = shadows
    starts_s = foreseen(now, site, horizon_s, tasks)
    return msgspec.structs.replace(
        problem,
        pending=tuple(
            msgspec.structs.replace(job, unmoved_start_s=starts_s[job.job_id] - now.time_s)
            if job.job_id in starts_s
            else job
            for job in problem.pending
        ),
        longest_wait_s=max(longest_wait_s(certain), longest_wait_s(now)),
    )


def foreseen(now: Shadow, site: Site, horizon_s: float, tasks: Mapping[int, int]) -> dict[int, float]:
    """Return when records start without us, where that is known: when they did, or will by what is known now.

    `tasks` has how many tasks of each really wait: for an array, the start of its next task counts.
    """
    found: dict[int, float] = {}
    for job_id, one in now.begun.items():
        # More may wait than were first seen: slurmctld was started with an older state, or has given the number again.
        begun = max(0, one.tasks - tasks.get(job_id, one.tasks))
        if begun < len(one.starts_s):
            found[job_id] = one.starts_s[begun]
    problem = _problem(now, now.waiting, site, now.time_s)
    cells = cells_of(problem)
    if not cells:
        return found
    untils = [
        Until(until_s=horizon_s, most_starts=max(1, FORESEEN_STARTS * len(cell.active) // len(now.waiting)))
        for cell in cells
    ]
    outlook = look_ahead(
        cells, places_of(slurm_order(problem.pending)), likely_future(problem, cells), untils
    )
    for record, start_s in zip(now.waiting, outlook.first_s.tolist(), strict=True):
        if record.job_id in tasks and math.isfinite(start_s):
            found.setdefault(record.job_id, now.time_s + start_s)
    return found


def longest_wait_s(shadow: Shadow) -> float:
    """Return the longest wait without us, in the last days or of a job that still waits."""
    waits = (shadow.time_s - one.came_s for one in shadow.waiting if not one.out)
    return max((*shadow.longest_s.values(), *waits), default=0.0)
