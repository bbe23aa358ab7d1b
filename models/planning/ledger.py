"""What jobs have together of a limit of their account, QOS or array while they run: Slurm's limits at a time. Pure.

Who would go beyond one is passed over, and holds nobody up, until something that counts for it ends. A limit is known
by its name, which stands for the same from plan to plan. Of some, a job counts less the longer it runs (GrpTRESRunMins:
the time that it may still use); Slurm counts that anew from time to time. Of others, what it has run is used up when
it ends (GrpTRESMins).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

Limits = Mapping[str, int]
# What is not a whole number is as good as equal within this.
_SLACK = 1e-3
_SOON = 1e-6


class Due(NamedTuple):
    """So much a job counts for a limit from its start on, less by `falls` each second that it runs.

    One that does not `bind` it may be exceeded by its start. It may start where `asks` are left; 0: the amount. Of what
    it `spends` each second it gives nothing back when it ends.
    """

    limit: str
    amount: int
    binds: bool = True
    falls: float = 0.0
    asks: int = 0
    spends: float = 0.0

    @property
    def needs(self) -> int:
        """How much has to be left for it to start."""
        return self.asks or self.amount


Dues = tuple[Due, ...]


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What runs where nothing is planned counts, too, as long as it likely does. It has run for `ran_s` (seconds)."""

    dues: Dues
    left_s: float
    ran_s: float = 0.0


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """When Slurm counts anew what falls: at `at_s` (any one time, seconds), and each `every_s` before and after it.

    0: all the time.
    """

    at_s: float = 0.0
    every_s: float = 0.0

    def last_s(self, now_s: float) -> float:
        """Return when it last did."""
        if not self.every_s:
            return now_s
        return self.at_s + math.floor((now_s - self.at_s) / self.every_s + _SOON) * self.every_s

    def next_s(self, from_s: float) -> float:
        """Return when it next does, `from_s` or later."""
        if not self.every_s or math.isinf(from_s):
            return from_s
        return self.at_s + math.ceil((from_s - self.at_s) / self.every_s - _SOON) * self.every_s

    def as_of(self, later_s: float) -> Clock:
        """Return the same for who counts seconds from a moment that is so much later."""
        return Clock(at_s=self.at_s - later_s, every_s=self.every_s)


CONTINUOUS = Clock()


class _Falling:
    """How much is in use of a limit of what falls, as Slurm last counted it."""

    def __init__(self, counted_s: float) -> None:
        self.used = 0.0
        self.counted_s = counted_s
        # By how much it falls a second, and how much less the first time, as some began in between.
        self.rate = self.late = 0.0

    def pass_to(self, counted_s: float) -> None:
        if counted_s > self.counted_s:
            self.used -= self.rate * (counted_s - self.counted_s) - self.late
            self.counted_s, self.late = counted_s, 0.0

    def add(self, due: Due, begun_s: float, times: int) -> None:
        self.used += times * (due.amount - due.falls * max(0.0, self.counted_s - begun_s))
        self.late += times * due.falls * max(0.0, begun_s - self.counted_s)
        self.rate += times * due.falls


class Ledger:
    """How much of each limit is in use, at a moment: 0 at first."""

    def __init__(
        self, most: Limits, in_use: Iterable[tuple[Dues, float]] = (), clock: Clock = CONTINUOUS
    ) -> None:
        """Count what is in use: dues, and for how long they have been (seconds)."""
        self._most, self._clock = most, clock
        self._now_s, self._counted_s = 0.0, clock.last_s(0.0)
        self._used = defaultdict[str, float](float)
        self._falling: dict[str, _Falling] = {}
        for dues, ran_s in in_use:
            self._add(dues, -ran_s, 1, self._counted_s)

    def pass_to(self, now_s: float) -> None:
        """Let time pass to a moment (seconds)."""
        if now_s != self._now_s:
            self._now_s, self._counted_s = now_s, self._clock.last_s(now_s)

    def take(self, dues: Dues, begun_s: float = 0.0) -> None:
        """Count what starts, or did at a moment."""
        self._add(dues, begun_s, 1, self._counted_s)

    def give(self, dues: Dues, begun_s: float = 0.0) -> None:
        """Count no longer what has ended, and had begun at a moment."""
        self._add(dues, begun_s, -1, self._now_s)

    def _add(self, dues: Dues, begun_s: float, times: int, spent_s: float) -> None:
        for due in dues:
            if due.falls:
                self._fallen(due.limit).add(due, begun_s, times)
            elif due.spends:
                self._used[due.limit] += times * (due.amount - due.spends * max(0.0, spent_s - begun_s))
            else:
                self._used[due.limit] += times * due.amount

    def _fallen(self, limit: str) -> _Falling:
        found = self._falling.get(limit)
        if found is None:
            found = self._falling[limit] = _Falling(self._counted_s)
        found.pass_to(self._counted_s)
        return found

    def barring(self, dues: Dues) -> Due | None:
        """Return the first that lets no such job start now; None: all do. A limit that is not known does."""
        used, most = self._used, self._most
        for due in dues:
            if not due.binds or due.limit not in most:
                continue
            if due.falls:
                if not self.fits(due.limit, due.needs):
                    return due
            elif used[due.limit] + (due.asks or due.amount) > most[due.limit] + _SLACK:
                return due
        return None

    def fits(self, limit: str, needs: int) -> bool:
        """Whether so much is left now."""
        return self.in_use(limit) + needs <= self._most[limit] + _SLACK

    def fits_at_s(self, limit: str, needs: int) -> float:
        """Return from when on so much is left if nothing starts or ends; infinite: that does not help."""
        if limit not in self._falling or self.fits(limit, needs):
            return 0.0 if self.fits(limit, needs) else math.inf
        found = self._fallen(limit)
        if found.rate <= _SLACK:
            return math.inf
        over = found.used + found.late + needs - self._most[limit]
        return self._clock.next_s(found.counted_s + over / found.rate + _SOON)

    def in_use(self, limit: str) -> float:
        """Return how much of a limit is in use."""
        return self._fallen(limit).used if limit in self._falling else self._used[limit]

    def never(self, dues: Dues) -> bool:
        """Whether a job is beyond a limit by itself."""
        most = self._most
        return any(due.binds and due.needs > most.get(due.limit, due.needs) for due in dues)


class Parked:
    """The records that wait for limits: by how much they need, those of one need by their places (less is first)."""

    def __init__(self, ledger: Ledger) -> None:
        """Nobody waits."""
        self._ledger = ledger
        self._records: dict[str, dict[int, list[tuple[float, int]]]] = {}
        # From when on the first of those that wait for a limit of what falls fits.
        self._falls_s: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self._records)

    @property
    def next_s(self) -> float:
        """When somebody fits though nothing ends (seconds); infinite: that does not come."""
        return min(self._falls_s.values(), default=math.inf)

    def add(self, due: Due, place: float, number: int) -> None:
        """Have a record wait for what bars it."""
        heapq.heappush(self._records.setdefault(due.limit, {}).setdefault(due.needs, []), (place, number))
        if due.falls:
            at_s = self._ledger.fits_at_s(due.limit, due.needs)
            self._falls_s[due.limit] = min(at_s, self._falls_s.get(due.limit, math.inf))

    def fallen(self, now_s: float) -> list[str]:
        """Return the limits of which somebody may fit by now."""
        return [limit for limit, at_s in self._falls_s.items() if at_s <= now_s]

    def released(self, limit: str, most: int) -> list[tuple[float, int]]:
        """Return, and let go, the first of those that fit now, at most so many: their places and numbers."""
        waiting = self._records.get(limit)
        if waiting is None:
            return []
        fit = [records for needs, records in waiting.items() if self._ledger.fits(limit, needs)]
        found = list[tuple[float, int]]()
        while fit and len(found) < most:
            first = min(fit, key=lambda records: records[0])
            found.append(heapq.heappop(first))
            if not first:
                fit.remove(first)
        for needs in [needs for needs, records in waiting.items() if not records]:
            del waiting[needs]
        if not waiting:
            del self._records[limit]
        if limit in self._falls_s:
            self._look_again(limit, waiting)
        return found

    def _look_again(self, limit: str, waiting: Collection[int]) -> None:
        del self._falls_s[limit]
        if waiting:
            # Who fits already is let go when one of those that were starts, or ends.
            least = min(waiting)
            fits = self._ledger.fits(limit, least)
            self._falls_s[limit] = math.inf if fits else self._ledger.fits_at_s(limit, least)


def of_limits(dues: Dues, limits: Container[str]) -> Dues:
    """Return what counts for some of these limits."""
    return tuple(due for due in dues if due.limit in limits) if dues else ()


def elsewhere_of(limits: Container[str], found: Iterable[Elsewhere]) -> tuple[Elsewhere, ...]:
    """Return what runs elsewhere and counts for some of these limits, what ends first first."""
    counted = (
        msgspec.structs.replace(one, dues=dues) for one in found if (dues := of_limits(one.dues, limits))
    )
    return tuple(sorted(counted, key=lambda one: one.left_s))


def sharing(names: Sequence[Collection[str]]) -> list[list[int]]:
    """Return the places of those that have some limit in common, directly or by others, together."""
    found: list[tuple[set[str], list[int]]] = []
    for place, own in enumerate(names):
        known, places = set(own), [place]
        for other in [one for one in found if not known.isdisjoint(one[0])]:
            found.remove(other)
            known, places = known | other[0], [*other[1], *places]
        found.append((known, sorted(places)))
    return [places for _, places in found]
