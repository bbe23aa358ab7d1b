"""Which past jobs of a family are like the requested one: the others count for nothing."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.request import JobRequest
from models.demand.prediction import ChainSettings, Predictor
from models.past.attempts import past_job, request_of
from models.past.evidence import COMPARABLE_INPUT, Evidence, past_use
from models.past.history import History
from models.past.jobs import LEARNED, PastJob
from models.past.likeness import ENOUGH_NEAR, FamilyPast, comparable, likeness_of, stands_for
from tests.builders import T0, attempt
from tests.models.past.test_history import KNOWN, job


@pytest.mark.parametrize(
    ("scripts", "stands"),
    [
        (["old"], False),
        (["old", "older"], False),
        (["old", "older", "oldest"], True),
        (["", ""], True),
        (["", "old"], False),
        (["abc"], True),
    ],
)
def test_a_name_stands_for_a_new_script_only_where_scripts_vary(scripts: list[str], stands: bool) -> None:
    evidence = Evidence(("user+name", "alice", "fit"), tuple(job(script=script) for script in scripts))
    assert stands_for(evidence, "abc") is stands
    assert stands_for(evidence, "")


@pytest.mark.parametrize(
    ("then", "now", "tells"),
    [
        ({"asked_mem_mib": 4001}, {"mem_per_node_mib": 8000}, True),
        ({"asked_mem_mib": 4000}, {"mem_per_node_mib": 8000}, False),
        ({"asked_mem_mib": 9000}, {"mem_per_node_mib": 100}, True),
        ({"asked_mem_mib": None}, {"mem_per_node_mib": 8000}, True),
        ({"asked_mem_mib": 3000}, {"mem_per_node_mib": None, "mem_per_cpu_mib": 1000}, False),
        ({"asked_cpus": 4}, {"cpus_per_task": 7}, True),
        ({"asked_cpus": 4}, {"cpus_per_task": 8}, False),
        ({"asked_gpus": 2}, {"gpus_per_node": 3}, True),
        ({"asked_gpus": 2}, {"gpus_per_node": 4}, False),
        ({"asked_gpus": None}, {"gpus_per_node": 4}, True),
        ({"num_tasks": 2}, {}, False),
    ],
)
def test_jobs_that_requested_far_less_tell_nothing(
    then: dict[str, Any], now: dict[str, Any], tells: bool
) -> None:
    past = job(**then)
    assert comparable([past], likeness_of(msgspec.structs.replace(KNOWN, **now))) == (
        (past,) if tells else ()
    )


FEW_AMOUNTS = st.none() | st.sampled_from([0, 1, 2, 3, 500, 1000, 2000, 4000])
SEVERAL = st.lists(
    st.builds(
        job,
        asked_mem_mib=FEW_AMOUNTS,
        asked_cpus=FEW_AMOUNTS,
        asked_gpus=FEW_AMOUNTS,
        mem_mib=st.none() | st.sampled_from([0.0, 1.0, 500.0, 1000.0, 1000.5, 2000.0]),
        num_tasks=st.sampled_from([1, 2]),
        mem_at_least=st.booleans(),
        input_mib=st.none() | st.sampled_from([1.0, 10.0, 100.0]),
    ),
    max_size=8,
)
REQUESTS = st.builds(
    lambda **changes: msgspec.structs.replace(KNOWN, **changes),
    num_tasks=st.sampled_from([1, 2]),
    cpus_per_task=st.none() | st.integers(1, 9),
    mem_per_node_mib=st.none() | st.integers(0, 5000),
    gpus_per_node=st.none() | st.integers(0, 5),
    input_mib=st.none() | st.sampled_from([1.0, 3.0, 10.0]),
)


@given(SEVERAL, st.lists(REQUESTS, min_size=2, max_size=8))
def test_requests_in_one_place_share_what_each_would_see_alone(
    jobs: list[PastJob], requests: list[JobRequest]
) -> None:
    past = FamilyPast(("user+name", "alice", "fit"), jobs)
    for like in map(likeness_of, requests):
        shared = past.seen.setdefault(past.place(like), past.look(like))
        alone = Evidence(("user+name", "alice", "fit"), comparable(jobs, like), None, like.input_mib)
        assert shared.jobs == alone.jobs
        assert shared.words == alone.words
        for dimension in LEARNED:
            assert shared.use(dimension) == past_use(alone.jobs, dimension, like.mem_mib or None)


@pytest.mark.parametrize(
    ("then", "sees", "does_not"),
    [
        ({"asked_mem_mib": 4000}, {"mem_per_node_mib": 7999}, {"mem_per_node_mib": 8000}),
        ({"asked_cpus": 4}, {"cpus_per_task": 7}, {"cpus_per_task": 8}),
        ({"asked_gpus": 2}, {"gpus_per_node": 3}, {"gpus_per_node": 4}),
        ({"mem_mib": 500.0}, {"mem_per_node_mib": 500}, {"mem_per_node_mib": 499}),
    ],
)
def test_a_request_that_just_sees_a_job_has_another_place_than_one_that_just_does_not(
    then: dict[str, Any], sees: dict[str, Any], does_not: dict[str, Any]
) -> None:
    past = FamilyPast(("user+name", "alice", "fit"), [job(**then)])
    places = [past.place(likeness_of(msgspec.structs.replace(KNOWN, **asked))) for asked in (sees, does_not)]
    assert places[0] != places[1]


MANY = ENOUGH_NEAR + 1


def ran_with(*inputs_mib: float | None, **changes: Any) -> list[PastJob]:
    past = past_job(attempt())
    return [msgspec.structs.replace(past, input_mib=mib, **changes) for mib in inputs_mib]


def alike(jobs: list[PastJob], input_mib: float | None) -> list[float | None]:
    like = likeness_of(msgspec.structs.replace(KNOWN, input_mib=input_mib))
    return [job.input_mib for job in comparable(jobs, like)]


def test_jobs_with_a_far_smaller_input_tell_nothing() -> None:
    jobs = ran_with(10.0, 24.9, 25.0, 100.0, None, 9000.0)
    assert alike(jobs, 100.0) == [25.0, 100.0, None, 9000.0]
    assert alike(jobs, None) == [10.0, 24.9, 25.0, 100.0, None, 9000.0]


def test_jobs_with_a_far_larger_input_count_only_until_there_are_enough_like_it() -> None:
    few, many = ran_with(*[100.0] * (ENOUGH_NEAR - 1)), ran_with(*[100.0] * ENOUGH_NEAR)
    far, cut_short = ran_with(401.0), ran_with(100.0, complete=False)
    assert alike(few + far, 100.0)[-1] == 401.0
    assert alike(few + cut_short + far, 100.0)[-1] == 401.0
    not_known = ran_with(*[None] * 50)
    assert alike(few + not_known + far, 100.0)[-1] == 401.0
    assert alike(many + not_known + far, 100.0) == [100.0] * ENOUGH_NEAR + [None] * 50
    assert alike(many + far, 100.0) == [100.0] * ENOUGH_NEAR
    assert alike(many + ran_with(400.0), 100.0)[-1] == 400.0


@given(st.lists(st.none() | st.floats(1e-3, 1e9), max_size=20), st.floats(1e-3, 1e9), st.floats(1.0, 1e3))
def test_a_larger_input_never_sees_jobs_with_far_smaller_ones(
    inputs: list[float | None], input_mib: float, times: float
) -> None:
    jobs = ran_with(*inputs)
    least = [
        min((mib for mib in alike(jobs, asked) if mib is not None), default=math.inf)
        for asked in (input_mib, input_mib * times)
    ]
    assert least[0] >= input_mib / COMPARABLE_INPUT
    assert least[1] >= input_mib * times / COMPARABLE_INPUT


def test_a_family_is_sized_by_the_jobs_with_an_input_like_its_own() -> None:
    history = History(50)
    for number in range(2 * MANY):
        is_large = number % 2 == 1
        one = attempt(job_id=number, mem_mib=4000.0 if is_large else 200.0, submit_s=T0 + 200 * number)
        one = msgspec.structs.replace(one, input_mib=8000.0 if is_large else 100.0)
        history.add(request_of(one), past_job(one))
    predictor = Predictor("m", history, {}, ChainSettings())
    asked = msgspec.structs.replace(request_of(attempt()), mem_per_node_mib=8000)

    def upper(input_mib: float | None) -> float:
        found = predictor.predict(msgspec.structs.replace(asked, input_mib=input_mib))
        assert found.memory is not None
        return found.memory.upper

    small, large, unknown = upper(120.0), upper(8000.0), upper(None)
    assert small < 3000 < 4000 < min(large, unknown)
    told = predictor.predict(msgspec.structs.replace(asked, input_mib=120.0))
    assert told.basis.endswith("the same script with 30 to 480 MiB of input")
    few = predictor.predict(msgspec.structs.replace(asked, input_mib=2000.1))
    assert few.basis.endswith("the same script with 500 to 8,000 MiB of input")
    few = predictor.predict(msgspec.structs.replace(asked, input_mib=4.0))
    assert few.basis.endswith("the same script with 1 MiB of input or more")
    assert predictor.predict(msgspec.structs.replace(asked, input_mib=None)).basis.endswith("the same script")
    # Nothing like it has run, and a larger input has never needed less: what ran says nothing about it.
    assert predictor.predict(msgspec.structs.replace(asked, input_mib=1e6)).memory is None
