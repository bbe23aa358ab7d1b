"""What a simulation asks its callers: what a job is granted, and how that changes its speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
import numpy

from models.scheduling.room import Amounts, Parts, amounts_of
from models.simulation.workload import Workload


class Sizing(Protocol):
    """Decides what a job is granted when it comes, and may learn from those that ended."""

    def grant(self, number: int, now_s: float) -> Amounts:
        """Return what a job is granted; never more than it asked for."""

    def ended(self, number: int, now_s: float, start_s: float, granted: Amounts, *, enough: bool) -> None:
        """Learn from a job that ended; `enough` is False if it had too little memory."""


class AsAsked:
    """Grants every job what it asked for."""

    def __init__(self, jobs: Workload) -> None:
        self._asked = [amounts_of(row) for row in jobs.asked]

    def grant(self, number: int, now_s: float) -> Amounts:  # noqa: ARG002
        """Return what was asked."""
        return self._asked[number]

    def ended(self, number: int, now_s: float, start_s: float, granted: Amounts, *, enough: bool) -> None:
        """Learn nothing."""


class Moving(msgspec.Struct, frozen=True, gc=False):
    """A running job as an advisor sees it: its number, its start (seconds) and its nodes. Its end is not known."""

    number: int
    start_s: float
    parts: Parts


class Advice(Protocol):
    """Moves waiting jobs: it is asked at most once in `period_s`, if something changed since and jobs wait.

    It is told the numbers of jobs as they come, start and end, and nothing of the future. A key is a job's position
    in the queue, the least first, in the unit of the ordering's own keys: later arrivals are queued by those.
    """

    @property
    def period_s(self) -> float:
        """Return the least time between two calls of `keys` (seconds)."""

    def came(self, number: int, now_s: float) -> None:
        """Learn of a job that arrived, or came back, and waits."""

    def ended(self, number: int, now_s: float, start_s: float) -> None:
        """Learn of a job that ended."""

    def keys(self, now_s: float, waiting: Mapping[int, float], running: list[Moving]) -> Mapping[int, float]:
        """Return new keys of waiting jobs, given their present keys in the queue's order.

        A job that is left out keeps its key.
        """


class Told:
    """Another sizing, with progress: `told` is called with the share of the jobs that have come so far."""

    def __init__(self, sizing: Sizing, jobs: Workload, told: Callable[[float], None]) -> None:
        self._sizing = sizing
        self._jobs = len(jobs)
        self._told = told
        self._came = 0

    def grant(self, number: int, now_s: float) -> Amounts:
        """Return what the other sizing grants."""
        self._came += 1
        self._told(self._came / self._jobs)
        return self._sizing.grant(number, now_s)

    def ended(self, number: int, now_s: float, start_s: float, granted: Amounts, *, enough: bool) -> None:
        """Let the other sizing learn."""
        self._sizing.ended(number, now_s, start_s, granted, enough=enough)


# From a job's number and grant to its run time (seconds) on a node of speed 1.
RunTime = Callable[[int, Amounts], float]


def unchanged(jobs: Workload) -> RunTime:
    """Return run times of jobs that asked for too much: with less, they run as long."""
    run_s = jobs.run_s.tolist()
    return lambda number, granted: run_s[number]  # noqa: ARG005


def slowed_by_cpus(jobs: Workload) -> RunTime:
    """Return run times that grow as the CPU or GPU share falls below what a job keeps busy: work is conserved.

    If several resources are short, the shortest one counts. Grants above what the job keeps busy make nothing faster.
    With all that was asked nothing gets slower: it ran that long, whatever a meter saw.
    """
    run_s = jobs.run_s.tolist()
    used = [amounts_of(row) for row in numpy.minimum(jobs.used, jobs.asked)]

    def run_time(number: int, granted: Amounts) -> float:
        cpu_milli, _, gpu_milli = used[number]
        slower = 1.0
        if cpu_milli > granted[0] > 0:
            slower = cpu_milli / granted[0]
        if gpu_milli > granted[2] > 0:
            slower = max(slower, gpu_milli / granted[2])
        return float(run_s[number]) * slower

    return run_time
