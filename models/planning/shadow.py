"""The queue as it would be had we never moved anything, kept from cycle to cycle: the shadow. Pure.

It is rolled on by forward.py in Slurm's own order: jobs come when they really came and run as long as they really ran,
where they have ended by now, else as long as is expected by now. So each job has a start without us: one that was, or
one that is foreseen from what would be, never from the queue that we have changed. Whom we hold back would have ended
before it has begun: so what is kept is the last moment of which all is certain, and what is behind it is simulated
again when more is known.

A value that a file can hold. It begins anew from the real queue where there is none, or one that does not fit. Times
are absolute seconds on the caller's clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy

from models.planning.cells import Cell, cells_of, slurm_order
from models.planning.forward import Entry, Until, roll
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
# So many starts are simulated again; what is older stays as it was taken for.
MOST_AGAIN = 2_000
# So many starts of tasks are simulated ahead.
FORESEEN_STARTS = 670
SHORTEST_S = 1.0

Phase = Literal["waits", "runs", "ended"]


class Seen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A record as it really is: in which phase, and of how many `tasks` that wait; else as of Pending.

    `run_s` is how long it ran, where it has ended, else how long it is expected to run in all, and `ran_s` how long it
    has run, by what is known now.
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
    ran_s: float = 0.0
    tasks: int = 1
    out: bool = False


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A task that runs in the shadow; it certainly runs `ran_s`, which is `run_s` where it really has ended."""

    job_id: int
    start_s: float
    parts: Parts
    limit_s: float
    run_s: float
    ran_s: float

    @property
    def end_s(self) -> float:
        """Return when it ends, as far as is known."""
        return self.start_s + min(self.run_s, self.limit_s)

    @property
    def certain_s(self) -> float:
        """Return until when it is known what becomes of it."""
        return math.inf if self.ran_s >= self.run_s else self.start_s + min(self.ran_s, self.limit_s)


class Begun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of a record that had so many tasks when it was first seen to wait: when those started that did in the shadow."""

    tasks: int
    starts_s: tuple[float, ...] = ()


class Shadow(msgspec.Struct, frozen=True, kw_only=True):
    """What would be without us at a moment; `nodes` are the machines by name, `pools` what the numbers of pools mean.

    `came` are records that came after that moment, `longest_s` has the longest wait of each of the last days.
    """

    time_s: float
    seen_s: float
    nodes: tuple[str, ...]
    pools: str
    waiting: tuple[Seen, ...]
    running: tuple[Task, ...]
    begun: dict[int, Begun]
    longest_s: dict[int, float] = {}
    came: tuple[Seen, ...] = ()


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster now: machines by name, what they lack for a time (from now), and what the numbers of pools mean."""

    machines: tuple[Machine, ...]
    nodes: tuple[str, ...]
    pools: str = ""
    windows: tuple[Window, ...] = ()


class Start(NamedTuple):
    """A task of a record that starts in the shadow."""

    record: Seen
    at_s: float
    parts: Parts


def begun_anew(site: Site, now_s: float, seen: Iterable[Seen], running: Sequence[Holding]) -> Shadow:
    """Return the shadow that is the real queue."""
    waiting = _first([one for one in seen if one.phase == "waits"], MOST_WAITING)
    tasks = [
        Task(
            job_id=held.job_id,
            start_s=now_s - held.ran_s,
            parts=held.parts,
            limit_s=held.ran_s + held.limit_left_s,
            run_s=held.ran_s + held.likely_left_s,
            ran_s=held.ran_s,
        )
        for held in running
    ]
    return Shadow(
        time_s=now_s,
        seen_s=now_s,
        nodes=site.nodes,
        pools=site.pools,
        waiting=tuple(waiting),
        running=tuple(tasks),
        begun={one.job_id: Begun(tasks=one.tasks) for one in waiting},
    )


def usable(shadow: Shadow | None, site: Site, now_s: float) -> bool:
    """Whether a shadow may be passed on: not from the future, not too old, of these nodes and pools."""
    return (
        shadow is not None
        and 0 <= now_s - shadow.seen_s <= OLDEST_S
        and (shadow.nodes, shadow.pools) == (site.nodes, site.pools)
    )


def passed_on(shadow: Shadow, site: Site, now_s: float, seen: Sequence[Seen]) -> tuple[Shadow, Shadow]:
    """Return the shadow as far as it is certain what would have been, and as it is expected to be now.

    `seen` is all that waits or runs, and what ended since the last time. What waited and is not seen any more was taken
    back by its user. The first is what is to be passed on the next time: from its moment on all is simulated again,
    by what is known then; but no more than MOST_AGAIN starts.
    """
    known = learned(shadow, seen)
    records = (*known.waiting, *known.came)
    starts = _starts(known, records, site, now_s)
    tasks = [*known.running, *(_task(start) for start in starts)]
    certain_s = min([now_s, *(task.certain_s for task in tasks)])
    if len(starts) > MOST_AGAIN:
        certain_s = max(certain_s, starts[-MOST_AGAIN].at_s)
    certain_s = max(certain_s, known.time_s)
    really = {one.job_id for one in seen if one.phase == "waits"}
    certain, now = (_at(known, records, tasks, starts, at_s, really) for at_s in (certain_s, now_s))
    return msgspec.structs.replace(certain, seen_s=now_s), now


def _at(
    known: Shadow,
    records: Sequence[Seen],
    tasks: Sequence[Task],
    starts: Sequence[Start],
    at_s: float,
    really: Collection[int],
) -> Shadow:
    """Return the shadow at a moment; `really` are the records that wait now."""
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


def learned(shadow: Shadow, seen: Sequence[Seen]) -> Shadow:
    """Return a shadow of the same moment that knows what is seen now: of runs, priorities, who came and who left."""
    of = {one.job_id: one for one in seen}
    older = _older(shadow, of)
    running = tuple(
        msgspec.structs.replace(task, run_s=of[task.job_id].run_s, ran_s=of[task.job_id].ran_s)
        if task.job_id in of
        else task
        for task in shadow.running
    )
    known = msgspec.structs.replace(
        shadow,
        waiting=tuple(_learned(shadow.waiting, of, older)),
        came=tuple(_learned(shadow.came, of, older)),
        running=running,
    )
    return msgspec.structs.replace(known, came=(*known.came, *_new(known, seen)))


def _learned(records: Iterable[Seen], of: Mapping[int, Seen], older: int) -> Iterator[Seen]:
    for one in records:
        now = of.get(one.job_id)
        if now is None and one.phase == "waits":
            continue
        now = now or one
        priority = one.priority + older if now is one or now.phase != "waits" else now.priority
        yield msgspec.structs.replace(
            one, phase=now.phase, run_s=now.run_s, ran_s=now.ran_s, out=now.out, priority=priority
        )


def _older(shadow: Shadow, of: Mapping[int, Seen]) -> int:
    """Return by how many points those who really wait grew older: by as many who does so in the shadow alone."""
    grown = [
        of[one.job_id].priority - one.priority
        for one in (*shadow.waiting, *shadow.came)
        if one.phase == "waits" and one.job_id in of and of[one.job_id].phase == "waits"
    ]
    return int(numpy.median(grown)) if grown else 0


def _new(shadow: Shadow, seen: Sequence[Seen]) -> list[Seen]:
    """Return who has come since the shadow was last passed on, or came back; of many those that are first."""
    there = {one.job_id for one in (*shadow.waiting, *shadow.came)} | {one.job_id for one in shadow.running}
    there |= {job_id for job_id, one in shadow.begun.items() if one.starts_s}
    found = [
        # Who is not known though he came before then came back, or was not let in.
        one if one.came_s > shadow.seen_s else msgspec.structs.replace(one, came_s=shadow.seen_s)
        for one in seen
        if one.job_id not in there and (one.phase == "waits" or one.came_s > shadow.seen_s)
    ]
    return _first(found, max(0, MOST_WAITING - len(shadow.waiting) - len(shadow.came)))


def _first(records: list[Seen], most: int) -> list[Seen]:
    if len(records) <= most:
        return records
    return sorted(records, key=lambda one: (-one.tier, -one.priority, one.job_id))[:most]


def _task(start: Start) -> Task:
    record = start.record
    return Task(
        job_id=record.job_id,
        start_s=start.at_s,
        parts=start.parts,
        limit_s=record.limit_s,
        run_s=record.run_s,
        ran_s=record.ran_s,
    )


def _problem(shadow: Shadow, records: Sequence[Seen], site: Site) -> Problem:
    """Return what waits, or comes, and runs in a shadow as a plan would see it."""
    from_s = shadow.time_s
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


def _starts(shadow: Shadow, records: Sequence[Seen], site: Site, to_s: float) -> list[Start]:
    """Return what starts from the shadow's moment to another, in the order of time."""
    from_s = shadow.time_s
    problem = _problem(shadow, records, site)
    places = places_of(slurm_order(problem.pending)).tolist()
    found: list[Start] = []
    for cell in cells_of(problem):
        entries = [
            Entry(at, cell.needs[at], places[at], records[at].run_s, max(0.0, records[at].came_s - from_s))
            for at in cell.active
        ]
        ends_s = numpy.array([held.likely_left_s for held in cell.running])
        rolled = roll(cell, entries, ends_s, Until(until_s=to_s - from_s))
        found += [
            Start(records[number], from_s + at_s, parts)
            for number, at_s, parts in zip(rolled.numbers, rolled.starts_s, rolled.parts, strict=True)
        ]
    return sorted(found, key=lambda start: start.at_s)


def foreseen(now: Shadow, site: Site, horizon_s: float, tasks: Mapping[int, int]) -> dict[int, float]:
    """Return when records start without us: when they did, or will by what is known now, where that is seen.

    `tasks` has how many tasks of each really wait: of an array the next one counts.
    """
    found: dict[int, float] = {}
    for job_id, one in now.begun.items():
        begun = one.tasks - tasks.get(job_id, one.tasks)
        if begun < len(one.starts_s):
            found[job_id] = one.starts_s[max(0, begun)]
    problem = _problem(now, now.waiting, site)
    cells: list[Cell] = cells_of(problem)
    if not cells:
        return found
    waits = max(1, len(now.waiting))
    untils = [
        Until(until_s=horizon_s, most_starts=max(1, FORESEEN_STARTS * len(cell.active) // waits))
        for cell in cells
    ]
    outlook = look_ahead(
        cells, places_of(slurm_order(problem.pending)), likely_future(problem, cells), untils
    )
    for record, start_s in zip(now.waiting, outlook.first_s.tolist(), strict=True):
        if record.job_id in tasks and math.isfinite(start_s):
            found.setdefault(record.job_id, now.time_s + start_s)
    return found


def longest_wait_s(now: Shadow) -> float:
    """Return the longest that anybody has waited without us in the last days, or waits by now."""
    waits = (now.time_s - one.came_s for one in now.waiting if not one.out)
    return max((*now.longest_s.values(), *waits), default=0.0)
