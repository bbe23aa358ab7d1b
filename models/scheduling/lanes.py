"""A pool of nodes over time, as a plan sees it: how much of it becomes free when, and who takes it. Pure.

What a pool has is one number, the share of its scarcest resource; whether some node really holds a job is asked of the
room itself (deadlines.py).
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from models.scheduling.room import PLAIN, Amounts, Ints

# A pool in a plan is so many parts, and a job takes whole ones.
UNITS = 1_000_000


class Busy(NamedTuple):
    """What runs in a pool: when it is expected to end (seconds), what it holds there, whether it came last."""

    end_s: float
    amounts: Amounts
    spare: bool = False


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes alike in speed; `left_s` is how long the owner of each is likely away, empty: they are nobody else's."""

    name: str
    nodes: tuple[int, ...]
    capacity: Amounts
    busy: tuple[Busy, ...] = ()
    left_s: tuple[float, ...] = ()


class _Slot(NamedTuple):
    """So many units of a pool for a time (seconds)."""

    from_s: float
    to_s: float
    units: int


class Lanes:
    """A pool over time: so many units become free at each moment; who is planned takes the earliest.

    What he cannot use until he starts is a gap, for those who end before.
    """

    def __init__(self, pool: Pool, now_s: float, free: Ints) -> None:
        self.spare_units = sum(units_of(busy.amounts, pool.capacity) for busy in pool.busy if busy.spare)
        here = free[:, list(pool.nodes)].sum(axis=1).tolist()
        least = min((UNITS * has // of for has, of in _plain(here, pool.capacity) if of), default=0)
        self._free = [(now_s, least)] if least else []
        for busy in pool.busy:
            insort(self._free, (max(now_s, busy.end_s), units_of(busy.amounts, pool.capacity)))
        self._gaps: list[_Slot] = []

    def start_s(self, units: int, run_s: float) -> float:
        """Return when so much is free for so long; infinite: never."""
        gap = self._gap(units, run_s)
        found = 0
        for at_s, free in self._free:
            if gap is not None and gap.from_s <= at_s:
                return gap.from_s
            found += free
            if found >= units:
                return at_s
        return math.inf if gap is None else gap.from_s

    def take(self, units: int, run_s: float) -> None:
        """Take so much at the start that there is, and give it back when the run ends."""
        start_s, gap = self.start_s(units, run_s), self._gap(units, run_s)
        if gap is not None and gap.from_s == start_s:
            self._gaps.remove(gap)
            rest = (
                gap._replace(units=gap.units - units),
                _Slot(start_s + run_s, gap.to_s, units),
            )
            self._gaps += [one for one in rest if one.units and one.from_s < one.to_s]
            return
        left, at = units, 0
        while left:
            at_s, free = self._free[at]
            used = min(free, left)
            if at_s < start_s:
                self._gaps.append(_Slot(at_s, start_s, used))
            left -= used
            if free > used:
                self._free[at] = (at_s, free - used)
                break
            at += 1
        del self._free[:at]
        insort(self._free, (start_s + run_s, units))

    def shorten(self, start_s: float, run_s: float, units: int, to_s: float) -> None:
        """Let a planned run end sooner, if nobody was planned behind it; else what it had is kept so long."""
        if (start_s + run_s, units) in self._free:
            self._free.remove((start_s + run_s, units))
            insort(self._free, (start_s + to_s, units))

    def _gap(self, units: int, run_s: float) -> _Slot | None:
        """Return the first gap that has so much for so long; the smallest of those."""
        fit = [gap for gap in self._gaps if gap.units >= units and gap.from_s + run_s <= gap.to_s]
        return min(fit, key=lambda gap: (gap.from_s, gap.units), default=None)


def units_of(amounts: Amounts, capacity: Amounts) -> int:
    """Return how much of a pool amounts are, by what is scarcest; types of GPUs and single ones are the room's."""
    shares = (UNITS * part // whole for part, whole in _plain(amounts, capacity) if whole)
    return max(shares, default=0)


def _plain(amounts: Sequence[int], capacity: Amounts) -> zip[tuple[int, int]]:
    return zip(amounts[:PLAIN], capacity[:PLAIN], strict=True)
