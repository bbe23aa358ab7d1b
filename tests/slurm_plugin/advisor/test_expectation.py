"""How long the advisor expects jobs to run."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.decisions.decision import Decision
from accounting.decisions.token import format_token
from accounting.records import Attempt
from accounting.request import Grant, JobRequest
from models.demand.chain import Estimate
from models.demand.prediction import ChainSettings, Predictor
from models.past.attempts import past_job
from models.past.attempts import request_of as past_request
from models.past.history import History
from slurm_plugin.advisor.expectation import Expectations
from slurm_plugin.advisor.run_time import (
    UNLIMITED_S,
    RunTime,
    by_limit,
    likely_left_s,
    most_left_s,
    request_of,
    within_limit,
)
from slurm_plugin.slurm.snapshot import QueuedJob
from tests.builders import attempt, decision
from tests.slurm_plugin.slurm.queued import NOW_S, running, waiting


def ended(wall_s: int, number: int) -> Attempt:
    return attempt(
        token=False,
        job_id=number + 1,
        job_name="fit-7",
        user="ann",
        submit_s=int(NOW_S) - 90_000 + number,
        start_s=int(NOW_S) - 80_000 + number,
        elapsed_s=wall_s,
    )


def predictor_of(walls_s: Sequence[int]) -> Predictor:
    history = History(50)
    for number, wall_s in enumerate(walls_s):
        one = ended(wall_s, number)
        history.add(past_request(one), past_job(one))
    return Predictor("m1", history, {}, ChainSettings())


def test_without_a_model_or_evidence_the_limit_counts_and_the_basis_says_so() -> None:
    none = Expectations(None).run_time(waiting(1))
    assert (none.likely_s, none.upper_s, none.basis) == (
        3600,
        3600,
        "its time limit, because there is no model yet",
    )
    stranger = Expectations(predictor_of([100] * 9)).run_time(waiting(1, user="bob", limit_s=1800))
    assert stranger.likely_s == 1800
    assert "no finished job like it" in stranger.basis


def test_jobs_run_as_long_as_similar_jobs_and_never_beyond_their_limit() -> None:
    expectations = Expectations(predictor_of([100] * 9))
    found = expectations.run_time(waiting(1, cpus=2))
    assert 99 <= found.likely_s <= 105
    assert found.upper_s >= found.likely_s
    assert (found.jobs, found.basis) == (9, "9 earlier jobs like it")
    short = expectations.run_time(waiting(2, limit_s=60))
    assert (short.likely_s, short.upper_s) == (60, 60)


def test_the_run_time_of_an_unknown_job_comes_from_its_user_or_else_from_its_limit() -> None:
    expectations = Expectations(predictor_of([100] * 9))
    limit_s = ended(100, 0).row.limit_s
    users, others = (
        expectations.run_time(waiting(1, user=user, name="new", limit_s=limit_s)) for user in ("ann", "bob")
    )
    assert (users.likely_s, users.basis) == (100, "9 earlier jobs of ann")
    assert (others.likely_s, others.basis) == (100, "9 earlier jobs of any user with the same limit")
    assert expectations.predictor
    for number in range(30, 50):
        one = ended(1000, number)
        expectations.predictor.join(past_request(one), past_job(one))
    assert expectations.run_time(waiting(1, user="bob", name="new", limit_s=limit_s)).likely_s == 1000


def test_jobs_that_have_ended_count_at_once_and_an_unchanged_family_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    predictor = predictor_of([100] * 9)
    asked: list[JobRequest] = []
    wall_time = predictor.wall_time

    def counted(request: JobRequest) -> Estimate | None:
        asked.append(request)
        return wall_time(request)

    monkeypatch.setattr(predictor, "wall_time", counted)
    expectations = Expectations(predictor)
    before = [expectations.run_time(waiting(number)).likely_s for number in range(1, 50)]
    assert len(set(before)) == 1
    assert len(asked) == 1
    for number in range(9, 40):
        one = ended(1000, number)
        assert predictor.join(past_request(one), past_job(one))
    assert expectations.run_time(waiting(1)).likely_s > 900
    assert len(asked) == 2


def names(jobs: int) -> list[str]:
    """Return names of `jobs` jobs, of a thousand families."""
    letters = [chr(97 + number) for number in range(10)]
    return [
        "-".join(letters[number // 10**place % 10] for place in range(3)) + f"-{number}"
        for number in range(jobs)
    ]


def test_ten_thousand_jobs_of_a_thousand_families_take_at_most_a_few_seconds() -> None:
    one = ended(100, 1)
    history, job = History(50), past_job(one)
    for family in names(1000):
        for number in range(3):
            request = msgspec.structs.replace(past_request(one), job_name=family)
            history.add(request, msgspec.structs.replace(job, end_s=job.end_s + number))
    expectations = Expectations(Predictor("m1", history, {}, ChainSettings()))
    jobs = [waiting(number, name=name) for number, name in enumerate(names(10_000))]
    began_s = time.process_time()
    assert all(expectations.run_time(job).jobs for job in jobs)
    assert time.process_time() - began_s < 3


@given(
    likely=st.floats(allow_nan=True, allow_infinity=True),
    upper=st.floats(allow_nan=True, allow_infinity=True),
    limit_s=st.one_of(st.none(), st.integers(0, 10**7)),
)
def test_any_prediction_gives_a_run_time_within_the_limit(
    likely: float, upper: float, limit_s: int | None
) -> None:
    found = within_limit(waiting(1, limit_s=limit_s), Estimate(likely, upper, 5))
    assert 1 <= found.likely_s <= found.upper_s <= (UNLIMITED_S if limit_s is None else max(1, limit_s))


@pytest.mark.parametrize("estimate", [(math.nan, 9.0), (9.0, math.inf), (0.0, 9.0)])
def test_a_prediction_that_is_no_time_is_not_used(estimate: tuple[float, float]) -> None:
    assert within_limit(waiting(1), Estimate(*estimate, 5)).likely_s == 3600


@pytest.mark.parametrize(
    ("fields", "left_s"),
    [
        ({}, 3000.0),
        ({"end_s": NOW_S + 30}, 30.0),  # it is being preempted
        ({"limit_s": 480}, 180.0),
        ({"limit_s": 480, "state": "COMPLETING"}, 0.0),
        ({"state": "COMPLETING", "end_s": NOW_S}, 0.0),
        # Slurm shows when it would have ended.
        (
            {"state": "SUSPENDED", "ran_before_s": 60.0, "stopped_s": NOW_S - 540, "end_s": NOW_S + 3000},
            3540.0,
        ),
        ({"limit_s": 480, "state": "SUSPENDED", "ran_before_s": 500.0, "stopped_s": NOW_S - 100}, 0.0),
    ],
)
def test_how_much_longer_slurm_lets_a_job_run(fields: dict[str, Any], left_s: float) -> None:
    assert most_left_s(running(1, **fields), NOW_S, over_limit_s=300.0) == left_s


@given(
    likely_s=st.floats(1, 1e6),
    more=st.floats(1, 100),
    ran_s=st.floats(0, 1e7),
    left_s=st.floats(0, 1e7),
)
def test_the_time_left_is_never_negative_nor_beyond_the_limit(
    likely_s: float, more: float, ran_s: float, left_s: float
) -> None:
    run_time = RunTime(likely_s=likely_s, upper_s=likely_s * more, basis="", jobs=5)
    assert 0 <= likely_left_s(run_time, ran_s, left_s) <= left_s


def test_a_job_that_has_run_longer_than_similar_jobs_is_expected_to_run_on() -> None:
    run_time = RunTime(likely_s=100, upper_s=400, basis="", jobs=9)
    fresh, late, later = (likely_left_s(run_time, ran_s, 10_000) for ran_s in (0, 100, 300))
    assert fresh == pytest.approx(100, rel=0.01)
    assert 0 < late < fresh
    assert later > 50
    assert likely_left_s(RunTime(likely_s=100, upper_s=101, basis="", jobs=9), 5000, 777) == 777
    assert likely_left_s(by_limit(waiting(1), "a test"), 100, 3500) == 3500
    assert not math.isnan(late)


def test_a_job_that_was_sized_is_looked_up_by_its_original_request() -> None:
    made: Decision = decision(grant=Grant(cpus_per_task=1, mem_per_node_mib=512))
    comment = format_token(made)
    sized: QueuedJob = waiting(1, admin_comment=f"jobstats {comment}", cpus_per_task=1, mem_per_node_mib=512)
    request = request_of(sized)
    assert request.cpus_per_task == made.request.cpus_per_task
    assert request.mem_per_node_mib == made.request.mem_per_node_mib
    assert (request.user, request.job_name, request.wall_s) == ("ann", "fit-1", 3600)
    plain = request_of(waiting(2, num_tasks=3, cpus_per_task=4, mem_per_cpu_mib=100))
    assert (plain.num_tasks, plain.cpus_per_task, plain.mem_per_cpu_mib, plain.mem_per_node_mib) == (
        3, 4, 100, None,
    )  # fmt: skip
    assert [request_of(waiting(3, num_nodes=nodes)).nodes for nodes in (1, 2)] == [None, 2]
