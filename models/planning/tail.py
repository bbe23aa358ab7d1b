"""The starts after the last moment that was simulated: a fluid estimate. Pure.

The cell serves one record after the other, all tasks of a record together, as fast as if its machines were packed
without a gap: each record takes its dominant share × run time before the next begins. The estimate is too early by
what packing loses. That is alike for all orders, so the estimate can compare orders of a queue that is too long to
simulate; it promises nothing.
"""

from __future__ import annotations

import numpy

from models.scheduling.room import Floats


def tail_s(work_s: Floats, places: Floats, turns_s: Floats | None, from_s: float) -> Floats:
    """Return when what waits at `from_s` would start, one value per record.

    `work_s` is for how long each record takes all machines; the lowest of `places` is first. As in a rollout, a
    record comes first from its time in `turns_s` on (seconds; infinite: never); None: none does.
    """
    in_order = numpy.argsort(places, kind="stable")
    work_s = work_s[in_order]
    found: Floats = numpy.empty(len(places))
    if turns_s is None:
        found[in_order] = numpy.cumsum(numpy.concatenate([[from_s], work_s]))[:-1]
    else:
        found[in_order] = _in_turn(work_s, turns_s[in_order], from_s)
    return found


def _in_turn(work_s: Floats, turns_s: Floats, from_s: float) -> list[float]:
    """Return when each starts if those whose turn has come pass the others; all are in the order of their places."""
    works, turns = work_s.tolist(), [*turns_s.tolist(), numpy.nan]
    # The last entry is a sentinel that is never due.
    due = [*numpy.argsort(turns_s, kind="stable").tolist(), len(works)]
    found = [-1.0] * len(works)
    now_s, passed = from_s, 0
    for at, work in enumerate(works):
        while turns[due[passed]] <= now_s:
            first = due[passed]
            passed += 1
            if found[first] < 0:
                found[first] = now_s
                now_s += works[first]
        if found[at] < 0:
            found[at] = now_s
            now_s += work
    return found
