"""What sizing would have saved, in figures worked out by hand."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from accounting.errors import ModelError
from accounting.records import Attempt
from accounting.request import JobRequest
from models.demand.prediction import ChainSettings, Predictor
from models.judging.evaluate import (
    OURS,
    PEER,
    USER_REQUEST,
    Evaluation,
    Score,
    evaluate,
)
from models.judging.outcomes import Sizing
from models.past.columns import columns_of_attempts
from tests.builders import T0, attempt

SETTINGS = ChainSettings()


def series(*mem_mib: float, **changes: Any) -> list[Attempt]:
    """One job of an hour every two hours, each requesting 4096 MiB, 8 CPUs and 4 GPUs."""
    return [
        attempt(
            job_id=number,
            submit_s=T0 + 7200 * number,
            start_s=T0 + 7200 * number,
            elapsed_s=3600,
            req_mem_mib=4096,
            req_gpus=4,
            mem_mib=mib,
            cores=2.0,
            gpus=1,
            **changes,
        )
        for number, mib in enumerate(mem_mib)
    ]


def evaluated(attempts: Sequence[Attempt], *settings: Any, **more: Any) -> Evaluation:
    return evaluate(columns_of_attempts(attempts), *settings, **more)


def half(_: Predictor) -> Sizing:
    def sizing(request: JobRequest) -> JobRequest:
        return msgspec.structs.replace(request, mem_per_node_mib=2048, cpus_per_task=1, gpus_per_node=2)

    return sizing


def score(evaluation: Evaluation, dimension: str, method: str) -> Score:
    [found] = [one for one in evaluation.scores if (one.dimension, one.method) == (dimension, method)]
    return found


def test_the_users_request_saves_nothing_and_fails_nothing() -> None:
    evaluation = evaluated(series(*[1024.0] * 10), SETTINGS, 50, half, train_share=0.5)
    assert (evaluation.learned_from, evaluation.judged, evaluation.split_s) == (5, 5, T0 + 5 * 7200)
    memory = score(evaluation, "memory", USER_REQUEST)
    assert (memory.requested, memory.granted, memory.used) == (5 * 4.0, 5 * 4.0, 5 * 1.0)
    assert (memory.saved_share, memory.failed, memory.resized, memory.jobs) == (0, 0, 0, 5)
    cores = score(evaluation, "cores", USER_REQUEST)
    assert cores.requested == 5 * 8.0
    assert cores.used == pytest.approx(5 * 2.0)
    assert score(evaluation, "gpus", USER_REQUEST).requested == 5 * 4.0


def test_the_peer_grants_the_maximum_of_the_past_plus_fifteen_per_cent() -> None:
    evaluation = evaluated(series(500.0, 1000.0, 800.0, 900.0, 700.0), SETTINGS, 50, half, train_share=0.7)
    assert (evaluation.learned_from, evaluation.judged) == (3, 2)
    memory = score(evaluation, "memory", PEER)
    assert memory.granted == pytest.approx(2 * 1150 / 1024)
    assert memory.saved_share == pytest.approx(1 - 1150 / 4096)
    assert score(evaluation, "cores", PEER).granted == 2 * 3.0
    assert score(evaluation, "gpus", PEER).granted == 2 * 1.0


def test_a_job_granted_less_than_it_used_fails_and_runs_again_as_requested() -> None:
    evaluation = evaluated(series(*[1024.0] * 8, 3000.0, 1024.0), SETTINGS, 50, half, train_share=0.5)
    memory = score(evaluation, "memory", OURS)
    assert (memory.failed, memory.jobs, memory.resized) == (1, 5, 5)
    assert memory.granted == pytest.approx(4 * 2.0 + 2.0 + 4.0)
    cores = score(evaluation, "cores", OURS)
    assert cores.failed == 5
    assert cores.saved_share == pytest.approx(1 - 9 / 8)
    assert score(evaluation, "gpus", OURS).failed == 0


def test_a_figure_above_the_request_is_no_failure_of_the_request() -> None:
    evaluation = evaluated(series(*[1024.0] * 5, *[9000.0] * 5), SETTINGS, 50, half, train_share=0.5)
    assert score(evaluation, "memory", USER_REQUEST).failed == 0
    assert score(evaluation, "memory", OURS).failed == 5


def test_training_does_not_see_the_judged_half() -> None:
    spied: list[float] = []

    def spy(predictor: Predictor) -> Sizing:
        def sizing(request: JobRequest) -> JobRequest:
            memory = predictor.predict(request).memory
            spied.append(memory.upper if memory else 0.0)
            return request

        return sizing

    evaluated(series(*[100.0] * 6, *[4000.0] * 6), SETTINGS, 50, spy, train_share=0.5)
    assert len(spied) == 6
    assert spied[0] < 4000
    assert min(spied[1:]) > 4000, "each that ended before is known, as it is to the service"
    assert min(spied) >= 100


def test_jobs_still_running_at_the_split_are_on_neither_side() -> None:
    attempts = series(*[100.0] * 10)
    long = msgspec.structs.replace(attempts[1].row, end_s=T0 + 9 * 7200)
    attempts[1] = msgspec.structs.replace(attempts[1], row=long)
    evaluation = evaluated(attempts, SETTINGS, 50, half, train_share=0.5)
    assert (evaluation.learned_from, evaluation.judged) == (4, 5)


def test_jobs_whose_need_was_not_seen_are_not_judged() -> None:
    attempts = [*series(*[100.0] * 6), *series(*[100.0] * 10, state="CANCELLED by 1")[6:]]
    attempts.append(series(*[100.0] * 11)[-1])
    assert evaluated(attempts, SETTINGS, 50, half, train_share=0.5).judged == 2


def killed(number: int, bound_mib: float, **changes: Any) -> Attempt:
    """A job of that series that was killed for memory with `bound_mib` allocated."""
    state = {"state": "OUT_OF_MEMORY", "alloc_mem_mib": int(bound_mib), **changes}
    return series(*[bound_mib] * (number + 1), **state)[number]


def test_a_killed_job_fails_every_grant_that_is_no_larger_and_says_nothing_of_others() -> None:
    attempts = series(*[1024.0] * 10)
    attempts[6], attempts[8] = killed(6, 2048.0), killed(8, 2047.0)
    evaluation = evaluated(attempts, SETTINGS, 50, half, train_share=0.5)
    assert evaluation.judged == 5
    # 2048 MiB are granted: no more than the first killed job had, and more than the second had.
    ours = score(evaluation, "memory", OURS)
    assert (ours.jobs, ours.resized, ours.failed) == (4, 4, 1)
    assert (ours.requested, ours.granted, ours.used) == (4 * 4.0, 4 * 2.0 + 4.0, 3 * 1.0 + 2.0)
    assert ours.saved_share == 1 - 12 / 16
    asked = score(evaluation, "memory", USER_REQUEST)
    assert (asked.jobs, asked.failed, asked.saved_share) == (3, 0, 0)
    # The cores and GPUs that were busy in a run that was cut short say nothing.
    assert {score(evaluation, dimension, OURS).jobs for dimension in ("cores", "gpus")} == {3}


def test_a_job_killed_with_all_that_it_requested_is_not_judged() -> None:
    attempts = series(*[1024.0] * 10)
    attempts[6], attempts[8] = killed(6, 4096.0), killed(8, 5000.0)
    evaluation = evaluated(attempts, SETTINGS, 50, half, train_share=0.5)
    assert evaluation.judged == 3
    assert score(evaluation, "memory", OURS).failed == 0


def test_a_completed_job_whose_memory_was_not_fully_counted_shows_a_bound() -> None:
    """Where a step was killed, all that is known of the job is that it needed more than was seen."""
    attempts = series(*[1024.0] * 10)
    for place, seen_mib in ((5, 2048.0), (6, 1000.0), (7, 5000.0)):
        use = msgspec.structs.replace(
            attempts[place].use, peak_mem_mib=seen_mib, memory_quality="censored", outcome="completed"
        )
        attempts[place] = msgspec.structs.replace(attempts[place], use=use)
    evaluation = evaluated(attempts, SETTINGS, 50, half, train_share=0.5)
    ours = score(evaluation, "memory", OURS)
    assert (evaluation.judged, ours.jobs, ours.failed) == (5, 4, 2)
    # The whole request was enough for the job that is recorded above it.
    asked = score(evaluation, "memory", USER_REQUEST)
    assert (asked.jobs, asked.failed) == (3, 0)
    assert score(evaluation, "cores", OURS).jobs == 5


@pytest.mark.parametrize(
    ("attempts", "why"),
    [
        (series(100.0, 100.0, state="FAILED"), "none of the 1 attempts after the split ran to its end"),
        (
            series(100.0),
            "too few to split by time: none of them had run and ended before the 1 later ones were submitted",
        ),
        (series(100.0, 100.0), "for none of the judged jobs both request and use are known"),
    ],
)
def test_what_cannot_be_judged_is_reported_with_the_reason(attempts: list[Attempt], why: str) -> None:
    unasked = {"asked_mem_mib": None, "asked_cpus": None, "asked_gpus": None}
    unknown = [msgspec.structs.replace(one, **unasked) for one in attempts]
    with pytest.raises(ModelError, match=why):
        evaluated(unknown, SETTINGS, 10, half)


@pytest.mark.parametrize("attempts", [[], series(100.0), series(100.0, 100.0, state="FAILED")])
def test_too_few_attempts_are_an_error_that_says_so(attempts: list[Attempt]) -> None:
    with pytest.raises(ModelError, match="ingest"):
        evaluated(attempts, SETTINGS, 50, half)
