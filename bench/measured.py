"""What the benchmarks of memory measure, and their pictures show."""

from __future__ import annotations

import math

import msgspec


class Sizing(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one trace: waste relative to the request's (1 means as much), share of failed jobs, their GiB·h.

    `caused` is the share that failed although the request would have been enough.
    """

    trace: str
    known: str
    method: str
    jobs: int
    sized: float
    waste: float
    failed: float
    caused: float
    failed_gib_h: float


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One bound at one nominal share: how many jobs were compared with it, and how many exceeded it."""

    trace: str
    bound: str
    size: str
    nominal: float
    jobs: int
    exceeded: int
    expected: float | None = None

    @property
    def observed(self) -> float:
        """The share of jobs that exceeded it; NaN without jobs."""
        return self.exceeded / self.jobs if self.jobs else math.nan
