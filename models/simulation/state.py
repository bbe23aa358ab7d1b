"""What waits and what runs at a moment of a simulation; the rounds read it and start jobs through it.

It keeps the books and decides nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

import msgspec

from models.scheduling.backfill import Ending, Promise
from models.scheduling.ordering import Ordering, Waiting
from models.scheduling.placement import Placement
from models.scheduling.room import Amounts, Parts, Room
from models.simulation.queue import Queue


class Running(msgspec.Struct, gc=False):
    """A running job: when it started and where; when it is expected to end, and how often it outran that."""

    start_s: float
    parts: Parts
    expected_end_s: float
    outrun: int = 0


class State:
    """The cluster between two events. `released` says that something was given back since the last round."""

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
        self._ends: list[tuple[float, int]] = []
        self.user_used: dict[int, Amounts] = {}
        self.released = True
        self.arrived = False
        # Users with waiting jobs: whose first one may fit, and whose does not until something is given back.
        self.ready: set[int] = set()
        self.blocked: set[int] = set()
        self.promise_of = -1
        self.promise: Promise | None = None

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

    def start(self, queue: Queue, position: int, parts: Parts, room: Room | None = None) -> None:
        """Start a waiting job here, and take its part of another room too."""
        number = queue.number(position)
        queue.remove(position)
        self.room.take(parts)
        if room is not None:
            room.take(parts)
        job = self.waiting.pop(number)
        self._use(job.user, job.demand, 1)
        self._started(number, parts)

    def run(self, number: int, running: Running) -> None:
        """Note that a job runs."""
        self.running[number] = running
        insort(self._ends, (running.expected_end_s, number))

    def expect(self, number: int, end_s: float) -> None:
        """Expect a running job to end at another time."""
        running = self.running[number]
        self._forget_end(number, running.expected_end_s)
        running.expected_end_s = end_s
        running.outrun += 1
        insort(self._ends, (end_s, number))
        self.released = True

    def end(self, number: int, user: int, demand: Amounts) -> Running:
        """Give back what a job had."""
        running = self.running.pop(number)
        self._forget_end(number, running.expected_end_s)
        self.room.give(running.parts)
        self._use(user, demand, -1)
        self.released = True
        return running

    def _forget_end(self, number: int, end_s: float) -> None:
        del self._ends[bisect_left(self._ends, (end_s, number))]

    def _use(self, user: int, demand: Amounts, sign: int) -> None:
        if self.ordering.fair:
            used = self.user_used.get(user, (0, 0, 0))
            self.user_used[user] = (
                used[0] + sign * demand[0],
                used[1] + sign * demand[1],
                used[2] + sign * demand[2],
            )

    def endings(self) -> Iterator[Ending]:
        """Yield what runs, in the order of its expected ends."""
        for end_s, number in self._ends:
            yield Ending(end_s, self.running[number].parts)
