"""What is behind the last moment that was simulated: starts by a fluid estimate. Pure.

The cell serves one record after the other, all its tasks together, as fast as if its machines were packed without a
gap: of each the dominant share × run time passes before the next. It is too early by what packing loses, alike for all
orders, so it compares orders of a queue that is too long to simulate, and promises nothing.
"""

from __future__ import annotations

import numpy

from models.scheduling.room import Floats


def tail_s(work_s: Floats, places: Floats, turns_s: Floats | None, from_s: float) -> Floats:
    """Return when what waits at a moment would start, one value a record.

    `work_s` is for how long each takes all machines, `places` say who is first. As in a rollout, from `turns_s` on
    (seconds; infinite: never) a record comes first; None: nobody does.
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
    """Return when each starts where those whose turn has come pass the others; all in the order of their places."""
    works, turns = work_s.tolist(), [*turns_s.tolist(), numpy.nan]
    # The last is never due.
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
