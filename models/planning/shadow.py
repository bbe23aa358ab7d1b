"""The shadow: the queue as it would be if we had never moved anything. What it is made of and what it learns. Pure.

Jobs come when they really came. They run as long as they really ran if they have ended by now, else as long as is
expected by now. shadow_rolling.py starts them. A shadow is a value that a file can hold. It begins anew from the real
queue if there is none, or none that is usable. Times are absolute seconds on the caller's clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
import numpy

from models.planning.ledger import CONTINUOUS, Clock, Dues, Elsewhere, Limits
from models.planning.problem import Holding, Machine
from models.scheduling.availability import Window
from models.scheduling.room import Amounts, Parts

# In longer queues, later records are let in once there is room: nothing considers them before.
MOST_WAITING = 20_000
# A shadow that was left alone for this long begins anew: what came and went since is not known.
OLDEST_S = 6 * 3600.0

Phase = Literal["waits", "runs", "ended"]


class Seen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A record as it really is: its phase, and how many of its `tasks` wait; the rest is as in Pending.

    `run_s` is how long it ran if it has ended, else how long it is expected to run in all; `ran_s` is how long it has
    run so far, as far as is known now.
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
    dues: Dues = ()


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A task that runs in the shadow; it certainly runs for `ran_s`, which equals `run_s` if it has really ended."""

    job_id: int
    start_s: float
    parts: Parts
    limit_s: float
    run_s: float
    ran_s: float
    dues: Dues = ()

    @property
    def end_s(self) -> float:
        """Return when it ends, as far as is known."""
        return self.start_s + min(self.run_s, self.limit_s)

    @property
    def certain_s(self) -> float:
        """Return until when it is certain what becomes of it."""
        return math.inf if self.ran_s >= self.run_s else self.start_s + min(self.ran_s, self.limit_s)


class Begun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The starts in the shadow of a record's tasks, and how many tasks it had when it was first seen to wait."""

    tasks: int
    starts_s: tuple[float, ...] = ()


class Shadow(msgspec.Struct, frozen=True, kw_only=True):
    """What would be without us at `time_s`.

    `nodes` are the machines by name; `pools` tells what the numbers of pools, and the rows of GPU types, mean. `came`
    are records that came after that moment. `longest_s` has the longest wait of each of the last days.
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
    """The cluster now: machines by name, what they lack for a time (from now), and what the numbers of pools mean.

    `bounds`, `limits`, `elsewhere` and `clock` are as in Problem.
    """

    machines: tuple[Machine, ...]
    nodes: tuple[str, ...]
    pools: str = ""
    windows: tuple[Window, ...] = ()
    bounds: int = 0
    limits: Limits = {}
    elsewhere: tuple[Elsewhere, ...] = ()
    clock: Clock = CONTINUOUS


def begun_anew(site: Site, now_s: float, seen: Iterable[Seen], running: Sequence[Holding]) -> Shadow:
    """Return a shadow that equals the real queue."""
    waiting = _first([one for one in seen if one.phase == "waits"], MOST_WAITING)
    tasks = [
        Task(
            job_id=held.job_id,
            start_s=now_s - held.ran_s,
            parts=held.parts,
            limit_s=held.ran_s + held.limit_left_s,
            run_s=held.ran_s + held.likely_left_s,
            ran_s=held.ran_s,
            dues=held.dues,
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
    """Whether a shadow may be passed on: not from the future, not too old, and of these pools."""
    return shadow is not None and 0 <= now_s - shadow.seen_s <= OLDEST_S and shadow.pools == site.pools


def on_nodes(shadow: Shadow, nodes: tuple[str, ...]) -> Shadow:
    """Return a shadow on the nodes that there are now; what runs on other nodes is dropped."""
    if shadow.nodes == nodes:
        return shadow
    place = {name: number for number, name in enumerate(nodes)}
    tasks = []
    for task in shadow.running:
        parts = tuple(
            (place[shadow.nodes[at]], amounts) for at, amounts in task.parts if shadow.nodes[at] in place
        )
        if parts:
            tasks.append(msgspec.structs.replace(task, parts=parts))
    return msgspec.structs.replace(shadow, nodes=nodes, running=tuple(tasks))


def learned(shadow: Shadow, now_s: float, seen: Sequence[Seen]) -> Shadow:
    """Return a shadow of the same moment that knows what is seen now: run times, priorities, who came and who left.

    What ran and is not seen any more is taken to have ended about in the middle of the time since.
    """
    since_s = (now_s - shadow.seen_s) / 2
    of = {one.job_id: one for one in seen}
    older = _older(shadow, of)
    known = msgspec.structs.replace(
        shadow,
        waiting=tuple(_learned(shadow.waiting, of, older, since_s)),
        came=tuple(_learned(shadow.came, of, older, since_s)),
        running=tuple(_still(task, of, since_s) for task in shadow.running),
    )
    return msgspec.structs.replace(known, came=(*known.came, *_new(known, seen)))


def _still(task: Task, of: Mapping[int, Seen], since_s: float) -> Task:
    """Return what is known of a task that runs in the shadow."""
    now = of.get(task.job_id)
    if task.certain_s == math.inf:
        return task
    if now:
        return msgspec.structs.replace(task, run_s=now.run_s, ran_s=now.ran_s)
    # It has ended, or was cancelled before it began, so nothing better will be known of it.
    run_s = task.ran_s + since_s if task.ran_s else task.run_s
    return msgspec.structs.replace(task, run_s=run_s, ran_s=run_s)


def _learned(records: Iterable[Seen], of: Mapping[int, Seen], older: int, since_s: float) -> Iterator[Seen]:
    for one in records:
        now = of.get(one.job_id)
        if now is None and one.phase == "waits":
            continue
        if now is None and one.phase == "runs":
            run_s = one.ran_s + since_s
            now = msgspec.structs.replace(one, phase="ended", run_s=run_s, ran_s=run_s)
        now = now or one
        # A running record is reported with where it runs; where it might run stays as it was while it waited.
        waits = now.phase == "waits"
        yield msgspec.structs.replace(
            one,
            phase=now.phase,
            run_s=now.run_s,
            ran_s=now.ran_s,
            out=now.out,
            priority=now.priority if waits else one.priority + older,
            pools=now.pools if waits else one.pools,
            dues=now.dues if waits else one.dues,
        )


def _older(shadow: Shadow, of: Mapping[int, Seen]) -> int:
    """Return by how many points (median) records that really wait grew older.

    Records that wait only in the shadow grow by as many.
    """
    grown = [
        of[one.job_id].priority - one.priority
        for one in (*shadow.waiting, *shadow.came)
        if one.phase == "waits" and one.job_id in of and of[one.job_id].phase == "waits"
    ]
    return int(numpy.median(grown)) if grown else 0


def _new(shadow: Shadow, seen: Sequence[Seen]) -> list[Seen]:
    """Return the records that came, or came back, since the shadow was last passed on; of many, the first."""
    there = {one.job_id for one in (*shadow.waiting, *shadow.came)} | {one.job_id for one in shadow.running}
    there |= {job_id for job_id, one in shadow.begun.items() if one.starts_s}
    found = [
        # A record that came before then but is not known came back, or had not been let in.
        one if one.came_s > shadow.seen_s else msgspec.structs.replace(one, came_s=shadow.seen_s)
        for one in seen
        if one.job_id not in there and (one.phase == "waits" or one.came_s > shadow.seen_s)
    ]
    return _first(found, max(0, MOST_WAITING - len(shadow.waiting) - len(shadow.came)))


def _first(records: list[Seen], most: int) -> list[Seen]:
    if len(records) <= most:
        return records
    return sorted(records, key=lambda one: (-one.tier, -one.priority, one.job_id))[:most]
