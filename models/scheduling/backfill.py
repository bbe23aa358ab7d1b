"""What may pass a job that has to wait. Pure: what runs, until when it is expected to, and what waits come in.

EASY (Lifka, JSSPP 1995): the first job gets a reservation, the earliest moment at which it fits if all that runs ends
when it is expected to; others may pass it where that does not delay it. Conservative: every job has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy

from models.scheduling.placement import Place, Placement
from models.scheduling.room import Amounts, Parts, Room


class Promise(msgspec.Struct, frozen=True):
    """The moment at which the first job is to start (seconds), and what is free then beside it."""

    start_s: float
    beside: Room


class Ending(msgspec.Struct, frozen=True, gc=False):
    """A running job: when it is expected to end (seconds), and what it gives back."""

    end_s: float
    parts: Parts


class Wish(msgspec.Struct, frozen=True, gc=False):
    """A waiting job: what it needs, and how long it is expected to run (seconds)."""

    demand: Amounts
    run_s: float


def promise(room: Room, endings: Iterable[Ending], demand: Amounts, placement: Placement) -> Promise | None:
    """Return the reservation of a job that does not fit now; None where it would not fit even on what all leave.

    `endings` come in the order of their ends. What ends in one moment is given back together.
    """
    # Free amounts of the nodes that something ended on, as plain numbers: most of what EASY costs is this loop.
    freed: dict[int, list[int]] = {}
    sums = list(placement.reach(room))
    columns: list[list[int]] = room.free.T.tolist()
    need_cpu, need_mem, need_gpu = demand
    parts: Parts | None = None
    at_s = 0.0
    for ending in endings:
        if parts is not None and ending.end_s > at_s:
            break
        at_s = ending.end_s
        for node, (cpu_milli, mem_mib, gpu_milli) in ending.parts:
            free = freed[node] = columns[node]
            for bound in (free, sums) if placement.spans else (free,):
                bound[0] += cpu_milli
                bound[1] += mem_mib
                bound[2] += gpu_milli
        if parts is None and need_cpu <= bound[0] and need_mem <= bound[1] and need_gpu <= bound[2]:
            parts = placement.place(_with(room, freed), demand)
    if parts is None:
        return None
    later = _with(room, freed)
    later.take(parts)
    return Promise(at_s, later)


def _with(room: Room, freed: dict[int, list[int]]) -> Room:
    """Return a room with other free amounts on some nodes."""
    free = room.free.copy()
    free[:, list(freed)] = numpy.array(list(freed.values()), dtype=numpy.int64).T
    return Room(free, room.total)


def plan(
    now_s: float, room: Room, endings: Sequence[Ending], wishes: Sequence[Wish], place: Place
) -> list[tuple[float, Parts] | None]:
    """Return when and where each job would start, each at its earliest beside those before it; None: never.

    Conservative backfill (Mu'alem, Feitelson, TPDS 2001), planned anew in the queue's order. It costs jobs × jobs.
    """
    times, rooms = [now_s], [room.copy()]
    for ending in sorted(endings, key=lambda ending: ending.end_s):
        if ending.end_s > times[-1]:
            times.append(ending.end_s)
            rooms.append(rooms[-1].copy())
        rooms[-1].give(ending.parts)
    return [_fit(times, rooms, wish, place) for wish in wishes]


def _fit(times: list[float], rooms: list[Room], wish: Wish, place: Place) -> tuple[float, Parts] | None:
    """Find the first moment from which a job fits for all its time, and take it out of the plan."""
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
        parts = place(common, wish.demand)
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
