"""The whole of a prediction: history, growth, margin, evidence."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.demand.chain import Sight, demand_chain, gpu_chain
from models.demand.prediction import ChainSettings, Predictor
from models.evidence import KILLED_BUMP, Evidence, PastJob
from models.history import Habit, History, past_job, request_of
from tests.builders import attempt, request

KNOWN = request_of(attempt())


def job(**changes: Any) -> PastJob:
    return msgspec.structs.replace(past_job(attempt()), **changes)


def sight(*jobs: PastJob) -> Sight:
    return Sight(KNOWN, Evidence(("user+name", "alice", "fit"), jobs), (Habit(math.nan, math.nan),) * 3)


MEMORY = st.floats(1, 1e6)


@given(st.lists(MEMORY, min_size=1, max_size=20), st.floats(0, 2), st.floats(-3, 3))
def test_memory_is_never_predicted_below_what_was_used_once(
    used: list[float], margin: float, growth: float
) -> None:
    estimate = demand_chain("memory", lambda _: growth, margin, 1)(sight(*(job(mem_mib=mib) for mib in used)))
    assert estimate is not None
    assert estimate.upper >= max(used) * (1 + margin)
    assert min(used) <= estimate.likely <= max(used)
    assert estimate.jobs == len(used)


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=12))
def test_gpus_are_never_predicted_below_what_was_busy_once(used: list[tuple[int, bool]]) -> None:
    estimate = gpu_chain(0)(sight(*(job(gpus=gpus, complete=complete) for gpus, complete in used)))
    assert estimate is not None
    assert estimate.upper == max(1, *(gpus for gpus, _ in used))
    assert estimate.jobs == sum(complete for _, complete in used)


@given(MEMORY, st.integers(1, 100), st.integers(1, 100), st.floats(0, 1))
def test_the_margin_shrinks_as_evidence_grows(used: float, one: int, other: int, margin: float) -> None:
    chain = demand_chain("memory", None, margin, 1)
    few, many = (chain(sight(*[job(mem_mib=used)] * count)) for count in sorted((one, other)))
    assert few is not None
    assert many is not None
    assert few.upper >= many.upper >= used * (1 + margin)


def test_the_chain_in_figures() -> None:
    jobs = [job(mem_mib=100.0 * n) for n in range(1, 6)]
    plain, grown = (
        demand_chain("memory", None, 0.15, 5),
        demand_chain("memory", lambda _: 0.6931471805599453, 0.15, 5),
    )
    for chain, expected in ((plain, 500 * 1.25), (grown, 1000 * 1.25)):
        estimate = chain(sight(*jobs))
        assert estimate is not None
        assert estimate.upper == pytest.approx(expected)
        assert (estimate.likely, estimate.jobs) == (300, 5)


@pytest.mark.parametrize("dimension", ["memory", "cores", "wall"])
def test_too_little_evidence_is_no_prediction(dimension: Any) -> None:
    chain = demand_chain(dimension, None, 0, 3)
    cut_short = job(complete=False)
    assert chain(sight(job(), job(), cut_short)) is None
    assert chain(sight(job(), job(), job(), cut_short)) is not None
    assert chain(sight()) is None


def test_jobs_without_a_figure_are_no_evidence() -> None:
    assert demand_chain("memory", None, 0, 2)(sight(job(), job(mem_mib=None))) is None
    assert gpu_chain(1)(sight(job(gpus=None))) is None


def test_a_job_killed_for_memory_raises_the_prediction_above_what_it_had() -> None:
    chain = demand_chain("memory", None, 0.15, 1)
    killed = job(mem_mib=512.0, mem_at_least=True, complete=False)
    without, after = chain(sight(*[job(mem_mib=500.0)] * 9)), chain(sight(*[job(mem_mib=500.0)] * 9, killed))
    assert without is not None
    assert after is not None
    assert after.upper >= 512 * KILLED_BUMP * 1.15 > without.upper


def test_a_job_that_was_cut_short_may_raise_but_not_lower() -> None:
    chain = demand_chain("memory", None, 0, 1)
    base, small, large = (
        chain(sight(job(mem_mib=500.0), *extra))
        for extra in ((), (job(mem_mib=5.0, complete=False),), (job(mem_mib=900.0, complete=False),))
    )
    assert base is not None
    assert small is not None
    assert large is not None
    assert base.upper == small.upper < large.upper


def predictor(jobs: int, enough: int = 5) -> Predictor:
    history = History(50)
    for _ in range(jobs):
        history.add(KNOWN, job(gpus=1, gpu_source="simulated"))
    return Predictor("m", history, {}, ChainSettings(min_evidence=enough))


def test_a_predictor_says_what_it_rests_on() -> None:
    known = predictor(7)
    prediction = known.predict(KNOWN)
    assert prediction.basis == "7 earlier jobs of alice named fit and the same script"
    assert (prediction.jobs_seen, prediction.gpu_source) == (7, "simulated")
    for estimate in (prediction.memory, prediction.cores, prediction.gpus, known.wall_time(KNOWN)):
        assert estimate is not None


def test_a_predictor_says_nothing_of_jobs_it_does_not_know() -> None:
    unknown = predictor(7).predict(request(user="bob"))
    assert (unknown.memory, unknown.cores, unknown.gpus, unknown.jobs_seen) == (None, None, None, 0)
    few = predictor(4).predict(KNOWN)
    assert (few.memory, few.cores, few.gpus, few.jobs_seen) == (None, None, None, 4)
