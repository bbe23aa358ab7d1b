"""From an order to SiteFactors, with as few changes as possible. Pure.

The effective priority is Slurm's own plus the factor. Records that are right with the factor in force keep it: a
longest subsequence of the wished order whose priorities fall by at least one per place, so that the records between
find room. Those are spread evenly between their neighbours. Records of equal priority, which Slurm orders by id
alone, count as one place if that order is wished.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from models.planning.problem import Pending

# The step between two records whose priorities we may choose freely; later records fit in between.
GAP = 16
LEAST, MOST = 1, (1 << 32) - 2


class _Slot(NamedTuple):
    """A record in the wished order: its place (in steps of priority), priority in force, and whether it is fixed."""

    number: int
    place: int
    priority: int
    fixed: bool


def factors_of(pending: Sequence[Pending], order: Sequence[int], most_factor: int) -> dict[int, int]:
    """Return the factor of each record of the order, by its number; records that are kept have the factor in force.

    Each tier is computed by itself, as Slurm goes through the tiers one after the other. A factor beyond the bound is
    cut to it, so the caller has to check the order that results (`order_of`).
    """
    found: dict[int, int] = {}
    tiers: dict[int, list[int]] = {}
    for number in order:
        tiers.setdefault(pending[number].tier, []).append(number)
    for members in tiers.values():
        slots = _slots(pending, members)
        kept = _stay(slots)
        for slot, priority in zip(slots, _spread(slots, kept), strict=True):
            job = pending[slot.number]
            wanted = priority - job.priority
            bound = max(-most_factor, min(most_factor, wanted))
            found[slot.number] = job.factor if slot.fixed or priority == slot.priority else bound
    return found


def order_of(pending: Sequence[Pending], members: Sequence[int], factors: dict[int, int]) -> list[int]:
    """Return the order in which Slurm considers records that have these factors."""
    return sorted(
        members,
        key=lambda at: (-pending[at].tier, -effective(pending[at], factors.get(at, 0)), pending[at].job_id),
    )


def effective(job: Pending, factor: int) -> int:
    """Return a record's priority with a factor; Slurm keeps it above 0 and below 2³²."""
    return max(LEAST, min(MOST, job.priority + factor))


def _slots(pending: Sequence[Pending], order: Sequence[int]) -> list[_Slot]:
    slots: list[_Slot] = []
    for number in order:
        job = pending[number]
        priority = effective(job, job.factor)
        place = 0
        if slots:
            before = slots[-1]
            tied = before.priority == priority and pending[before.number].job_id < job.job_id
            place = before.place + (0 if tied else 1)
        slots.append(_Slot(number, place, priority, bool(job.kept)))
    return slots


def _stay(slots: Sequence[_Slot]) -> list[int]:
    """Return the positions that keep their priority: all that are fixed, and as many of the others as possible."""
    kept: list[int] = []
    begin = 0
    fixed = [at for at, slot in enumerate(slots) if slot.fixed]
    for end in [*fixed, len(slots)]:
        high = slots[begin - 1].priority + slots[begin - 1].place if begin else math.inf
        low = slots[end].priority + slots[end].place if end < len(slots) else -math.inf
        # The last records of all may sink no lower than the least priority.
        low = max(low, LEAST + slots[-1].place)
        kept += _longest([(at, slots[at].priority + slots[at].place) for at in range(begin, end)], low, high)
        if end < len(slots):
            kept.append(end)
        begin = end + 1
    return kept


def _longest(values: Sequence[tuple[int, int]], low: float, high: float) -> list[int]:
    """Return the positions of a longest subsequence that never rises and stays between two bounds."""
    tails: list[int] = []
    ends: list[int] = []
    before: dict[int, int] = {}
    for at, value in values:
        if not low <= value <= high:
            continue
        place = bisect_right(tails, -value)
        before[at] = ends[place - 1] if place else -1
        if place == len(tails):
            tails.append(-value)
            ends.append(at)
        else:
            tails[place], ends[place] = -value, at
    found = []
    at = ends[-1] if ends else -1
    while at >= 0:
        found.append(at)
        at = before[at]
    return found[::-1]


def _spread(slots: Sequence[_Slot], kept: Sequence[int]) -> list[int]:
    """Return the priority of each slot: its own if it is kept, else spread evenly between those that are."""
    found = [slot.priority for slot in slots]
    bounds = [-1, *kept, len(slots)]
    for first, last in pairwise(bounds):
        if last - first < 2:
            continue
        begin = slots[first].place if first >= 0 else slots[0].place - 1
        end = slots[last].place if last < len(slots) else slots[-1].place + 1
        high, low = _ends(slots, first, last, end - begin)
        for at in range(first + 1, last):
            found[at] = high - (high - low) * (slots[at].place - begin) // max(1, end - begin)
    return found


def _ends(slots: Sequence[_Slot], first: int, last: int, steps: int) -> tuple[int, int]:
    """Return the priorities between which slots are spread; on an open side, GAP a step. Never are both sides open."""
    if first >= 0 and last < len(slots):
        return slots[first].priority, slots[last].priority
    if first >= 0:
        high = slots[first].priority
        return high, max(LEAST - 1, high - GAP * steps)
    low = slots[last].priority
    return min(MOST + 1, low + GAP * steps), low
