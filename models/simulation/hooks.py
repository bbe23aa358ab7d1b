"""What a simulation asks others: what a job is granted, and what that does to its speed."""

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
        """Return what a job gets; never above what it asked for."""

    def ended(self, number: int, now_s: float, start_s: float, granted: Amounts, *, enough: bool) -> None:
        """Learn of a job that ended; `enough` is False where it had too little memory."""


class AsAsked:
    """Every job gets what it asked for."""

    def __init__(self, jobs: Workload) -> None:
        self._asked = [amounts_of(row) for row in jobs.asked]

    def grant(self, number: int, now_s: float) -> Amounts:  # noqa: ARG002
        """Return what was asked."""
        return self._asked[number]

    def ended(self, number: int, now_s: float, start_s: float, granted: Amounts, *, enough: bool) -> None:
        """Learn nothing."""


class Moving(msgspec.Struct, frozen=True, gc=False):
    """A running job as an advisor sees it: which, from when (seconds) and where. When it will end nobody knows."""

    number: int
    start_s: float
    parts: Parts


class Advice(Protocol):
    """Moves waiting jobs: it is asked at most once in `period_s`, where something changed since and jobs wait.

    It is told of jobs by number as they come, start and end, and of nothing that lies ahead. A key is where a job
    stands in the queue, the least first, in the unit of the ordering's own keys: by those come in who arrive later.
    """

    @property
    def period_s(self) -> float:
        """Return how much time lies between two questions at least (seconds)."""

    def came(self, number: int, now_s: float) -> None:
        """Learn of a job that arrived, or came back, and waits."""

    def ended(self, number: int, now_s: float, start_s: float) -> None:
        """Learn of a job that ended."""

    def keys(self, now_s: float, waiting: Mapping[int, float], running: list[Moving]) -> Mapping[int, float]:
        """Return the new keys of waiting jobs, from the keys by which they stand now, in the queue's order.

        Who is left out keeps the one it has.
        """


class Told:
    """Another sizing; `told` hears of the share of the jobs that came so far."""

    def __init__(self, sizing: Sizing, jobs: Workload, told: Callable[[float], None]) -> None:
        self._sizing = sizing
        self._jobs = len(jobs)
        self._told = told
        self._came = 0

    def grant(self, number: int, now_s: float) -> Amounts:
        """Return what the other one says."""
        self._came += 1
        self._told(self._came / self._jobs)
        return self._sizing.grant(number, now_s)

    def ended(self, number: int, now_s: float, start_s: float, granted: Amounts, *, enough: bool) -> None:
        """Let the other one learn."""
        self._sizing.ended(number, now_s, start_s, granted, enough=enough)


# A job's number and what it is granted to how long it runs (seconds) on a node of speed 1.
RunTime = Callable[[int, Amounts], float]


def unchanged(jobs: Workload) -> RunTime:
    """Return the run time of who asked for too much: as long with less."""
    run_s = jobs.run_s.tolist()
    return lambda number, granted: run_s[number]  # noqa: ARG005


def slowed_by_cpus(jobs: Workload) -> RunTime:
    """Return a run time that grows as CPU or GPU share falls below what the job keeps busy: work is conserved.

    Of several resources that are short the shortest one counts. Above what it keeps busy nothing gets faster, and with
    all that was asked nothing gets slower: so long it ran, whatever a meter saw.
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
