"""The fewest CPUs that slow jobs by no more than the site tolerates, and what jobs that were cut may teach."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.request import JobRequest
from models.demand.prediction import ChainSettings, Predictor
from models.demand.slowdown import expected_slowdown, fewest_cpus, shares_of
from models.past.attempts import past_job, request_of
from models.past.history import History
from models.past.jobs import PastJob
from tests.builders import attempt

BUSY = st.lists(st.floats(0.1, 40), min_size=1, max_size=30)


def job(busy: float, *, given: int = 64, **changes: Any) -> PastJob:
    told = {"asked_cpus": 64, "given_cpus": given, "cores_per_task": busy, "num_tasks": 1}
    return msgspec.structs.replace(past_job(attempt()), **(told | changes))


def jobs(*busy: float, given: int = 64) -> list[PastJob]:
    return [job(each, given=given) for each in busy]


@given(BUSY, st.floats(0, 1))
def test_the_bound_is_kept_and_one_cpu_less_would_break_it(busy: list[float], most: float) -> None:
    upper = max(busy) * 1.1
    shares = shares_of(jobs(*busy), upper)
    cpus = fewest_cpus(jobs(*busy), upper, most)
    assert cpus <= upper
    assert expected_slowdown(shares, cpus) <= most + 1e-9
    if cpus < upper and cpus > 1:
        assert expected_slowdown(shares, cpus - 1) > most


@given(BUSY, st.floats(0, 1), st.floats(0, 1))
def test_a_site_that_tolerates_more_gets_no_more_cpus(busy: list[float], one: float, other: float) -> None:
    upper = max(busy) * 1.1
    less, more = sorted((one, other))
    assert fewest_cpus(jobs(*busy), upper, more) <= fewest_cpus(jobs(*busy), upper, less)


def test_a_wide_job_loses_more_cpus_than_a_narrow_one_for_the_same_share() -> None:
    assert fewest_cpus(jobs(*[20.0] * 200), 20.2, 0.1) == 19
    assert fewest_cpus(jobs(*[20.0] * 200), 20.2, 0.2) == 17
    assert fewest_cpus(jobs(*[2.0] * 200), 2.02, 0.2) == 2.0
    assert fewest_cpus(jobs(*[2.0] * 200), 2.4, 0.0) == 2.4


def test_one_job_alone_teaches_little() -> None:
    few, many = fewest_cpus(jobs(4.0), 8.0, 0.2), fewest_cpus(jobs(*[4.0] * 100), 8.0, 0.2)
    assert many == 4
    assert few > many


def test_jobs_cut_short_and_jobs_of_unknown_use_teach_nothing() -> None:
    known = jobs(*[8.0] * 5)
    nothing = [job(1.0, complete=False), job(1.0, cores_per_task=None)]
    assert shares_of([*nothing, *known], 8.4) == shares_of(known, 8.4)


def test_what_is_only_known_to_be_busy_goes_to_those_that_needed_more() -> None:
    known = [job(2.0), job(4.0, given=4), job(8.0)]
    # Three jobs and two pretended ones: the first has a fifth; the share of the censored job goes to those beyond it.
    assert dict(shares_of(known, 9.0)) == pytest.approx({2.0: 0.2, 8.0: 0.8 / 3, 9.0: 0.8 * 2 / 3})


def test_a_job_whose_own_request_was_too_small_shows_all_that_it_needed() -> None:
    shares = dict(shares_of([job(4.0, given=4, asked_cpus=4)], 9.0))
    assert shares == pytest.approx({4.0: 1 / 3, 9.0: 2 / 3})


def test_jobs_that_were_all_cut_do_not_lead_to_ever_smaller_grants() -> None:
    """The grants of a family that keeps 10 cores busy, each learned from what the grant before let the jobs show."""
    known, granted = jobs(*[10.0] * 50), [64.0]
    for _ in range(20):
        upper = max(one.cores_per_task or 0 for one in known) * 1.1
        granted.append(fewest_cpus(known, upper, 0.2))
        given = int(granted[-1])
        known = jobs(*[min(10.0, given)] * 50, given=given)
    assert min(granted) >= 9
    assert sum(granted[1:]) / 20 >= 9


def predictor(most_slowdown: float) -> Predictor:
    history = History(50)
    for number in range(50):
        ran = attempt(job_id=number, submit_s=1000 * number, elapsed_s=3600)
        history.join(request_of(ran), job(8.0, wall_s=3600, job_id=number, given=64))
    return Predictor("m", history, {}, ChainSettings(most_slowdown=most_slowdown))


def asked(limit_s: int | None) -> JobRequest:
    return msgspec.structs.replace(request_of(attempt()), cpus_per_task=64, wall_s=limit_s)


@pytest.mark.parametrize(
    ("most_slowdown", "limit_s", "fewest"),
    [
        (0.0, 86400, None),  # the site tolerates no slowdown
        (0.3, None, None),  # it is unknown when the job would be ended
        (0.3, 86400, 7.0),
        (0.3, 4100, 8.0),  # with fewer it would run into its limit
    ],
)
def test_no_job_is_slowed_into_its_limit(
    most_slowdown: float, limit_s: int | None, fewest: float | None
) -> None:
    prediction = predictor(most_slowdown).predict(asked(limit_s))
    assert prediction.cores is not None
    assert prediction.cores.upper > 8.0
    assert prediction.fewest_cpus == fewest
