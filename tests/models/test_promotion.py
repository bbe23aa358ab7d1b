"""The promotion gate: who is judged on what, and what refuses a new model."""

import math
from fractions import Fraction
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.records import Attempt
from accounting.request import JobRequest
from models.chance import at_least
from models.demand.prediction import ChainSettings, Predictor
from models.demand.training import train
from models.evaluate import JudgedJob, Sizing
from models.past_columns import columns_of_attempts
from models.promotion import (
    CURRENT,
    LEAST_JUDGED,
    NEW,
    USERS,
    Champion,
    Tally,
    Verdict,
    fails_more,
    gate,
    slice_of,
    verdict,
)
from tests.builders import T0, attempt

SETTINGS = ChainSettings()
SHARE = SETTINGS.most_failures


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


def tally(resized: int, failed: int, jobs: int = 1000, granted: float = 50.0) -> Tally:
    return Tally(jobs=jobs, resized=resized, failed=failed, requested=100.0, granted=granted)


@given(st.integers(0, 900), st.integers(0, 900), st.integers(0, 900), st.floats(0.001, 0.1))
def test_who_fails_no_more_jobs_is_never_worse(resized: int, failed: int, fewer: int, share: float) -> None:
    old, new = tally(900, failed), tally(max(resized, min(fewer, failed)), min(fewer, failed))
    assert not fails_more(old, new, share, 0.05)


@pytest.mark.parametrize(
    ("old", "new", "worse"),
    [
        (tally(1000, 0), tally(1000, 3), False),  # chance
        (tally(1000, 0), tally(1000, 6), True),
        (tally(100, 2), tally(900, 9), False),  # more cut, none of them more often
        (tally(100, 0), tally(900, 30), True),  # above what the site bears
        (tally(1000, 20), tally(1000, 19), False),
        (tally(0, 0), tally(1000, 12), False),  # users' requests: what the site bears is the bound
        (tally(0, 0), tally(1000, 20), True),
    ],
)
def test_failures_are_weighed_by_the_jobs_that_were_cut(old: Tally, new: Tally, worse: bool) -> None:
    assert fails_more(old, new, SHARE, 0.05) is worse


def judged(method: str, jobs: int, granted: float, failed: int = 0, name: str = "fit") -> list[JudgedJob]:
    return [
        JudgedJob(
            family=("user+name", "alice", name),
            dimension="memory",
            method=method,
            resized=granted < 1,
            requested=1.0,
            granted=granted + (number < failed),
            used=0.1,
            failed=number < failed,
        )
        for number in range(jobs)
    ]


def said(old: list[JudgedJob], new: list[JudgedJob], opponent: str = CURRENT) -> Verdict:
    return verdict([*old, *new], opponent, SHARE, len(new), T0)


def test_the_same_is_no_worse() -> None:
    found = said(judged(CURRENT, 100, 0.5), judged(NEW, 100, 0.5))
    assert (found.passed, found.judged, found.reasons) == (
        True,
        100,
        ("no worse than current model in anything that was judged",),
    )
    assert found.comparisons[0].new.saved_share == 0.5


def test_less_saved_is_refused_beyond_one_per_cent() -> None:
    assert said(judged(CURRENT, 100, 0.500), judged(NEW, 100, 0.509)).passed
    found = said(judged(CURRENT, 100, 0.50), judged(NEW, 100, 0.52))
    assert not found.passed
    assert found.reasons == ("memory: saves 48.0% of what was asked for, against 50.0%",)


def test_more_failures_are_refused() -> None:
    found = said(judged(CURRENT, 500, 0.5, 0), judged(NEW, 500, 0.4, 12))
    assert "memory: fails 12 of 500 resized jobs, against 0 of 500" in found.reasons


def test_a_family_made_worse_refuses_what_is_better_on_the_whole() -> None:
    old = [*judged(CURRENT, 2000, 0.5), *judged(CURRENT, 60, 0.3, name="sim")]
    better = judged(NEW, 2000, 0.4)
    found = said(old, [*better, *judged(NEW, 60, 0.45, name="sim")])
    assert found.reasons == (
        "jobs of alice named sim: memory: saves 55.0% of what was asked for, against 70.0%",
    )
    failing = said(old, [*better, *judged(NEW, 60, 0.2, failed=9, name="sim")])
    assert "jobs of alice named sim: memory: fails 9 of 60 resized jobs, against 0 of 60" in failing.reasons
    few = said([*old[:2000], *old[2000:2040]], [*better, *judged(NEW, 40, 0.45, name="sim")])
    assert few.passed, "a family of fewer than fifty is too few to tell"


def test_a_first_model_is_measured_against_the_users() -> None:
    assert said(judged(USERS, 100, 1.0), judged(NEW, 100, 0.5), USERS).passed
    assert not said(judged(USERS, 100, 1.0), judged(NEW, 100, 0.5, failed=9), USERS).passed
    assert said([], [], USERS).passed


def test_too_few_jobs_leave_the_current_model() -> None:
    few = LEAST_JUDGED - 1
    found = said(judged(CURRENT, few, 0.9), judged(NEW, few, 0.1))
    assert not found.passed
    assert found.reasons[0].startswith(f"{few} jobs to judge on are too few, 50 are needed")


def test_jobs_of_which_no_use_is_known_are_not_called_too_few() -> None:
    """A dump without lines of steps has thousands of jobs, and none to judge by."""
    first = verdict([], USERS, 0.0, 1657, T0)
    assert first.passed
    assert first.reasons[0].startswith("of 1657 jobs to judge on no use is known")
    later = verdict([], CURRENT, 0.0, 1657, T0)
    assert not later.passed
    assert "and the current model stays" in later.reasons[0]
    assert "needed" not in later.reasons[0]


def series(*mem_mib: float, start: int = 0) -> list[Attempt]:
    """One job of ten minutes every 1000 s, asking 4096 MiB."""
    return [
        attempt(
            job_id=number,
            submit_s=T0 + 1000 * number,
            start_s=T0 + 1000 * number,
            elapsed_s=600,
            req_mem_mib=4096,
            mem_mib=mib,
        )
        for number, mib in enumerate(mem_mib, start)
    ]


def by_prediction(predictor: Predictor) -> Sizing:
    def sizing(request: JobRequest) -> JobRequest:
        memory = predictor.predict(request).memory
        asked = request.mem_per_node_mib or 0
        return (
            request
            if memory is None
            else msgspec.structs.replace(request, mem_per_node_mib=min(asked, math.ceil(memory.upper)))
        )

    return sizing


def champion_of(attempts: list[Attempt]) -> Champion:
    trained = train(attempts, 50)
    predictor = Predictor("old", trained.history, trained.growth(SHARE), SETTINGS)
    return Champion(predictor, max(attempt.row.end_s for attempt in attempts))


def gated(attempts: list[Attempt], champion: Champion | None) -> Verdict:
    def later(from_s: int) -> list[Attempt]:
        return [one for one in attempts if one.row.submit_s >= from_s]

    return gate(columns_of_attempts(attempts), later, SETTINGS, 50, by_prediction, champion)


def test_neither_model_has_seen_what_it_is_judged_on() -> None:
    known = series(*[200.0 + number % 5 for number in range(100)])
    later = series(*[200.0] * 120, start=100)
    champion = champion_of(known)
    past = columns_of_attempts([*known, *later])
    part = slice_of(past, champion)
    before, after = past.part(part.before), past.part(part.after)
    assert len(after) == 60
    assert min(after.submit_s) == part.split_s > champion.last_end_s
    assert max(before.end_s) < part.split_s
    assert len(before) == 160
    assert not slice_of(columns_of_attempts(known), champion).after.any()
    assert slice_of(columns_of_attempts(known), None).after.sum() == 20


def test_a_model_that_learned_from_wrong_figures_is_refused() -> None:
    """A meter that shows too little for a while: what learned from it would fail the jobs that come after."""
    known = series(*[200.0 + number % 5 for number in range(100)])
    bad = series(*[5.0] * 70, *[200.0 + number % 5 for number in range(70)], start=100)
    champion = champion_of(known)
    found = gated([*known, *bad], champion)
    assert not found.passed
    assert any(reason.startswith("memory: fails") for reason in found.reasons)
    good = series(*[200.0 + number % 5 for number in range(140)], start=100)
    assert gated([*known, *good], champion).passed


def test_a_model_that_knows_newer_work_passes() -> None:
    known = series(*[2000.0] * 60)
    later = series(*[150.0 + number % 7 for number in range(200)], start=60)
    found = gated([*known, *later], champion_of(known))
    assert found.passed, found.reasons
    (memory,) = (one for one in found.comparisons if one.dimension == "memory")
    assert memory.new.saved_share > memory.old.saved_share + 0.2


def test_nothing_new_leaves_the_current_model() -> None:
    known = series(*[200.0] * 60)
    found = gated(known, champion_of(known))
    assert (found.passed, found.judged) == (False, 0)


@pytest.mark.parametrize("attempts", [[], series(200.0), series(*[200.0] * 4)])
def test_a_first_model_of_very_few_jobs_has_nothing_against_it(attempts: list[Attempt]) -> None:
    assert gated(attempts, None).passed
