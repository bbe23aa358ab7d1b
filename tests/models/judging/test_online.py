"""Jobs sized one by one: what each decision may know, and what it must not."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.request import JobRequest
from models.demand.prediction import ChainSettings, Predictor
from models.judging.online import REFIT_GROWTH, DecideAt, Learner, OnlineJob, size_online
from models.past.evidence import WHOLE_JOBS
from models.past.jobs import PastJob
from models.training.training import MIN_ROWS

ASKED_MIB, ASKED_CPUS = 8000, 8


def job(
    number: int, submit_s: float, end_s: float, *, start_s: float | None = None, mem_mib: float = 100.0
) -> OnlineJob:
    """A job of one family that requests 8000 MiB and 8 CPUs and uses one core."""
    return OnlineJob(
        job_id=str(number),
        submit_s=submit_s,
        start_s=submit_s if start_s is None else start_s,
        end_s=end_s,
        request=JobRequest(
            user="ann", job_name="fit", cpus_per_task=ASKED_CPUS, mem_per_node_mib=ASKED_MIB, wall_s=3600
        ),
        past=PastJob(
            end_s=int(end_s),
            num_tasks=1,
            asked_cpus=ASKED_CPUS,
            asked_mem_mib=ASKED_MIB,
            asked_gpus=None,
            complete=True,
            mem_mib=mem_mib,
            mem_at_least=False,
            cores_per_task=1.0,
            wall_s=60,
            gpus=None,
            gpu_source="",
            script="",
        ),
    )


def learner(recent_jobs: int = 50) -> Learner:
    return Learner(ChainSettings(), recent_jobs)


def seen(predictor: Predictor, request: JobRequest) -> tuple[JobRequest, str]:
    """Grant what was requested; the reason says how many jobs were known and the most that the next one may need."""
    prediction = predictor.predict(request)
    upper = math.nan if prediction.memory is None else prediction.memory.upper
    return request, f"{prediction.jobs_seen} {upper:.9g}"


def told(
    jobs: Sequence[OnlineJob], decide_at: DecideAt = "submit", warm: Collection[str] = ()
) -> dict[str, str]:
    return {one.job_id: reason for one, _, reason in size_online(jobs, learner(), seen, decide_at, warm)}


def known(
    jobs: Sequence[OnlineJob], decide_at: DecideAt = "submit", warm: Collection[str] = ()
) -> dict[str, int]:
    return {job_id: int(reason.split()[0]) for job_id, reason in told(jobs, decide_at, warm).items()}


def test_a_job_knows_the_jobs_that_ended_before_it_and_nothing_else() -> None:
    jobs = [job(1, 0, 100), job(2, 50, 60), job(3, 61, 300), job(4, 101, 102), job(5, 400, 500)]
    assert known(jobs) == {"1": 0, "2": 0, "3": 1, "4": 2, "5": 4}


@pytest.mark.parametrize(("submit_s", "seen_jobs"), [(99.9, 0), (100, 0), (100.001, 1)])
def test_a_job_that_ends_at_that_very_moment_is_not_known(submit_s: float, seen_jobs: int) -> None:
    assert known([job(1, 0, 100), job(2, submit_s, 200)])["2"] == seen_jobs


def test_a_decision_at_start_knows_what_ended_while_the_job_waited() -> None:
    jobs = [job(1, 0, 100), job(2, 50, 300, start_s=150), job(3, 60, 400, start_s=60)]
    assert known(jobs) == {"1": 0, "2": 0, "3": 0}
    assert known(jobs, "start") == {"1": 0, "2": 1, "3": 0}


def test_jobs_are_decided_in_the_order_of_their_moments() -> None:
    jobs = [job(1, 0, 500, start_s=90), job(2, 10, 500, start_s=20)]
    assert list(told(jobs)) == ["1", "2"]
    assert list(told(jobs, "start")) == ["2", "1"]
    assert list(told(list(reversed(jobs)))) == ["1", "2"]


def test_a_job_of_zero_length_does_not_know_itself() -> None:
    assert known([job(1, 100, 100), job(2, 100, 100), job(3, 101, 101)]) == {"1": 0, "2": 0, "3": 2}


def test_warm_jobs_are_known_from_the_beginning_and_not_sized() -> None:
    jobs = [job(1, 0, 100), job(2, 50, 1000), job(3, 2000, 3000)]
    assert known(jobs, warm={"3"}) == {"1": 1, "2": 1}
    assert known(jobs, warm={"1", "2", "3"}) == {}


def test_warm_jobs_are_learned_in_the_order_of_their_ends_whatever_the_order_of_rows() -> None:
    warm = [job(number, number, 10 * number + 5, mem_mib=100 + 10 * number) for number in range(12)]
    rows = [*warm, job(99, 2000, 3000)]
    ids = {one.job_id for one in warm}
    assert told(list(reversed(rows)), warm=ids) == told(rows, warm=ids)


@pytest.mark.parametrize("decide_at", ["submit", "start"])
@pytest.mark.parametrize("warm", [frozenset[str](), frozenset({"3", "7", "8", "20"})])
def test_the_order_of_rows_changes_nothing_even_if_many_jobs_end_together(
    decide_at: DecideAt, warm: frozenset[str]
) -> None:
    noise = random.Random(1)
    jobs = [
        job(
            number,
            20 * (number // 5),
            20 * (number // 4) + 50,
            start_s=20 * (number // 4) + noise.choice([0, 0, 10]),
            mem_mib=noise.lognormvariate(6, 1),
        )
        for number in range(200)
    ]
    in_order = list(told(jobs, decide_at, warm).items())
    for seed in range(3):
        rows = random.Random(seed).sample(jobs, len(jobs))
        assert list(told(rows, decide_at, warm).items()) == in_order


@pytest.mark.parametrize(("since_s", "at_rest"), [(0, False), (1000, True)])
def test_warm_jobs_count_as_ended_before_all_others(since_s: int, at_rest: bool) -> None:
    warm = [job(number, 5000, 6000) for number in range(WHOLE_JOBS)]
    late = job(90, 6000 + since_s, 6000 + since_s)
    late = msgspec.structs.replace(late, request=msgspec.structs.replace(late.request, user="bob"))
    seen_at_rest = []

    def look(predictor: Predictor, asked: JobRequest) -> tuple[JobRequest, str]:
        sight = predictor.sight(asked)
        assert sight is not None
        seen_at_rest.append((sight.evidence.at_rest, max(one.end_s for one in sight.evidence.jobs) < 100))
        return asked, ""

    rows = [*warm, late, job(91, 100, 7000)]
    known_before = {one.job_id for one in (*warm, late)}
    assert len(list(size_online(rows, learner(), look, warm=known_before))) == 1
    assert seen_at_rest == [(at_rest, True)]


def test_the_learner_forgets_jobs_that_are_no_longer_recent() -> None:
    jobs = [job(number, 10 * number, 10 * number + 5) for number in range(9)]
    grants = size_online(jobs, learner(recent_jobs=3), seen)
    assert [int(reason.split()[0]) for _, _, reason in grants] == [0, 1, 2, 3, 3, 3, 3, 3, 3]


def past_jobs(count: int, seed: int = 0, every_s: float = 10.0) -> list[OnlineJob]:
    """Jobs that run several at a time and end in another order than they were submitted."""
    noise = random.Random(seed)
    return [
        job(
            number,
            every_s * number,
            every_s * number + noise.uniform(1, 100),
            mem_mib=noise.lognormvariate(6, 0.2),
        )
        for number in range(count)
    ]


def test_models_are_fitted_once_there_are_enough_rows_and_refitted_as_rows_grow() -> None:
    jobs = past_jobs(200)
    model = learner()
    predictors: list[tuple[int, Predictor]] = []

    def watched(predictor: Predictor, request: JobRequest) -> tuple[JobRequest, str]:
        if not predictors or predictors[-1][1] is not predictor:
            predictors.append((predictor.predict(request).jobs_seen, predictor))
        return request, ""

    ended = 0
    fits: list[int] = []
    for one, _, _ in size_online(jobs, model, watched):
        if len(predictors) > len(fits):
            ended = sum(other.end_s < one.submit_s for other in jobs)
            fits.append(ended)
    # The first predictor has no model. A job submitted before any had ended teaches no growth.
    blind = sum(one.submit_s <= min(other.end_s for other in jobs) for one in jobs)
    first, *later = fits[1:]
    assert fits[0] == 0
    assert MIN_ROWS <= first <= MIN_ROWS + 2 * blind
    assert later
    for before, after in zip(fits[1:], later, strict=False):
        assert after - blind >= (before - blind) * REFIT_GROWTH * 0.9


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 43), st.sampled_from(["submit", "start"]))
def test_the_future_changes_no_earlier_decision(seed: int, cut: int, decide_at: DecideAt) -> None:
    jobs = past_jobs(45, seed)
    moment_s = jobs[cut].submit_s
    noise = random.Random(seed + 1)
    peaks = [one.past.mem_mib for one in jobs if one.end_s >= moment_s]
    noise.shuffle(peaks)
    others = iter(peaks)
    changed = [
        one
        if one.end_s < moment_s
        else msgspec.structs.replace(
            one,
            end_s=moment_s + noise.uniform(0, 1000),
            past=msgspec.structs.replace(one.past, mem_mib=next(others)),
        )
        for one in jobs
    ]
    before, after = told(jobs, decide_at), told(changed, decide_at)
    early = [one.job_id for one in jobs if one.submit_s <= moment_s]
    assert [before[job_id] for job_id in early] == [after[job_id] for job_id in early]


def test_the_future_changes_no_decision_of_a_fitted_model_either() -> None:
    jobs = past_jobs(160, every_s=50.0)
    moment_s = jobs[110].submit_s
    changed = [
        one
        if one.end_s < moment_s
        else msgspec.structs.replace(one, past=msgspec.structs.replace(one.past, mem_mib=7000.0))
        for one in jobs
    ]
    before, after = told(jobs), told(changed)
    early = [one.job_id for one in jobs if one.submit_s <= moment_s]
    assert [before[job_id] for job_id in early] == [after[job_id] for job_id in early]
    assert before["159"] != after["159"]


def test_a_job_without_measured_memory_is_no_evidence_of_memory() -> None:
    unknown = msgspec.structs.replace(
        job(1, 0, 10), past=msgspec.structs.replace(job(1, 0, 10).past, mem_mib=None)
    )
    assert told([unknown, job(2, 20, 30)])["2"] == "1 nan"
