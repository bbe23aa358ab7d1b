"""Orders without a plan, for the advisor in simulation: by age and likely run time, except for jobs held back."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy

from models.planning.problem import Bounds
from models.planning.prospects import MOST_GRACE_S, PATIENCE, RIPE
from models.planning.shadow_rolling import longest_wait_s
from models.planning.simulated import Asked, Expectation, PlannedAdvice
from models.simulation.hooks import Moving
from models.simulation.nodes import Cluster
from models.simulation.results import Results

# How often a plan is made and an order given (seconds). Production plans once a minute.
PERIOD_S = 600.0
# More than any run or arrival (seconds).
BEFORE_ALL = 1e10


class OneOrder:
    """Advice that always gives one order: each job's arrival, plus what its likely run time is worth."""

    period_s = 60.0

    def __init__(self, jobs: list[Asked], expectation: Expectation, strength: float) -> None:
        self._jobs = jobs
        self._expectation = expectation
        self._strength = strength
        self._came_s: dict[int, float] = {}

    def came(self, number: int, now_s: float) -> None:
        """Note when a job arrived."""
        self._came_s.setdefault(number, now_s)

    def ended(self, number: int, now_s: float, start_s: float) -> None:
        """Learn how long a job ran."""
        self._expectation.ended(self._jobs[number], now_s - start_s, now_s)

    def keys(self, now_s: float, waiting: Mapping[int, float], running: list[Moving]) -> Mapping[int, float]:  # noqa: ARG002
        """Return the keys."""
        run_s = {number: self._expectation.run_s(self._jobs[number])[0] for number in waiting}
        return aged_keys(self._came_s, run_s, self._strength)


class HeldBackFirst(OneOrder):
    """Advice that is told when jobs would have started without it: the same order, but jobs held back come first."""

    period_s = PERIOD_S

    def __init__(
        self,
        jobs: list[Asked],
        expectation: Expectation,
        strength: float,
        without_us: Results,
        most_delay_s: float,
    ) -> None:
        super().__init__(jobs, expectation, strength)
        self._submit_s, self._start_s = without_us.jobs.submit_s, without_us.start_s
        self._late_s = PATIENCE * most_delay_s

    def keys(self, now_s: float, waiting: Mapping[int, float], running: list[Moving]) -> Mapping[int, float]:
        """Return the keys."""
        here = self._submit_s <= now_s
        longest_s = float((numpy.minimum(self._start_s[here], now_s) - self._submit_s[here]).max(initial=0.0))
        begun_s = {number: self._start_s[number] for number in waiting if self._start_s[number] <= now_s}
        held_back = who_comes_first(now_s, self._came_s, begun_s, longest_s, self._late_s)
        return {**super().keys(now_s, waiting, running), **first_come(held_back, self._came_s)}


class HeldBackByShadow(PlannedAdvice):
    """The same rule without being told, by the shadow's starts and longest wait."""

    def __init__(
        self,
        jobs: list[Asked],
        cluster: Cluster,
        bounds: Bounds,
        expectation: Expectation,
        strength: float,
    ) -> None:
        super().__init__(jobs, cluster, bounds, expectation, period_s=PERIOD_S)
        self._strength = strength

    def keys(self, now_s: float, waiting: Mapping[int, float], running: list[Moving]) -> Mapping[int, float]:
        """Return the keys."""
        shadows = self._shadowed(now_s, waiting, tuple(self._holding(each, now_s) for each in running))
        longest_s = max(longest_wait_s(shadows.certain), longest_wait_s(shadows.now))
        begun_s = {
            number: one.starts_s[0]
            for number, one in shadows.now.begun.items()
            if one.starts_s and number in waiting
        }
        late_s = PATIENCE * self._bounds.most_delay_s
        held_back = who_comes_first(now_s, self._came_s, begun_s, longest_s, late_s)
        run_s = {number: self._expectation.run_s(self._jobs[number])[0] for number in waiting}
        aged = aged_keys(self._came_s, run_s, self._strength)
        return {**aged, **first_come(held_back, self._came_s)}


def aged_keys(came_s: Mapping[int, float], run_s: Mapping[int, float], strength: float) -> dict[int, float]:
    """Return a key for each job with a `run_s`, smallest first: `strength` times its run time plus its arrival."""
    return {number: likely_s + came_s[number] / strength for number, likely_s in run_s.items()}


def who_comes_first(
    now_s: float,
    came_s: Mapping[int, float],
    begun_s: Mapping[int, float],
    longest_s: float,
    late_s: float,
) -> set[int]:
    """Return the jobs that would have started by now and are `late_s` late, or have waited nearly the longest."""
    turn_s = RIPE * max(MOST_GRACE_S, longest_s)
    return {
        number
        for number, start_s in begun_s.items()
        if now_s - came_s[number] >= turn_s or now_s - start_s >= late_s
    }


def first_come(numbers: Collection[int], came_s: Mapping[int, float]) -> dict[int, float]:
    """Return keys below all others, in the order of arrival."""
    return {number: came_s[number] - BEFORE_ALL for number in numbers}
