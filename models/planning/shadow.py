"""The queue as it would be had we never moved anything, kept from cycle to cycle: the shadow. Pure.

From one cycle to the next it is rolled on by forward.py in Slurm's own order: jobs come when they really came and run
as long as they really ran, where they have ended by now, else as long as is expected by now. So each job has a start
without us: one that was, or one that is foreseen from what would be, never from the queue that we have changed.

A value that a file can hold. It begins anew from the real queue where there is none, or one that does not fit. Times
are absolute seconds on the caller's clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec
import numpy

from models.planning.cells import Cell, cells_of, slurm_order
from models.planning.forward import Entry, Rolled, Until, roll
from models.planning.futures import likely_future, look_ahead
from models.planning.problem import Holding, Machine, Pending, Problem
from models.planning.rollout import places_of
from models.scheduling.availability import Window
from models.scheduling.room import Amounts, Parts

# Of longer queues those behind are let in when there is room: nothing looks at them before.
MOST_WAITING = 20_000
# A shadow that was left alone for so long begins anew: what came and went since is not known.
OLDEST_S = 6 * 3600.0
# Of so many days it is kept how long who waited longest did.
DAYS, DAY_S = 28, 86_400.0
# So many starts of tasks are simulated ahead.
FORESEEN_STARTS = 670
SHORTEST_S = 1.0

Phase = Literal["waits", "runs", "ended"]


class Seen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A record as it really is: in which phase, and of how many `tasks` that wait; else as of Pending.

    `run_s` is how long it ran, where it has ended, else how long it is expected to run in all, by what is known now.
    """

    job_id: int
    phase: Phase
    came_s: float
    pools: frozenset[int]
    priority: int
    tier: int
    demand: Amounts
    nodes: int
    limit_s: float
    run_s: float
    tasks: int = 1
    out: bool = False


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A task that runs in the shadow."""

    job_id: int
    start_s: float
    parts: Parts
    limit_s: float
    run_s: float

    @property
    def end_s(self) -> float:
        """Return when it ends, as far as is known."""
        return self.start_s + min(self.run_s, self.limit_s)


class Begun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of a record that really waits with so many tasks: when those of them started that did in the shadow."""

    tasks: int
    starts_s: tuple[float, ...] = ()


class Shadow(msgspec.Struct, frozen=True, kw_only=True):
    """What would be without us at a moment; `nodes` are the machines by name, `pools` what the numbers of pools mean.

    `longest_s` has the longest wait of each of the last days, by its number.
    """

    time_s: float
    nodes: tuple[str, ...]
    pools: str
    waiting: tuple[Seen, ...]
    running: tuple[Task, ...]
    begun: dict[int, Begun]
    longest_s: dict[int, float] = {}


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster now: machines by name, what they lack for a time (from now), and what the numbers of pools mean."""

    machines: tuple[Machine, ...]
    nodes: tuple[str, ...]
    pools: str = ""
    windows: tuple[Window, ...] = ()


def begun_anew(site: Site, now_s: float, seen: Iterable[Seen], running: Sequence[Holding]) -> Shadow:
    """Return the shadow that is the real queue."""
    of = {one.job_id: one for one in seen}
    tasks = [
        Task(
            job_id=held.job_id,
            start_s=now_s - held.ran_s,
            parts=held.parts,
            limit_s=held.ran_s + held.limit_left_s,
            run_s=held.ran_s + held.likely_left_s,
        )
        for held in running
    ]
    waiting = tuple(one for one in of.values() if one.phase == "waits")
    return _noted(
        Shadow(
            time_s=now_s,
            nodes=site.nodes,
            pools=site.pools,
            waiting=waiting,
            running=tuple(tasks),
            begun={one.job_id: Begun(tasks=one.tasks) for one in waiting},
        )
    )


def usable(shadow: Shadow | None, site: Site, now_s: float) -> bool:
    """Whether a shadow may be passed on: not from the future, not too old, of these nodes and pools."""
    return (
        shadow is not None
        and 0 <= now_s - shadow.time_s <= OLDEST_S
        and (shadow.nodes, shadow.pools) == (site.nodes, site.pools)
    )


def passed_on(shadow: Shadow, site: Site, now_s: float, seen: Sequence[Seen]) -> Shadow:
    """Return the shadow at a later moment, by what is seen then: all that waits or runs, and what ended since.

    What waited and is not seen any more was taken back by its user.
    """
    known = learned(shadow, seen)
    came = _came(known, seen)
    records = (*known.waiting, *came)
    problem = _problem(known, records, site, shadow.time_s)
    rolled = _rolled(problem, records, known, now_s)
    starts = [
        (records[number], known.time_s + at_s, parts)
        for each in rolled
        for number, at_s, parts in zip(each.numbers, each.starts_s, each.parts, strict=True)
    ]
    begun = {one.job_id: known.begun.get(one.job_id, Begun(tasks=one.tasks)) for one in came} | known.begun
    left = {one.job_id: one.tasks for one in records}
    tasks = list(known.running)
    longest_s = dict(known.longest_s)
    for record, start_s, parts in starts:
        left[record.job_id] -= 1
        tasks.append(_task(record, start_s, parts))
        day, wait_s = int(start_s // DAY_S), start_s - record.came_s
        longest_s[day] = max(longest_s.get(day, 0.0), wait_s)
        if record.phase == "waits":
            own = begun[record.job_id]
            begun[record.job_id] = msgspec.structs.replace(own, starts_s=(*own.starts_s, start_s))
    really = {one.job_id for one in seen if one.phase == "waits"}
    return _noted(
        msgspec.structs.replace(
            known,
            time_s=now_s,
            waiting=tuple(
                msgspec.structs.replace(one, tasks=left[one.job_id]) for one in records if left[one.job_id]
            ),
            running=tuple(task for task in tasks if task.end_s > now_s),
            begun={job_id: one for job_id, one in begun.items() if job_id in really},
            longest_s=longest_s,
        )
    )


def learned(shadow: Shadow, seen: Sequence[Seen]) -> Shadow:
    """Return a shadow of the same moment that knows what is seen now: of runs, priorities, and who left the queue."""
    of = {one.job_id: one for one in seen}
    older = _older(shadow, of)
    waiting = []
    for one in shadow.waiting:
        now = of.get(one.job_id)
        if now is None and one.phase == "waits":
            continue
        if now is None:
            waiting.append(msgspec.structs.replace(one, priority=one.priority + older))
            continue
        priority = now.priority if now.phase == "waits" else one.priority + older
        waiting.append(
            msgspec.structs.replace(
                one, phase=now.phase, run_s=now.run_s, priority=priority, out=now.out, limit_s=now.limit_s
            )
        )
    running = tuple(
        msgspec.structs.replace(task, run_s=of[task.job_id].run_s) if task.job_id in of else task
        for task in shadow.running
    )
    begun = {
        job_id: _since(one, of[job_id].tasks)
        for job_id, one in shadow.begun.items()
        if job_id in of and of[job_id].phase == "waits"
    }
    return msgspec.structs.replace(shadow, waiting=tuple(waiting), running=running, begun=begun)


def _older(shadow: Shadow, of: dict[int, Seen]) -> int:
    """Return by how many points those who really wait grew older: by as many who does so in the shadow alone."""
    grown = [
        of[one.job_id].priority - one.priority
        for one in shadow.waiting
        if one.phase == "waits" and one.job_id in of and of[one.job_id].phase == "waits"
    ]
    return int(numpy.median(grown)) if grown else 0


def _since(begun: Begun, tasks: int) -> Begun:
    """Return what of a record that has fewer tasks left now has begun in the shadow."""
    return Begun(tasks=tasks, starts_s=begun.starts_s[max(0, begun.tasks - tasks) :])


def _came(shadow: Shadow, seen: Sequence[Seen]) -> list[Seen]:
    """Return who has come since, or came back; of a long queue no more than are looked at."""
    there = {one.job_id for one in shadow.waiting}
    found = []
    for one in seen:
        again = one.phase == "waits" and one.job_id not in there and not _has_begun(shadow, one.job_id)
        if again or (one.phase != "waits" and one.came_s > shadow.time_s and one.job_id not in there):
            found.append(one)
    room = max(0, MOST_WAITING - len(shadow.waiting))
    if len(found) <= room:
        return found
    return sorted(found, key=lambda one: (-one.tier, -one.priority, one.job_id))[:room]


def _has_begun(shadow: Shadow, job_id: int) -> bool:
    return job_id in shadow.begun and bool(shadow.begun[job_id].starts_s)


def _task(record: Seen, start_s: float, parts: Parts) -> Task:
    return Task(
        job_id=record.job_id, start_s=start_s, parts=parts, limit_s=record.limit_s, run_s=record.run_s
    )


def _problem(shadow: Shadow, records: Sequence[Seen], site: Site, from_s: float) -> Problem:
    """Return what waits and runs in a shadow as a plan would see it."""
    return Problem(
        machines=site.machines,
        pending=tuple(_pending(one, from_s) for one in records),
        running=tuple(_holding(task, from_s) for task in shadow.running),
        windows=site.windows,
    )


def _pending(one: Seen, from_s: float) -> Pending:
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
        waited_s=max(0.0, from_s - one.came_s),
        tasks=one.tasks,
        nodes=one.nodes,
        out=one.out,
        tier=one.tier,
    )


def _holding(task: Task, from_s: float) -> Holding:
    return Holding(
        job_id=task.job_id,
        account=0,
        user=0,
        parts=task.parts,
        ran_s=from_s - task.start_s,
        limit_left_s=task.start_s + task.limit_s - from_s,
        likely_left_s=task.end_s - from_s,
    )


def _rolled(problem: Problem, records: Sequence[Seen], shadow: Shadow, to_s: float) -> list[Rolled]:
    """Return what starts in each cell from the shadow's moment to another."""
    places = places_of(slurm_order(problem.pending)).tolist()
    from_s = shadow.time_s
    found = []
    for cell in cells_of(problem):
        entries = [
            Entry(
                at,
                cell.needs[at],
                places[at],
                records[at].run_s,
                max(0.0, records[at].came_s - from_s),
            )
            for at in cell.active
        ]
        ends_s = numpy.array([max(0.0, held.likely_left_s) for held in cell.running])
        found.append(roll(cell, entries, ends_s, Until(until_s=to_s - from_s)))
    return found


def foreseen(shadow: Shadow, site: Site, horizon_s: float, jobs: Collection[int]) -> dict[int, float]:
    """Return when these records start without us: when they did, or will by what is known now, if that is seen."""
    found = {job_id: one.starts_s[0] for job_id, one in shadow.begun.items() if one.starts_s}
    problem = _problem(shadow, shadow.waiting, site, shadow.time_s)
    cells: list[Cell] = cells_of(problem)
    if not cells:
        return found
    waits = max(1, len(shadow.waiting))
    untils = [
        Until(until_s=horizon_s, most_starts=max(1, FORESEEN_STARTS * len(cell.active) // waits))
        for cell in cells
    ]
    outlook = look_ahead(
        cells, places_of(slurm_order(problem.pending)), likely_future(problem, cells), untils
    )
    for one, start_s in zip(shadow.waiting, outlook.first_s.tolist(), strict=True):
        if one.job_id in jobs and math.isfinite(start_s):
            found.setdefault(one.job_id, shadow.time_s + start_s)
    return found


def longest_wait_s(shadow: Shadow) -> float:
    """Return the longest that anybody has waited without us in the last days, or waits by now."""
    waits = (shadow.time_s - one.came_s for one in shadow.waiting if not one.out)
    return max((*shadow.longest_s.values(), *waits), default=0.0)


def _noted(shadow: Shadow) -> Shadow:
    """Return a shadow that has forgotten what was too long ago."""
    today = int(shadow.time_s // DAY_S)
    kept = {day: wait_s for day, wait_s in shadow.longest_s.items() if day > today - DAYS}
    return msgspec.structs.replace(shadow, longest_s=kept)
