"""What both models did to the judged jobs, compared; and what makes the gate refuse a new model."""

import math
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.chance import at_least
from models.demand.prediction import ChainSettings
from models.judging.outcomes import LargeFamilies, Outcome, Tally
from models.judging.promotion import (
    CURRENT,
    LEAST_JUDGED,
    NEW,
    USERS,
    Sums,
    Verdict,
    added_up,
    fails_more,
    verdict,
)
from tests.builders import T0

SHARE = ChainSettings().most_failures


@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from([0.01, 0.2, 0.5, 0.9]))
def test_the_tail_is_that_of_the_binomial_distribution(failed: int, jobs: int, share: float) -> None:
    exact = Fraction(share)
    tail = sum(math.comb(jobs, k) * exact**k * (1 - exact) ** (jobs - k) for k in range(failed, jobs + 1))
    assert at_least(failed, jobs, share) == pytest.approx(float(tail), abs=1e-9)


@given(st.integers(1, 3000), st.floats(0, 1))
def test_more_failures_are_never_more_likely(jobs: int, share: float) -> None:
    chances = [at_least(failed, jobs, share) for failed in range(min(jobs, 40) + 1)]
    assert chances[0] == 1
    assert all(0 <= more <= less + 1e-9 for less, more in pairwise(chances))


def tally(resized: int, failed: int) -> Tally:
    return Tally(jobs=1000, resized=resized, failed=failed, requested=100.0, granted=50.0)


@given(st.integers(0, 900), st.integers(0, 900), st.integers(0, 900), st.floats(0.001, 0.1))
def test_a_model_that_fails_no_more_jobs_is_never_worse(
    resized: int, failed: int, fewer: int, share: float
) -> None:
    old, new = tally(900, failed), tally(max(resized, min(fewer, failed)), min(fewer, failed))
    assert not fails_more(old, new, share, 0.05)


@pytest.mark.parametrize(
    ("old", "new", "worse"),
    [
        (tally(1000, 0), tally(1000, 3), False),  # chance
        (tally(1000, 0), tally(1000, 6), True),
        (tally(100, 2), tally(900, 9), False),  # more jobs cut, each no more often short
        (tally(100, 0), tally(900, 30), True),  # above what the site tolerates
        (tally(1000, 20), tally(1000, 19), False),
        (tally(0, 0), tally(1000, 12), False),  # users' requests: what the site tolerates is the bound
        (tally(0, 0), tally(1000, 20), True),
    ],
)
def test_failures_are_weighed_by_the_number_of_jobs_cut(old: Tally, new: Tally, worse: bool) -> None:
    assert fails_more(old, new, SHARE, 0.05) is worse


class Job(NamedTuple):
    """A judged job of a family of that name, which requested 1 GiB·h of memory."""

    method: str
    name: str
    granted: float
    failed: bool


def judged(method: str, jobs: int, granted: float, failed: int = 0, name: str = "fit") -> list[Job]:
    return [Job(method, name, granted, number < failed) for number in range(jobs)]


def said(old: list[Job], new: list[Job], opponent: str = CURRENT) -> Verdict:
    names = list(dict.fromkeys(job.name for job in (*old, *new)))
    places = np.array([names.index(job.name) for job in (*old, *new)], np.int64)
    families = LargeFamilies([("user+name", "alice", name) for name in names], places)
    outcomes = (outcome_of(old, 0, opponent), outcome_of(new, len(old), NEW))
    return verdict(added_up(outcomes, families), opponent, SHARE, len(new), T0)


def outcome_of(jobs: list[Job], first: int, method: str) -> Outcome:
    assert {job.method for job in jobs} <= {method}
    granted, failed = (
        np.array([job.granted for job in jobs]),
        np.array([job.failed for job in jobs], np.bool_),
    )
    return Outcome(
        dimension="memory",
        method=method,
        places=first + np.arange(len(jobs)),
        resized=granted < 1,
        failed=failed,
        requested=np.ones(len(jobs)),
        granted=granted + failed,
        used=np.full(len(jobs), 0.1),
    )


def test_equal_results_pass() -> None:
    found = said(judged(CURRENT, 100, 0.5), judged(NEW, 100, 0.5))
    assert (found.passed, found.judged, found.reasons) == (
        True,
        100,
        ("no worse than current model in anything that was judged",),
    )
    assert found.comparisons[0].new.saved_share == 0.5


def test_saving_less_by_more_than_one_per_cent_is_refused() -> None:
    assert said(judged(CURRENT, 100, 0.500), judged(NEW, 100, 0.509)).passed
    found = said(judged(CURRENT, 100, 0.500), judged(NEW, 100, 0.511))
    assert not found.passed
    assert found.reasons == ("memory: saves 48.9% of what was asked for, compared with 50.0%",)


def test_more_failures_than_one_draw_in_twenty_gives_are_refused() -> None:
    # At the rate of the current model, chance alone fails three or more in 8 % of draws, four or more in 2 %.
    assert said(judged(CURRENT, 500, 0.5), judged(NEW, 500, 0.4, 3)).passed
    found = said(judged(CURRENT, 500, 0.5), judged(NEW, 500, 0.4, 4))
    assert "memory: fails 4 of 500 resized jobs, compared with 0 of 500" in found.reasons


def test_a_family_made_worse_refuses_a_model_that_is_better_overall() -> None:
    old = [*judged(CURRENT, 2000, 0.5), *judged(CURRENT, 60, 0.3, name="sim")]
    better = judged(NEW, 2000, 0.4)
    assert said(old, [*better, *judged(NEW, 60, 0.39, name="sim")]).passed
    found = said(old, [*better, *judged(NEW, 60, 0.41, name="sim")])
    assert found.reasons == (
        "jobs of alice named sim: memory: saves 59.0% of what was asked for, compared with 70.0%",
    )
    failing = said(old, [*better, *judged(NEW, 60, 0.2, failed=9, name="sim")])
    assert (
        "jobs of alice named sim: memory: fails 9 of 60 resized jobs, compared with 0 of 60"
        in failing.reasons
    )
    few = said([*old[:2000], *old[2000:2040]], [*better, *judged(NEW, 40, 0.45, name="sim")])
    assert few.passed, "a family of fewer than fifty is too few to tell"


def test_the_more_families_are_compared_the_less_likely_by_chance_must_one_fail_more() -> None:
    def with_families(count: int) -> Verdict:
        others = [str(number) for number in range(count - 1)]
        old, new = (
            [job for name in others for job in judged(of, 60, 0.5, name=name)] for of in (CURRENT, NEW)
        )
        # Chance gives that in 2 % of draws.
        failing = judged(NEW, 60, 0.2, failed=3, name="sim")
        return said([*old, *judged(CURRENT, 60, 0.5, name="sim")], [*new, *failing])

    assert [with_families(count).passed for count in (2, 20)] == [False, True]


def test_a_first_model_is_measured_against_the_users_requests() -> None:
    assert said(judged(USERS, 100, 1.0), judged(NEW, 100, 0.5), USERS).passed
    assert not said(judged(USERS, 100, 1.0), judged(NEW, 100, 0.5, failed=9), USERS).passed
    assert said([], [], USERS).passed


def test_too_few_jobs_leave_the_current_model() -> None:
    few = LEAST_JUDGED - 1
    found = said(judged(CURRENT, few, 0.9), judged(NEW, few, 0.1))
    assert not found.passed
    assert found.reasons[0].startswith(f"only {few} jobs to judge on, 50 are needed")
    assert said(judged(CURRENT, LEAST_JUDGED, 0.9), judged(NEW, LEAST_JUDGED, 0.1)).passed


def test_jobs_of_unknown_use_are_not_called_too_few() -> None:
    """A dump without step lines has thousands of jobs, and none to judge by."""
    first = verdict(Sums(), USERS, 0.0, 1657, T0)
    assert first.passed
    assert first.reasons[0].startswith("for none of the 1657 jobs to judge on is the use known")
    later = verdict(Sums(), CURRENT, 0.0, 1657, T0)
    assert not later.passed
    assert "and the current model stays" in later.reasons[0]
    assert "needed" not in later.reasons[0]
