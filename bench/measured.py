"""What the benchmarks of memory measure, and their pictures show."""

from __future__ import annotations

import math

import msgspec


class Sizing(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one trace: waste against the request (1 = as much), share of jobs failed, GiB·h lost by them.

    `caused` is the share that failed although what was asked would have done.
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
    """One bound at one nominal share: how many jobs it was held against, and how many exceeded it."""

    trace: str
    bound: str
    size: str
    nominal: float
    jobs: int
    exceeded: int
    expected: float | None = None

    @property
    def observed(self) -> float:
        """The share that exceeded it; NaN of no jobs."""
        return self.exceeded / self.jobs if self.jobs else math.nan
