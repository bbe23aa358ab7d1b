"""A pool of nodes over time, as a plan sees it: how much of it becomes free when, and which jobs take it. Pure.

What a pool has is a single number, the share of its scarcest resource; the room itself tells whether some node really
holds a job (deadlines.py).
"""

from __future__ import annotations

import functools
import math
from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from models.scheduling.room import PLAIN, Amounts, Ints

# In a plan, a pool is this many units, and a job takes whole ones.
UNITS = 1_000_000


class Busy(NamedTuple):
    """What runs in a pool: when it is expected to end (seconds), what it holds there, whether it came last."""

    end_s: float
    amounts: Amounts
    spare: bool = False


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes alike in speed; `left_s` is how long the owner of each is likely away, empty: they have no owners."""

    name: str
    nodes: tuple[int, ...]
    capacity: Amounts
    busy: tuple[Busy, ...] = ()
    left_s: tuple[float, ...] = ()


class _Slot(NamedTuple):
    """Some units of a pool for a time (seconds)."""

    from_s: float
    to_s: float
    units: int


class Lanes:
    """A pool over time: how many units become free at each moment; each planned job takes the earliest.

    Units that become free before the job starts are a gap, for jobs that end before then.
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
        """Return when that many units are free for that long; infinite: never."""
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
        """Take units from their `start_s` on, and give them back when the run ends."""
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
        """Let a planned run end sooner, if nothing was planned behind it; else its units are kept as planned."""
        if (start_s + run_s, units) in self._free:
            self._free.remove((start_s + run_s, units))
            insort(self._free, (start_s + to_s, units))

    def _gap(self, units: int, run_s: float) -> _Slot | None:
        """Return the first gap that has that many units for that long; of several, the smallest."""
        fit = [gap for gap in self._gaps if gap.units >= units and gap.from_s + run_s <= gap.to_s]
        return min(fit, key=lambda gap: (gap.from_s, gap.units), default=None)


@functools.lru_cache(maxsize=65_536)  # the same few demands are asked about again and again
def units_of(amounts: Amounts, capacity: Amounts) -> int:
    """Return how much of a pool the amounts are, by the scarcest resource.

    GPU types and single GPUs are left to the room.
    """
    shares = (UNITS * part // whole for part, whole in _plain(amounts, capacity) if whole)
    return max(shares, default=0)


def _plain(amounts: Sequence[int], capacity: Amounts) -> zip[tuple[int, int]]:
    return zip(amounts[:PLAIN], capacity[:PLAIN], strict=True)
