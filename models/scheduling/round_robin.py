"""Which demander has which supplier from when to when, in turns: the record of a schedule. Pure.

From a patent on scheduling by GPU virtualisation (claim 7; docs/scheduling.md): rounds follow each other, within a
round demanders come by priority; suppliers stand in a random sequence, and the one that is free first serves the next
turn.

A demander is served by one supplier at a time. As turns are whole slices, except each demander's last, no turn ever
waits for one that comes later in this order, and no supplier idles while a demander could be served. Time lost by
changing holders is not in the record (time_slices.py weighs it).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import msgspec
import numpy

from accounting.errors import ScheduleError
from models.scheduling.checks import Floats, Order, amounts_of, order_of
from models.scheduling.time_slices import turns_of


class Turn(msgspec.Struct, frozen=True, gc=False):
    """One turn: rounds are counted from 1, demanders and suppliers from 0."""

    round_number: int
    demander: int
    supplier: int
    start_s: float
    end_s: float


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The rounds planned, the turns given within a window, and how long each demander was served in it.

    A turn that the window's end cuts off is in it up to there; later ones are not. A demander that had all its turns
    was served exactly its planned duration.
    """

    rounds: int
    turns: tuple[Turn, ...]
    served_s: tuple[float, ...]

    @property
    def demanders(self) -> int:
        """How many demanders there are, including those that were never served."""
        return len(self.served_s)

    @property
    def first_start_s(self) -> Floats:
        """When each demander was served first; NaN if it never was."""
        first = numpy.full(self.demanders, numpy.nan)
        for turn in reversed(self.turns):
            first[turn.demander] = turn.start_s
        return first

    @property
    def waits_s(self) -> Floats:
        """How long each demander waited until the end of its last turn; NaN if it was never served."""
        ended = numpy.full(self.demanders, numpy.nan)
        for turn in self.turns:
            ended[turn.demander] = turn.end_s
        waits: Floats = ended - numpy.array(self.served_s)
        return waits


def supplier_sequence(count: int, generator: numpy.random.Generator) -> tuple[int, ...]:
    """Return `count` suppliers in random order."""
    return tuple(int(supplier) for supplier in generator.permutation(count))


def serve(
    durations_s: Sequence[float] | Floats,
    order: Sequence[int] | Order,
    slice_s: float,
    suppliers: Sequence[int],
    window_s: float = math.inf,
) -> ScheduleRecord:
    """Return the record of serving each demander its duration (seconds), in turns of one slice.

    `order` is the priority (demanders' numbers), `suppliers` the sequence in which they stand ready at 0 s.
    """
    if not suppliers:
        raise ScheduleError("there is no supplier; give at least one")
    durations = amounts_of("planned durations", durations_s)
    rounds_of = turns_of(durations, slice_s)
    waiting = order_of(order, len(durations)).tolist()
    free = [(0.0, place, supplier) for place, supplier in enumerate(suppliers)]
    ready_s = numpy.zeros(len(durations)).tolist()
    served_s = list(ready_s)
    turns: list[Turn] = []
    rounds = int(rounds_of.max(initial=0))
    for number in range(1, rounds + 1):
        waiting = [demander for demander in waiting if rounds_of[demander] >= number]
        for demander in waiting:
            free_s, place, supplier = free[0]
            start_s = max(free_s, ready_s[demander])
            if start_s >= window_s:
                break
            # From the whole duration, never by adding turns up: rounding would leave a rest.
            until_s = min(float(durations[demander]), number * slice_s)
            before_s = (number - 1) * slice_s
            whole_s = start_s + (until_s - before_s)
            end_s = min(whole_s, window_s)
            served_s[demander] = until_s if whole_s <= window_s else before_s + (end_s - start_s)
            ready_s[demander] = end_s
            heapq.heapreplace(free, (end_s, place, supplier))
            turns.append(Turn(number, demander, supplier, start_s, end_s))
    return ScheduleRecord(rounds=rounds, turns=tuple(turns), served_s=tuple(served_s))
