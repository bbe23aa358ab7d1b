"""What is behind the last moment that was simulated: starts by a fluid estimate. Pure.

The cell serves one record after the other, all its tasks together, as fast as if its machines were packed without a
gap: of each the dominant share × run time passes before the next. It is too early by what packing loses, alike for all
orders, so it compares orders of a queue that is too long to simulate, and promises nothing.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence

from models.planning.cells import Cell


def tail_s(
    cell: Cell,
    waiting: Mapping[int, float],
    runs_s: Sequence[float],
    places: Sequence[float],
    turns_s: Mapping[int, float] | None,
    from_s: float,
) -> dict[int, float]:
    """Return when what waits at a moment would start, by its number; `waiting` has how many tasks each has left.

    As in a rollout, those of `turns_s` come first from their moments on (seconds).
    """
    in_order = sorted(waiting, key=lambda number: places[number])
    due = sorted((turns_s.get(number, math.inf), at) for at, number in enumerate(in_order)) if turns_s else []
    heapq.heapify(due)
    found: dict[int, float] = {}
    now_s = from_s
    for number in in_order:
        while due and due[0][0] <= now_s:
            first = in_order[heapq.heappop(due)[1]]
            if first not in found:
                found[first] = now_s
                now_s += waiting[first] * cell.needs[first].share * runs_s[first]
        if number not in found:
            found[number] = now_s
            now_s += waiting[number] * cell.needs[number].share * runs_s[number]
    return found
