"""What running jobs use together of limits of their account, QOS or array: Slurm's limits on use at a time. Pure.

A job that would exceed one is passed over, and holds nobody up, until something that counts for the limit ends. A
limit is known by its name, which means the same from plan to plan. For some limits, a job counts less the longer it
runs (GrpTRESRunMins: the time that it may still use); Slurm recounts those from time to time. For others, what a job
has used so far stays used when it ends (GrpTRESMins).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

Limits = Mapping[str, int]
# Amounts that are not whole numbers count as equal within this.
_SLACK = 1e-3
_SOON = 1e-6


class Due(NamedTuple):
    """How much a job counts for a limit from its start on, less `falls` for each second that it runs.

    The job may exceed a limit that does not `bind` it. It may start if `asks` are left; 0: `amount`. What it `spends`
    each second is not given back when it ends.
    """

    limit: str
    amount: int
    binds: bool = True
    falls: float = 0.0
    asks: int = 0
    spends: float = 0.0

    @property
    def needs(self) -> int:
        """How much has to be left for the job to start."""
        return self.asks or self.amount


Dues = tuple[Due, ...]


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that runs where nothing is planned and counts while it likely runs. It has run for `ran_s` (seconds)."""

    dues: Dues
    left_s: float
    ran_s: float = 0.0


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """When Slurm recounts what falls: at `at_s` (any one such time, seconds) and each `every_s` before and after it.

    `every_s` 0: all the time.
    """

    at_s: float = 0.0
    every_s: float = 0.0

    def last_s(self, now_s: float) -> float:
        """Return the last recount."""
        if not self.every_s:
            return now_s
        return self.at_s + math.floor((now_s - self.at_s) / self.every_s + _SOON) * self.every_s

    def next_s(self, from_s: float) -> float:
        """Return the next recount, at `from_s` or later."""
        if not self.every_s or math.isinf(from_s):
            return from_s
        return self.at_s + math.ceil((from_s - self.at_s) / self.every_s - _SOON) * self.every_s

    def as_of(self, later_s: float) -> Clock:
        """Return this clock for a caller whose zero is `later_s` later."""
        return Clock(at_s=self.at_s - later_s, every_s=self.every_s)


CONTINUOUS = Clock()


class _Falling:
    """How much is in use of a limit that falls, as of Slurm's last recount."""

    def __init__(self, counted_s: float) -> None:
        self.used = 0.0
        self.counted_s = counted_s
        # How much it falls each second; and how much less at the next recount, as some jobs began since the last one.
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
    """How much of each limit is in use at a moment, which is 0 at first."""

    def __init__(
        self, most: Limits, in_use: Iterable[tuple[Dues, float]] = (), clock: Clock = CONTINUOUS
    ) -> None:
        """Count what is in use: pairs of dues and how long they have been counting (seconds)."""
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
        """Count a job that starts now, or that began at `begun_s`."""
        self._add(dues, begun_s, 1, self._counted_s)

    def give(self, dues: Dues, begun_s: float = 0.0) -> None:
        """Stop counting a job that began at `begun_s` and has ended."""
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
        """Return the first due that bars such a job from starting now; None: none does. Unknown limits bar nothing."""
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
        """Whether that much of a limit is left now."""
        return self.in_use(limit) + needs <= self._most[limit] + _SLACK

    def fits_at_s(self, limit: str, needs: int) -> float:
        """Return from when on that much is left if nothing starts or ends; infinite: time alone does not help."""
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
        """Whether a job exceeds a limit all by itself."""
        most = self._most
        return any(due.binds and due.needs > most.get(due.limit, due.needs) for due in dues)


class Parked:
    """The records that wait for limits: grouped by how much they need, each group ordered by place (less is first)."""

    def __init__(self, ledger: Ledger) -> None:
        """Begin with no record waiting."""
        self._ledger = ledger
        self._records: dict[str, dict[int, list[tuple[float, int]]]] = {}
        # For each limit that falls: when the first of its waiting records fits.
        self._falls_s: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether any record waits."""
        return bool(self._records)

    @property
    def next_s(self) -> float:
        """When a record first fits although nothing ends (seconds); infinite: never."""
        return min(self._falls_s.values(), default=math.inf)

    def add(self, due: Due, place: float, number: int) -> None:
        """Let a record wait for the due that bars it."""
        heapq.heappush(self._records.setdefault(due.limit, {}).setdefault(due.needs, []), (place, number))
        if due.falls:
            at_s = self._ledger.fits_at_s(due.limit, due.needs)
            self._falls_s[due.limit] = min(at_s, self._falls_s.get(due.limit, math.inf))

    def fallen(self, now_s: float) -> list[str]:
        """Return the limits whose waiting records may fit by now."""
        return [limit for limit, at_s in self._falls_s.items() if at_s <= now_s]

    def released(self, limit: str, most: int) -> list[tuple[float, int]]:
        """Remove and return the first records that fit now, at most `most`: their places and numbers."""
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
            # A record that already fits is released when one of those released now starts, or ends.
            least = min(waiting)
            fits = self._ledger.fits(limit, least)
            self._falls_s[limit] = math.inf if fits else self._ledger.fits_at_s(limit, least)


def of_limits(dues: Dues, limits: Container[str]) -> Dues:
    """Return the dues that count for some of these limits."""
    return tuple(due for due in dues if due.limit in limits) if dues else ()


def elsewhere_of(limits: Container[str], found: Iterable[Elsewhere]) -> tuple[Elsewhere, ...]:
    """Return what runs elsewhere and counts for some of these limits, the earliest end first."""
    counted = (
        msgspec.structs.replace(one, dues=dues) for one in found if (dues := of_limits(one.dues, limits))
    )
    return tuple(sorted(counted, key=lambda one: one.left_s))


def sharing(names: Sequence[Collection[str]]) -> list[list[int]]:
    """Group the positions of those that have a limit in common, directly or through others."""
    found: list[tuple[set[str], list[int]]] = []
    for place, own in enumerate(names):
        known, places = set(own), [place]
        for other in [one for one in found if not known.isdisjoint(one[0])]:
            found.remove(other)
            known, places = known | other[0], [*other[1], *places]
        found.append((known, sorted(places)))
    return [places for _, places in found]
