"""What waits and what runs at a moment of a simulation; the rounds read it and start jobs through it.

It keeps the books and decides nothing.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice

import msgspec
import numpy

from models.scheduling.availability import Availability
from models.scheduling.backfill import Claim, Ending, Promise, Wish
from models.scheduling.ordering import Ordering, Waiting
from models.scheduling.placement import Placement, fits_equal, place_equal
from models.scheduling.room import Amounts, Ints, Mask, Parts, Room, amounts_of, exceeds
from models.simulation.devices import Devices
from models.simulation.queue import GROUP, Queue

# Jobs of one kind may use the same: all that is free, or what is also free next to the promise. With windows there
# are twice as many kinds for each group of users and each number of windows that may begin before the job has ended.
NOW, BESIDE = range(2)


class Running(msgspec.Struct, gc=False):
    """A running job: when it started and where; when it is expected to end, and how often it outran that.

    `latest_s` is when its limit ends it.
    """

    start_s: float
    parts: Parts
    expected_end_s: float
    latest_s: float
    outrun: int = 0


class State:
    """The cluster between two events. `released` says that something was given back since the last round.

    `stale` says that running jobs are expected to end at other times than those on which the promise rests.
    """

    def __init__(
        self,
        room: Room,
        ordering: Ordering,
        placement: Placement,
        started: Callable[[int, Parts], None],
        windows: Availability | None,
        passed_over: Callable[[int], bool] | None = None,
    ) -> None:
        self.room = room
        self.windows = windows
        self.ordering = ordering
        self.placement = placement
        self.place = placement.place
        self._started = started
        self._passed_over = passed_over
        self.queue = Queue(len(room.total))
        self.lanes: dict[int, Queue] = {}
        self.waiting: dict[int, Waiting] = {}
        self.running: dict[int, Running] = {}
        # Running jobs, in the order of their expected ends.
        self.endings: list[Ending] = []
        self.user_used: dict[int, Amounts] = {}
        self.released = True
        # The promise has to be computed anew.
        self.stale = True
        self.arrived = False
        # Users with waiting jobs: those whose first job may fit, and those whose first job cannot until something is
        # given back.
        self.ready: set[int] = set()
        self.blocked: set[int] = set()
        self.promise_of = -1
        self.promise: Promise | None = None
        self._usable: dict[int, Room] = {}
        # Used only by a round by deadlines.
        self.devices: Devices | None = None

    def enqueue(self, job: Waiting, alike: int = 1) -> None:
        """Let a job wait, or several that are alike, with consecutive numbers from the job's own."""
        for number in range(job.number, job.number + alike):
            self.waiting[number] = job
        queue = self.queue
        if self.ordering.fair:
            queue = self.lanes.setdefault(job.user, Queue())
            if job.user not in self.blocked:
                self.ready.add(job.user)
        group = self.windows.group_of.get(job.user, 0) if self.windows else 0
        queue.add(job, self.ordering.key(job), group, alike)
        self.arrived = True

    def kinds(self, queue: Queue, hits: Ints, now_s: float) -> Ints:
        """Return the kind of each of these jobs, not restricted to what is free next to the promise."""
        if self.windows is None:
            return numpy.zeros(len(hits), dtype=numpy.int64)
        moments = numpy.array([shortage.at_s for shortage in self.windows.ahead])
        passed = moments.searchsorted(now_s + queue.limit_s[hits])
        kinds: Ints = 2 * (queue.ints[GROUP, hits] * (len(moments) + 1) + passed)
        return kinds

    def kind(self, queue: Queue, position: int, now_s: float) -> int:
        """Return the kind of a job."""
        return int(self.kinds(queue, numpy.array([position]), now_s)[0]) if self.windows else NOW

    def usable(self, kind: int) -> Room:
        """Return what a kind of jobs may use of what is free now."""
        if kind == NOW and self.windows is None:
            return self.room
        if kind not in self._usable:
            self._usable[kind] = self._bounded(kind)
        return self._usable[kind]

    def _bounded(self, kind: int) -> Room:
        bounds = self.bounds(kind)
        return self.room.within(*bounds) if bounds else self.room

    def bounds(self, kind: int) -> list[Room]:
        """Return the rooms that bound a kind of jobs, in addition to what is free now."""
        bounds = []
        if kind % 2 == BESIDE and self.promise is not None:
            bounds.append(self.promise.beside)
        if self.windows is not None:
            group, passed = divmod(kind // 2, len(self.windows.ahead) + 1)
            bounds += [shortage.room for shortage in self.windows.ahead[:passed]]
            bounds += self.windows.bounds_of(group)
        return bounds

    def holds(self, kind: int, node: int, demand: Amounts) -> bool:
        """Whether a node has a demand free for a kind of jobs."""
        rooms = (self.room, *self.bounds(kind))
        return not any(exceeds(demand, amounts_of(room.free[:, node])) for room in rooms)

    @property
    def changes_at_s(self) -> float:
        """Return when the next window begins or ends; infinite: never."""
        return self.windows.coming[0].end_s if self.windows and self.windows.coming else math.inf

    def pass_to(self, now_s: float) -> None:
        """Let the windows begin and end that do so by now."""
        if self.windows is not None:
            self.released |= self.windows.pass_to(now_s, self.room)
            self._usable.clear()
            self.stale = True
            if not (self.windows.coming or self.windows.lasts):
                self.windows = None

    def owner_comes(self, node: int, amounts: Amounts) -> None:
        """Take a node, on which nothing runs, for its owner."""
        self.room.take(((node, amounts),))
        self._changed()

    def owner_goes(self, node: int, amounts: Amounts) -> None:
        """Give back a node that its owner has left."""
        self.room.give(((node, amounts),))
        self._changed()

    def _changed(self) -> None:
        self.released = self.stale = True
        self._usable.clear()

    def passes_over(self, number: int) -> bool:
        """Whether a job may not start whatever is free: it no longer waits, and has to be removed from its queue."""
        return self._passed_over is not None and self._passed_over(number)

    def start(self, queue: Queue, position: int, parts: Parts, *, beside: bool = False) -> None:
        """Start a waiting job here, `beside` the promise if it outlasts that."""
        number = queue.number(position)
        queue.remove(position)
        self.launch(number, parts, beside=beside)

    def launch(self, number: int, parts: Parts, *, beside: bool = False) -> None:
        """Start a job that the caller removes from its queue."""
        self._usable.clear()
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
        if self.windows is not None:
            self.windows.take(running.parts, running.latest_s)

    def begin(self, running: Mapping[int, Running], endings: Sequence[Ending]) -> None:
        """Note what runs already, and is already taken from room and windows; `endings` are its ends, sorted."""
        self.running, self.endings = dict(running), list(endings)

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
        if self.windows is not None:
            self.windows.give(running.parts, running.latest_s)
        self._use(user, demand, -1)
        self.released = True
        return running

    def changes(self) -> Iterable[Ending]:
        """Return the ends of running jobs and the changes by windows, in order of time."""
        coming = self.windows.coming if self.windows else ()
        if not coming:
            return self.endings
        first = bisect_left(self.endings, coming[0])
        return chain(islice(self.endings, first), heapq.merge(islice(self.endings, first, None), coming))

    def claim(self, queue: Queue, position: int) -> Claim | None:
        """Return what a job may use of rooms of the future, None: all."""
        if self.windows is None:
            return None
        return self.windows.claim(float(queue.limit_s[position]), int(queue.ints[GROUP, position]))

    def wish(self, queue: Queue, position: int) -> Wish:
        """Return a job as backfill sees it."""
        return Wish(
            queue.demand(position),
            float(queue.run_s[position]),
            self.claim(queue, position),
            queue.nodes(position),
        )

    def place_at(self, queue: Queue, position: int, room: Room) -> Parts | None:
        """Return where in a room a job goes, None: it waits."""
        nodes = queue.nodes(position)
        demand = queue.demand(position)
        return place_equal(room, demand, nodes) if nodes > 1 else self.place(room, demand)

    def place_first(self, room: Room, now_s: float) -> Parts | None:
        """Return where in a room, and within the windows, the first job of the queue goes, None: it waits."""
        bounds = self.bounds(self.kind(self.queue, 0, now_s))
        return self.place_at(self.queue, 0, room.within(*bounds) if bounds else room)

    def fits(self, room: Room, demands: Ints, nodes: Ints) -> Mask:
        """Return which demands (resources × jobs, on `nodes` nodes each) could be placed, each by itself."""
        if int(nodes.max(initial=1)) > 1:
            return fits_equal(room, demands, nodes)
        return self.placement.fits(room, demands)

    def promised(self, number: int, promise: Promise | None) -> None:
        """Note when the first job is to start."""
        self.promise_of, self.promise = number, promise
        self._usable.clear()

    def _forget_end(self, number: int, expected_s: float, end_s: float) -> None:
        ending = self.endings.pop(bisect_left(self.endings, (expected_s, number)))
        self._usable.clear()
        self.stale = self.stale or self.promise is None or not self.promise.holds(ending, end_s)

    def _use(self, user: int, demand: Amounts, sign: int) -> None:
        if self.ordering.fair:
            used = self.user_used.get(user, (0, 0, 0))
            self.user_used[user] = (
                used[0] + sign * demand[0],
                used[1] + sign * demand[1],
                used[2] + sign * demand[2],
            )
