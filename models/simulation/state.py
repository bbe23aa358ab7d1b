"""What waits and what runs at a moment of a simulation; the rounds read it and start jobs through it.

It keeps the books and decides nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

import msgspec

from models.scheduling.backfill import Ending, Promise
from models.scheduling.ordering import Ordering, Waiting
from models.scheduling.placement import Placement
from models.scheduling.room import Amounts, Parts, Room
from models.simulation.queue import Queue

# The rooms that a job may be placed in: what is free, and what is free beside the promise too.
NOW, BESIDE = range(2)


class Running(msgspec.Struct, gc=False):
    """A running job: when it started and where; when it is expected to end, and how often it outran that."""

    start_s: float
    parts: Parts
    expected_end_s: float
    outrun: int = 0


class State:
    """The cluster between two events. `released` says that something was given back since the last round.

    `stale` says that what runs is expected to end at other times than the promise rests on.
    """

    def __init__(
        self, room: Room, ordering: Ordering, placement: Placement, started: Callable[[int, Parts], None]
    ) -> None:
        self.room = room
        self.ordering = ordering
        self.placement = placement
        self.place = placement.place
        self._started = started
        self.queue = Queue()
        self.lanes: dict[int, Queue] = {}
        self.waiting: dict[int, Waiting] = {}
        self.running: dict[int, Running] = {}
        # What runs, in the order of its expected ends.
        self.endings: list[Ending] = []
        self.user_used: dict[int, Amounts] = {}
        self.released = True
        # The promise has to be worked out anew.
        self.stale = True
        self.arrived = False
        # Users with waiting jobs: whose first one may fit, and whose does not until something is given back.
        self.ready: set[int] = set()
        self.blocked: set[int] = set()
        self.promise_of = -1
        self.promise: Promise | None = None
        self._common: Room | None = None

    def enqueue(self, job: Waiting) -> None:
        """Let a job wait."""
        self.waiting[job.number] = job
        queue = self.queue
        if self.ordering.fair:
            queue = self.lanes.setdefault(job.user, Queue())
            if job.user not in self.blocked:
                self.ready.add(job.user)
        queue.add(job.number, self.ordering.key(job), job.demand, job.predicted_s)
        self.arrived = True

    def usable(self, kind: int) -> Room:
        """Return what is free now, or what of it is free beside the promise too."""
        if kind == NOW or self.promise is None:
            return self.room
        if self._common is None:
            self._common = self.room.within(self.promise.beside)
        return self._common

    def start(self, queue: Queue, position: int, parts: Parts, *, beside: bool = False) -> None:
        """Start a waiting job here, `beside` the promise if it outlasts that."""
        number = queue.number(position)
        queue.remove(position)
        self._common = None
        self.room.take(parts)
        if number == self.promise_of:
            self.promised(-1, None)
        elif beside and self.promise is not None:
            self.promise.beside.take(parts)
        job = self.waiting.pop(number)
        self._use(job.user, job.demand, 1)
        self._started(number, parts)

    def run(self, number: int, running: Running) -> None:
        """Note that a job runs."""
        self.running[number] = running
        insort(self.endings, Ending(running.expected_end_s, number, running.parts))

    def expect(self, number: int, end_s: float) -> None:
        """Expect a running job to end at another time."""
        running = self.running[number]
        self._forget_end(number, running.expected_end_s, end_s)
        running.expected_end_s = end_s
        running.outrun += 1
        insort(self.endings, Ending(end_s, number, running.parts))

    def end(self, number: int, user: int, demand: Amounts, now_s: float) -> Running:
        """Give back what a job had."""
        running = self.running.pop(number)
        self._forget_end(number, running.expected_end_s, now_s)
        self.room.give(running.parts)
        self._use(user, demand, -1)
        self.released = True
        return running

    def promised(self, number: int, promise: Promise | None) -> None:
        """Note when the first job is to start."""
        self.promise_of, self.promise, self._common = number, promise, None

    def _forget_end(self, number: int, expected_s: float, end_s: float) -> None:
        ending = self.endings.pop(bisect_left(self.endings, (expected_s, number)))
        self._common = None
        self.stale = self.stale or self.promise is None or not self.promise.holds(ending, end_s)

    def _use(self, user: int, demand: Amounts, sign: int) -> None:
        if self.ordering.fair:
            used = self.user_used.get(user, (0, 0, 0))
            self.user_used[user] = (
                used[0] + sign * demand[0],
                used[1] + sign * demand[1],
                used[2] + sign * demand[2],
            )
