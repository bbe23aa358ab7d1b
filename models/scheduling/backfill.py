"""What may pass a job that has to wait. Pure: the input is what runs, until when it is expected to, and what waits.

EASY (Lifka, JSSPP 1995): the first job gets a reservation, the earliest moment at which it fits if all running jobs
end when expected; other jobs may pass it if they do not delay it. Conservative backfill: every job gets a
reservation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy

from models.scheduling.placement import Place, Placement, holders, place_equal
from models.scheduling.room import PLAIN, Amounts, Parts, Room, amounts_of, exceeds


class Promise(msgspec.Struct, frozen=True):
    """The reservation of the first job: when it is to start (seconds), its parts, and what is free next to it then.

    It needs the `demand` on each of its nodes. `alone` says that the end of one job makes the room, so that too few
    other nodes have room for it by then. `last` are the nodes of that end, `own` those of its parts.
    """

    start_s: float
    demand: Amounts
    parts: Parts
    beside: Room
    alone: bool
    last: frozenset[int] = frozenset()
    own: frozenset[int] = frozenset()

    def holds(self, ending: Ending, end_s: float) -> bool:
        """Whether the promise still holds if a running job ends at another time (seconds); `beside` is kept up to date.

        If this returns True, computing the promise anew, which is most of the cost of EASY, would give the same.
        """
        if not self.alone or any(node in self.last for node, _ in ending.parts):
            return False
        before, after = ending.end_s <= self.start_s, end_s <= self.start_s
        if after and not before:
            self.beside.give(ending.parts)
        if before and not after:
            self.beside.take(ending.parts)
        return all(
            node in self.own or exceeds(self.demand, amounts_of(self.beside.free[:, node]))
            for node, _ in ending.parts
        )


class Ending(NamedTuple):
    """A running job: when it is expected to end (seconds), its number, and what it gives back."""

    end_s: float
    number: int
    parts: Parts


class Bounds(NamedTuple):
    """What windows leave to a job that starts at a moment, None: all; it is the same until `until_s` (seconds)."""

    room: Room | None
    until_s: float


class Claim(NamedTuple):
    """What of a room a job may use where nodes are down or reserved for a time (availability.py).

    `bounds` returns what windows leave it from a moment (seconds) until its limit, `open` what its user may use.
    `steady` says that no window is still to begin. `mine` says which nodes its user may use at all, None: all.
    """

    bounds: Callable[[float], Bounds]
    open: Callable[[Room], Room]
    steady: bool = False
    mine: Sequence[bool] | None = None

    def lasting(self, room: Room, start_s: float) -> Room:
        """Return what of a room it would have from a moment until its limit."""
        bounds = self.bounds(start_s).room
        return room if bounds is None else room.within(bounds)


class Wish(msgspec.Struct, frozen=True, gc=False):
    """A waiting job: what it needs, how long it is expected to run (seconds), and what it may use, None: all.

    A job on several `nodes` needs the demand on each.
    """

    demand: Amounts
    run_s: float
    claim: Claim | None = None
    nodes: int = 1

    def place(self, place: Place, room: Room) -> Parts | None:
        """Return where in a room the job goes; pass no more room than it may use."""
        if self.nodes > 1:
            return place_equal(room, self.demand, self.nodes)
        return place(room, self.demand)

    def usable(self, room: Room, start_s: float) -> Room:
        """Return what of a room at a moment (seconds) it may use."""
        if self.claim is None:
            return room
        return self.claim.open(self.claim.lasting(room, start_s))


class Reach:
    """The nodes that a job may use, by the windows from a moment until its limit, looked up as that moment passes.

    It is asked before a room is made, as the cost of that grows with the cluster. It excludes nothing for a job that
    may spread over nodes.
    """

    def __init__(self, wish: Wish, *, spans: bool) -> None:
        claim = None if spans else wish.claim
        self._demand = wish.demand
        self._mine = claim.mine if claim else None
        self._claim = None if claim is None or claim.steady else claim
        self._lasting: set[int] | None = None
        # What was looked up is valid until this moment.
        self.until_s = math.inf if self._claim is None else -math.inf

    def pass_to(self, start_s: float) -> None:
        """Look up the windows as from this moment (seconds), which must not be before the last one."""
        if self._claim is not None:
            bounds, self.until_s = self._claim.bounds(start_s)
            self._lasting = None if bounds is None else holders(bounds, self._demand)

    def __contains__(self, node: int) -> bool:
        """Whether windows and reservations leave the node what the job needs."""
        return (self._mine is None or self._mine[node]) and (self._lasting is None or node in self._lasting)


class Freeing:
    """The nodes of a room as running jobs give them back, ending by ending, in order of time."""

    def __init__(self, room: Room, wish: Wish, placement: Placement) -> None:
        self._room, self._wish, self._place = room, wish, placement.place
        self.spans = placement.spans and wish.nodes == 1
        # Free amounts as plain numbers: adding to them is most of the cost of EASY.
        self._columns: list[list[int]] = room.free.T.tolist()
        self._sums = list(placement.reach(room)) if self.spans else []
        self._freed: dict[int, list[int]] = {}
        self._reach = Reach(wish, spans=self.spans)
        self.at_s, self.alone, self.later = -1.0, False, room
        self.last: Parts = ()
        # Whether GPU types, or single GPUs, have rows of their own; on few clusters they do.
        self._more_rows = len(room.free) > PLAIN
        # Nodes that hold the demand, if the job needs several.
        self._ready: set[int] = set()
        if wish.nodes > 1:
            self._ready |= holders(room if wish.claim is None else wish.claim.open(room), wish.demand)

    def first_fit(self, endings: Iterator[Ending]) -> Parts | None:
        """Go on to the first ending by which the job fits, and return where; None: not even after all of them."""
        columns, freed, ready, reach = self._columns, self._freed, self._ready, self._reach
        demand, more_rows = self._wish.demand, self._more_rows
        need_cpu, need_mem, need_gpu = demand[:PLAIN]
        for end_s, _, given in endings:
            first = end_s > self.at_s
            if first:
                self.at_s = end_s
                if end_s > reach.until_s:
                    reach.pass_to(end_s)
            fits = False
            for node, amounts in given:
                bound = freed[node] = columns[node]
                bound[0] += amounts[0]
                bound[1] += amounts[1]
                bound[2] += amounts[2]
                if more_rows:
                    for row, amount in enumerate(amounts[PLAIN:], PLAIN):
                        bound[row] += amount
                if (
                    need_cpu <= bound[0]
                    and need_mem <= bound[1]
                    and need_gpu <= bound[2]
                    and (not more_rows or not exceeds(demand, bound))
                    and node in reach
                ):
                    fits = True
                    ready.add(node)
            if (fits or self.spans) and (parts := self._placed(given, alone=first)) is not None:
                self.last = given
                return parts
        return None

    def _placed(self, given: Parts, *, alone: bool) -> Parts | None:
        """Return where the job goes after an ending that may have made the room for it."""
        wish = self._wish
        if self.spans and not self._grown_enough(given):
            return None
        if wish.nodes > 1 and len(self._ready) < wish.nodes:
            return None
        self.later = _with(self._room, self._freed)
        usable = wish.usable(self.later, self.at_s)
        parts = wish.place(self._place, usable)
        # If more nodes hold it than it needs, another end changes which of them are taken.
        exact = wish.nodes == 1 or len(holders(usable, wish.demand)) == wish.nodes
        self.alone = alone and not self.spans and exact
        return parts

    def _grown_enough(self, given: Parts) -> bool:
        """Add to what all nodes have together; return whether that is enough."""
        sums = self._sums
        for _, amounts in given:
            for row, amount in enumerate(amounts):
                sums[row] += amount
        return not exceeds(self._wish.demand, sums)

    def rest_of_moment(self, endings: Iterator[Ending]) -> None:
        """Give back what else ends at the same moment: often much, such as the tasks of an array."""
        grown = False
        for end_s, _, given in endings:
            if end_s > self.at_s:
                break
            self.alone = False
            for node, amounts in given:
                bound = self._freed[node] = self._columns[node]
                for row, amount in enumerate(amounts):
                    bound[row] += amount
            grown = True
        if grown:
            self.later = _with(self._room, self._freed)


def promise(
    room: Room,
    endings: Iterable[Ending],
    wish: Wish,
    placement: Placement,
) -> Promise | None:
    """Return the reservation of a job that does not fit now; None if it would not fit even on what all jobs give back.

    `endings` are sorted by time. What ends at one moment is given back together. A window that begins is an ending
    that gives back negative amounts.
    """
    coming, claim = iter(endings), wish.claim
    freeing = Freeing(room, wish, placement)
    parts = freeing.first_fit(coming)
    if parts is None:
        return None
    freeing.rest_of_moment(coming)
    later = freeing.later if claim is None else claim.lasting(freeing.later, freeing.at_s)
    later.take(parts)
    steady = claim is None or claim.steady
    return Promise(
        freeing.at_s,
        wish.demand,
        parts,
        later,
        freeing.alone and steady,
        frozenset(node for node, _ in freeing.last),
        frozenset(node for node, _ in parts),
    )


def _with(room: Room, freed: dict[int, list[int]]) -> Room:
    """Return a room with other free amounts on some nodes."""
    free = room.free.copy()
    free[:, list(freed)] = numpy.array(list(freed.values()), dtype=numpy.int64).T
    return Room(free, room.total)


def plan(
    now_s: float, room: Room, endings: Iterable[Ending], wishes: Sequence[Wish], place: Place
) -> list[tuple[float, Parts] | None]:
    """Return when and where each job would start, each at its earliest next to those before it; None: never.

    `endings` are as in `promise`. Conservative backfill (Mu'alem, Feitelson, TPDS 2001), planned anew in the queue's
    order. The cost grows with jobs × jobs.
    """
    times, rooms = [now_s], [room.copy()]
    for ending in endings:
        if ending.end_s > times[-1]:
            times.append(ending.end_s)
            rooms.append(rooms[-1].copy())
        rooms[-1].give(ending.parts)
    return [_fit(times, rooms, wish, place) for wish in wishes]


def _fit(times: list[float], rooms: list[Room], wish: Wish, place: Place) -> tuple[float, Parts] | None:
    """Find the first moment from which a job fits for all its time, and take it out of the plan's rooms."""
    for first, start_s in enumerate(times):
        end_s = start_s + wish.run_s
        span = [rooms[first]]
        for index in range(first + 1, len(times)):
            if times[index] >= end_s:
                break
            span.append(rooms[index])
        common = span[0]
        for other in span[1:]:
            common = common.within(other)
        parts = wish.place(place, wish.usable(common, start_s))
        if parts is not None:
            _split(times, rooms, end_s)
            for index in range(first, len(times)):
                if times[index] >= end_s:
                    break
                rooms[index].take(parts)
            return start_s, parts
    return None


def _split(times: list[float], rooms: list[Room], at_s: float) -> None:
    """Make `at_s` a moment of the plan."""
    for index, time_s in enumerate(times):
        if time_s == at_s:
            return
        if time_s > at_s:
            times.insert(index, at_s)
            rooms.insert(index, rooms[index - 1].copy())
            return
    if at_s < float("inf"):
        times.append(at_s)
        rooms.append(rooms[-1].copy())
