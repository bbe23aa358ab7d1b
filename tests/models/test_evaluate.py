"""What sizing would have saved, in figures worked out by hand."""

from typing import Any

import msgspec
import pytest

from accounting.errors import ModelError
from accounting.records import Attempt
from accounting.request import JobRequest
from models.demand.prediction import ChainSettings, Predictor
from models.evaluate import OURS, PEER, USER_REQUEST, Evaluation, Score, Sizing, evaluate
from tests.builders import T0, attempt

SETTINGS = ChainSettings()


def series(*mem_mib: float, **changes: Any) -> list[Attempt]:
    """One job of an hour every two hours, each asking 4096 MiB, 8 CPUs and 4 GPUs."""
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


def half(_: Predictor) -> Sizing:
    def sizing(request: JobRequest) -> JobRequest:
        return msgspec.structs.replace(request, mem_per_node_mib=2048, cpus_per_task=1, gpus_per_node=2)

    return sizing


def score(evaluation: Evaluation, dimension: str, method: str) -> Score:
    [found] = [one for one in evaluation.scores if (one.dimension, one.method) == (dimension, method)]
    return found


def test_the_users_request_saves_and_fails_nothing() -> None:
    evaluation = evaluate(series(*[1024.0] * 10), SETTINGS, 50, half, train_share=0.5)
    assert (evaluation.learned_from, evaluation.judged, evaluation.split_s) == (5, 5, T0 + 5 * 7200)
    memory = score(evaluation, "memory", USER_REQUEST)
    assert (memory.requested, memory.granted, memory.used) == (5 * 4.0, 5 * 4.0, 5 * 1.0)
    assert (memory.saved_share, memory.failed, memory.resized, memory.jobs) == (0, 0, 0, 5)
    cores = score(evaluation, "cores", USER_REQUEST)
    assert cores.requested == 5 * 8.0
    assert cores.used == pytest.approx(5 * 2.0)
    assert score(evaluation, "gpus", USER_REQUEST).requested == 5 * 4.0


def test_the_peer_gives_the_maximum_of_the_past_and_fifteen_per_cent() -> None:
    evaluation = evaluate(series(500.0, 1000.0, 800.0, 900.0, 700.0), SETTINGS, 50, half, train_share=0.7)
    assert (evaluation.learned_from, evaluation.judged) == (3, 2)
    memory = score(evaluation, "memory", PEER)
    assert memory.granted == pytest.approx(2 * 1150 / 1024)
    assert memory.saved_share == pytest.approx(1 - 1150 / 4096)
    assert score(evaluation, "cores", PEER).granted == 2 * 3.0
    assert score(evaluation, "gpus", PEER).granted == 2 * 1.0


def test_a_job_that_got_less_than_it_used_failed_and_ran_again_as_requested() -> None:
    evaluation = evaluate(series(*[1024.0] * 8, 3000.0, 1024.0), SETTINGS, 50, half, train_share=0.5)
    memory = score(evaluation, "memory", OURS)
    assert (memory.failed, memory.jobs, memory.resized) == (1, 5, 5)
    assert memory.granted == pytest.approx(4 * 2.0 + 2.0 + 4.0)
    cores = score(evaluation, "cores", OURS)
    assert cores.failed == 5
    assert cores.saved_share == pytest.approx(1 - 9 / 8)
    assert score(evaluation, "gpus", OURS).failed == 0


def test_a_figure_above_the_request_is_no_failure_of_the_request() -> None:
    evaluation = evaluate(series(*[1024.0] * 5, *[9000.0] * 5), SETTINGS, 50, half, train_share=0.5)
    assert score(evaluation, "memory", USER_REQUEST).failed == 0
    assert score(evaluation, "memory", OURS).failed == 5


def test_the_judged_half_cannot_be_seen_in_training() -> None:
    spied: list[float] = []

    def spy(predictor: Predictor) -> Sizing:
        def sizing(request: JobRequest) -> JobRequest:
            memory = predictor.predict(request).memory
            spied.append(memory.upper if memory else 0.0)
            return request

        return sizing

    evaluate(series(*[100.0] * 6, *[4000.0] * 6), SETTINGS, 50, spy, train_share=0.5)
    assert len(spied) == 6
    assert max(spied) < 4000
    assert min(spied) >= 100


def test_jobs_still_running_at_the_split_are_on_neither_side() -> None:
    attempts = series(*[100.0] * 10)
    long = msgspec.structs.replace(attempts[1].row, end_s=T0 + 9 * 7200)
    attempts[1] = msgspec.structs.replace(attempts[1], row=long)
    evaluation = evaluate(attempts, SETTINGS, 50, half, train_share=0.5)
    assert (evaluation.learned_from, evaluation.judged) == (4, 5)


def test_jobs_whose_need_was_not_seen_are_not_judged() -> None:
    attempts = [*series(*[100.0] * 6), *series(*[100.0] * 10, state="CANCELLED by 1")[6:]]
    attempts.append(series(*[100.0] * 11)[-1])
    assert evaluate(attempts, SETTINGS, 50, half, train_share=0.5).judged == 2


@pytest.mark.parametrize("attempts", [[], series(100.0), series(100.0, 100.0, state="FAILED")])
def test_too_few_attempts_are_an_error_that_says_so(attempts: list[Attempt]) -> None:
    with pytest.raises(ModelError, match="ingest"):
        evaluate(attempts, SETTINGS, 50, half)
