"""A cell rolled forward from now in a given order: when what waits would start. Pure; equal input gives equal starts.

It uses the simulator's own queue, state and round of EASY (models/simulation), but begins with jobs that already run.
Slurm's decisions see the users' time limits; the real ends are given. At most DEPTH tasks are considered, like
Slurm's bf_max_job_test, and at most AT_ONCE tasks of an array at a time. Decides nothing: callers choose the order.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy

from models.planning.cells import Cell, Need
from models.planning.ledger import Due, Dues, Elsewhere, Ledger, Parked
from models.planning.preempting import Yielding
from models.scheduling.ordering import FIFO, Waiting
from models.scheduling.placement import WHOLE
from models.scheduling.room import Floats, Parts, Room
from models.simulation.queue import NUMBER
from models.simulation.rounds import easy, start_first
from models.simulation.state import Running, State

DEPTH = 500
AT_ONCE = 32
# The first of the places that come before all others.
FIRST = -1e9


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A record that comes at `at_s` (seconds from now) to a place (less is first), and runs for `run_s`."""

    number: int
    need: Need
    place: float
    run_s: float
    at_s: float = 0.0


class Until(msgspec.Struct, frozen=True, kw_only=True):
    """When a rollout ends: at `until_s`; from `enough_s` on, once all of `must` started; or after `most_starts`.

    `most_starts` bounds the work; a rollout that ends by it has seen less than the horizon.
    """

    until_s: float = math.inf
    enough_s: float = math.inf
    must: frozenset[int] = frozenset()
    most_starts: int = 1_000_000


class Rolled(msgspec.Struct, frozen=True, kw_only=True):
    """The starts of tasks, in order: of which record (its number), when (seconds) and where; and how far it looked."""

    numbers: tuple[int, ...]
    starts_s: tuple[float, ...]
    parts: tuple[Parts, ...]
    until_s: float


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that is to be rolled forward: what may start, and how far to look.

    `ends_s` are the ends of what runs, in the cell's order. From its time in `first_from_s` on (seconds), a record
    comes first; several such stay in the order of `entries`. Events are seen at multiples of `grid_s` (seconds; 0: at
    once).
    """

    cell: Cell
    entries: Sequence[Entry]
    ends_s: Floats
    until: Until
    first_from_s: Mapping[int, float] = {}
    grid_s: float = 0.0


class Rollout:
    """The loop of one cell; others call `roll_all` (side_by_side.py). `next_s` is when it has to look again."""

    def __init__(self, course: Course, ledger: Ledger, elsewhere: Sequence[Elsewhere]) -> None:
        cell, entries, first_from_s = course.cell, course.entries, course.first_from_s
        self.total = cell.total
        self.grid_s = course.grid_s
        self.until = course.until
        beginning = cell.beginning
        windows = beginning.windows.copy() if beginning.windows else None
        room = Room(cell.free.copy(), self.total)
        passed_over = self._passed_over if cell.counts_for else None
        self.state = State(room, FIFO, WHOLE, self._started, windows, passed_over)
        self.state.begin(beginning.running, beginning.endings)
        self.state.pass_to(0.0)
        self.now_s = 0.0
        ends_s = numpy.minimum(course.ends_s, beginning.limits_s)
        in_order = numpy.argsort(ends_s, kind="stable")
        # A sorted list is a heap.
        self.ends = list(zip(ends_s[in_order].tolist(), in_order.tolist(), strict=True))
        self.next_task = len(beginning.running)
        # The record of each task that waits.
        self.record_of: dict[int, int] = {}
        self.entries = {entry.number: entry for entry in entries}
        self.places = {entry.number: entry.place for entry in entries}
        self.left = {entry.number: entry.need.tasks for entry in entries}
        # How many tasks of a record are in the queue.
        self.let_in: dict[int, int] = {}
        self.ahead = sorted((entry.place, entry.number) for entry in entries if entry.at_s <= 0)
        self.arrivals = sorted((-entry.at_s, entry.number) for entry in entries if entry.at_s > 0)
        in_turn = enumerate(entry.number for entry in entries if entry.number in first_from_s)
        self.promotions = sorted((-first_from_s[number], -turn, number) for turn, number in in_turn)
        self.frontier = -math.inf
        self.numbers: list[int] = []
        self.starts_s: list[float] = []
        self.parts: list[Parts] = []
        self.awaited = set(course.until.must)
        self.yielding = yielding_of(cell) if cell.preempts else None
        self.ledger = ledger
        # What each running task counts for limits, and when those that started here began; what runs elsewhere,
        # latest end first (so the next end is popped from the back); and the records that wait for a limit.
        self.dues = {task: held.dues for task, held in enumerate(cell.running) if held.dues}
        self.begun_s: dict[int, float] = {}
        self.held = cell.running
        self.elsewhere = [*reversed(elsewhere)]
        self.parked = Parked(ledger)
        # The rollouts with which this one shares limits, itself included; and whether an end in one of them may let a
        # job start here.
        self.peers: Sequence[Rollout] = (self,)
        self.woken = False
        self.next_s = self.seen_s = 0.0
        self.over = False
        self._promote()

    @property
    def rolled(self) -> Rolled:
        """What has started."""
        return Rolled(
            numbers=tuple(self.numbers),
            starts_s=tuple(self.starts_s),
            parts=tuple(self.parts),
            until_s=self.seen_s,
        )

    @property
    def foremost(self) -> float:
        """The first place of any job that might start."""
        own = float(self.state.queue.keys[0]) if len(self.state.queue) else math.inf
        return min(own, self.ahead[0][0]) if self.ahead else own

    def look(self) -> None:
        """Start what may start now, unless the rollout is over, and find when something happens next."""
        self.woken = False
        until = self.until
        if not self.over and self.now_s <= until.until_s:
            self._rounds()
            self.next_s = self._next_s()
            worked = len(self.starts_s) >= until.most_starts
            self.seen_s = self.now_s if worked else min(self.next_s, until.until_s)
            # A record that waits for a limit which other cells also use may be released when their jobs end.
            idle = self.next_s == math.inf and bool(self.parked) and len(self.peers) > 1
            enough = self.next_s > min(until.until_s, math.inf if self.awaited else until.enough_s)
            self.over = worked or (not idle and (enough or self.next_s == math.inf))
        else:
            self.over = True
        if self.over:
            # What ends here may still let jobs in other cells start.
            self.next_s = self._on_grid_s(self._end_s()) if len(self.peers) > 1 else math.inf

    def _end_s(self) -> float:
        while self.ends and self.ends[0][1] not in self.state.running:
            heapq.heappop(self.ends)  # It was preempted.
        end_s = self.ends[0][0] if self.ends else math.inf
        return min(end_s, self.elsewhere[-1].left_s) if self.elsewhere else end_s

    def _on_grid_s(self, at_s: float) -> float:
        if not self.grid_s or at_s == math.inf:
            return at_s
        return math.ceil(at_s / self.grid_s) * self.grid_s

    def _next_s(self) -> float:
        if not (self.state.waiting or self.ahead or self.arrivals or self.parked):
            return math.inf
        arrival_s = -self.arrivals[-1][0] if self.arrivals else math.inf
        promotion_s = -self.promotions[-1][0] if self.promotions else math.inf
        exempt_s = self.yielding.changes_at_s if self.yielding else math.inf
        falls_s = self.parked.next_s if self.parked else math.inf
        return self._on_grid_s(
            min(arrival_s, promotion_s, self._end_s(), exempt_s, falls_s, self.state.changes_at_s)
        )

    def pass_to(self, now_s: float) -> None:
        """Apply everything that happens up to a moment."""
        self.now_s = now_s
        self.ledger.pass_to(now_s)
        while self.ends and self.ends[0][0] <= now_s:
            task = heapq.heappop(self.ends)[1]
            if task in self.state.running:
                self._end(task)
        while self.elsewhere and self.elsewhere[-1].left_s <= now_s:
            ended = self.elsewhere.pop()
            self._give_back(ended.dues, -ended.ran_s)
        for limit in self.parked.fallen(now_s) if self.parked else ():
            self._release(limit, AT_ONCE)
        if self.yielding and self.yielding.pass_to(now_s):
            self.state.stale = True
        if self.state.changes_at_s <= now_s:
            self.state.pass_to(now_s)
        while self.arrivals and -self.arrivals[-1][0] <= now_s:
            number = self.arrivals.pop()[1]
            heapq.heappush(self.ahead, (self.places[number], number))
        self._promote()

    def _end(self, task: int) -> None:
        self.state.end(task, 0, (0, 0, 0), self.now_s)
        if self.yielding:
            self.yielding.ended(task)
        if dues := self.dues.pop(task, ()):
            begun_s = -self.held[task].ran_s if task < len(self.held) else self.begun_s.pop(task)
            self._give_back(dues, begun_s)

    def _give_back(self, dues: Dues, begun_s: float) -> None:
        self.ledger.give(dues, begun_s)
        for peer in self.peers:
            peer.wake(dues, AT_ONCE)

    def wake(self, dues: Dues, most: int) -> None:
        """Release the first of the records that wait for these limits, to be considered again."""
        for due in dues if self.parked else ():
            self._release(due.limit, most)

    def _release(self, limit: str, most: int) -> None:
        for released in self.parked.released(limit, most):
            heapq.heappush(self.ahead, released)
            self.woken = True

    def _promote(self) -> None:
        """Move records to the front once their time in `first_from_s` has come, in Slurm's order among themselves."""
        while self.promotions and -self.promotions[-1][0] <= self.now_s:
            _, turn, number = self.promotions.pop()
            if not self.left[number]:
                continue
            self.places[number] = FIRST - turn
            if self.let_in.get(number):
                self._take_out(number)
            heapq.heappush(self.ahead, (self.places[number], number))

    def _take_out(self, number: int) -> None:
        """Take the waiting tasks of a record out of the queue."""
        queue, state = self.state.queue, self.state
        positions = [
            at for at, task in enumerate(queue.ints[NUMBER].tolist()) if self.record_of[task] == number
        ]
        for position in positions:
            task = queue.number(position)
            del state.waiting[task], self.record_of[task]
        queue.remove_all(positions)
        self.let_in[number] = 0

    def _rounds(self) -> None:
        """Start what may start now; let more tasks in if some of those considered started."""
        state = self.state
        while True:
            self._let_in()
            if not state.waiting or not (state.released or state.stale or state.arrived):
                return
            before = len(self.starts_s)
            # The first job preempts before any other may pass it.
            while self.yielding and (start_first(state, self.now_s) or self._preempts(self.yielding)):
                pass
            easy(state, self.now_s)
            state.queue.looked_at()
            state.released = state.stale = state.arrived = False
            if len(state.queue) and state.passes_over(state.queue.number(0)):
                # Nothing is kept free for it.
                state.queue.remove(0)
                state.stale = True
            elif len(state.queue) and state.promise is None:
                # It never fits next to windows that keep coming; no other job may wait because of it.
                self._drop_first()
            elif len(self.starts_s) == before or not self.ahead:
                return

    def _let_in(self) -> None:
        state, ahead = self.state, self.ahead
        while ahead and (len(state.queue) < DEPTH or ahead[0][0] < self.frontier):
            place, number = heapq.heappop(ahead)
            if place != self.places[number] or self.let_in.get(number):
                continue
            if due := self.ledger.barring(self.entries[number].need.dues):
                self._park(number, due)
                continue
            self.frontier = max(self.frontier, place)
            tasks = self.let_in[number] = min(self.left[number], AT_ONCE)
            self._enqueue(self.entries[number], place, tasks)

    def _park(self, number: int, due: Due) -> None:
        self.parked.add(due, self.places[number], number)

    def _passed_over(self, task: int) -> bool:
        """Whether a waiting task is at a limit; if so, its record now waits for that limit."""
        number = self.record_of[task]
        due = self.ledger.barring(self.entries[number].need.dues)
        if due is None:
            return False
        del self.state.waiting[task], self.record_of[task]
        self.let_in[number] -= 1
        if not self.let_in[number]:
            self._park(number, due)
        return True

    def _enqueue(self, entry: Entry, place: float, tasks: int) -> None:
        first, need = self.next_task, entry.need
        self.next_task += tasks
        for task in range(first, self.next_task):
            self.record_of[task] = entry.number
        self.state.enqueue(
            Waiting(
                number=first,
                # Its place in the order stands for its time of submission.
                submit_s=place,
                user=need.group,
                demand=need.demand,
                total=self.total,
                predicted_s=need.limit_s,
                remaining_s=entry.run_s,
                limit_s=need.limit_s,
                nodes=need.nodes,
            ),
            tasks,
        )

    def _started(self, task: int, parts: Parts) -> None:
        number, now_s = self.record_of.pop(task), self.now_s
        entry = self.entries[number]
        latest_s = now_s + entry.need.limit_s
        self.state.run(task, Running(now_s, parts, latest_s, latest_s))
        heapq.heappush(self.ends, (now_s + min(entry.run_s, entry.need.limit_s), task))
        if self.yielding:
            self.yielding.started(task, entry.need.yields, parts, now_s, now_s)
        if dues := entry.need.dues:
            self.dues[task], self.begun_s[task] = dues, now_s
            self.ledger.take(dues, now_s)
            if self.parked and self.ledger.barring(dues) is None:
                self.wake(dues, 1)
        self.numbers.append(number)
        self.starts_s.append(now_s)
        self.parts.append(parts)
        self.awaited.discard(number)
        self.left[number] -= 1
        self.let_in[number] -= 1
        if not self.let_in[number] and self.left[number]:
            heapq.heappush(self.ahead, (self.places[number], number))

    def _preempts(self, yielding: Yielding) -> bool:
        """End what Slurm would end so that the first waiting task can start; return whether anything was ended.

        Preempted jobs are not considered again: requeued, their age starts anew, behind all that waits now.
        """
        state = self.state
        if not len(state.queue):
            return False
        tier = self.entries[self.record_of[state.queue.number(0)]].need.tier
        ended = yielding.chosen(tier, state.room, lambda room: state.place_first(room, self.now_s))
        for task in ended:
            self._end(task)
        state.stale = state.stale or bool(ended)
        return bool(ended)

    def _drop_first(self) -> None:
        task = self.state.queue.number(0)
        self.state.queue.remove(0)
        del self.state.waiting[task], self.record_of[task]
        self.state.stale = True


def yielding_of(cell: Cell) -> Yielding:
    """Return which running jobs may be preempted when a rollout begins."""
    found = Yielding(*cell.capacity.shape)
    for task, held in enumerate(cell.running):
        found.started(task, held.yields, held.parts, -held.ran_s, 0.0)
    return found
