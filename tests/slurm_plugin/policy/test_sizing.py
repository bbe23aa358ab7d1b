"""How far a request may be cut, and the reason given for each dimension."""

import itertools
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.request import Dimension, Grant, JobRequest, granted
from models.demand.prediction import Prediction
from slurm_plugin.policy.limits import Limits
from slurm_plugin.policy.sizing import (
    FITS,
    NO_EVIDENCE,
    NOT_ASKED,
    UNEVEN,
    memory_need_mib,
    per_cpu_mib,
    size,
)
from tests.builders import request
from tests.slurm_plugin.policy.sized import limits, prediction

LIMITS = limits()
ASK = st.none() | st.integers(1, 512)
UPPER = st.none() | st.floats(0, 1e5)


MEMORY = ("mem_per_node_mib", "mem_per_cpu_mib", "mem_per_gpu_mib")
GPUS = ("gpus_per_node", "gpus_per_job", "gpus_per_task")
KEPT = st.dictionaries(st.sampled_from(["memory", "cores", "gpus"]), st.just("its form"))


@st.composite
def requests(draw: st.DrawFn) -> JobRequest:
    memory = {draw(st.sampled_from(MEMORY)): draw(st.none() | st.integers(1, 10**6))}
    gpus = {draw(st.sampled_from(GPUS)): draw(st.none() | st.integers(1, 16))}
    return request(
        num_tasks=draw(st.integers(1, 64)),
        cpus_per_task=draw(ASK),
        nodes=draw(st.none() | st.integers(1, 8)),
        **memory,
        **gpus,
    )


PREDICTIONS = st.builds(prediction, memory=UPPER, cores=UPPER, gpus=st.none() | st.integers(0, 20))
ANY_LIMITS = st.builds(
    Limits,
    memory_floor_mib=st.integers(1, 4096),
    memory_step_mib=st.integers(1, 1024),
    min_saving=st.floats(0, 1),
    def_mem_per_cpu_mib=st.none() | st.integers(0, 8000),
)
DIMENSIONS = {"cores": ("cpus_per_task",), "memory": MEMORY, "gpus": GPUS}


@given(requests(), PREDICTIONS, ANY_LIMITS, KEPT)
def test_a_kept_dimension_is_kept_and_says_why(
    asked: JobRequest, predicted: Prediction, site: Limits, kept: dict[Dimension, str]
) -> None:
    sized = size(asked, predicted, site, kept)
    for reason in sized.reasons:
        if reason.dimension in kept and reason.asked is not None:
            assert reason.reason == "kept as asked: its form"
            assert not any(getattr(sized.grant, field) for field in DIMENSIONS[reason.dimension])


@given(requests(), PREDICTIONS, ANY_LIMITS, KEPT)
def test_memory_that_follows_gpus_still_covers_the_need_when_gpus_are_cut(
    asked: JobRequest, predicted: Prediction, site: Limits, kept: dict[Dimension, str]
) -> None:
    grant = size(asked, predicted, site, kept).grant
    after = granted(asked, grant)
    if asked.mem_per_gpu_mib is None or after.gpus == asked.gpus:
        return
    need = memory_need_mib(asked, predicted, site)
    assert need is not None
    assert after.mem_mib is not None
    assert after.mem_mib >= need


@given(requests(), PREDICTIONS, ANY_LIMITS)
def test_a_grant_is_positive_below_the_request_and_only_for_what_was_requested(
    asked: JobRequest, predicted: Prediction, site: Limits
) -> None:
    grant = size(asked, predicted, site).grant
    for dimension in itertools.chain(*DIMENSIONS.values()):
        given_amount, asked_amount = getattr(grant, dimension), getattr(asked, dimension)
        if given_amount is not None:
            assert asked_amount is not None
            assert isinstance(given_amount, int)
            assert 1 <= given_amount < asked_amount


@settings(max_examples=500)
@given(requests(), PREDICTIONS, st.floats(0.05, 0.95))
def test_the_share_that_is_never_cut_is_that_of_the_whole_request(
    asked: JobRequest, predicted: Prediction, share: float
) -> None:
    after = granted(asked, size(asked, predicted, limits(least_share=share)).grant)
    for before, now in ((asked.mem_mib, after.mem_mib), (asked.cpus, after.cpus), (asked.gpus, after.gpus)):
        if before is not None:
            assert now is not None
            assert now >= before * share - 1e-6 * before


@given(requests(), PREDICTIONS, ANY_LIMITS)
def test_no_grant_is_below_its_prediction(asked: JobRequest, predicted: Prediction, site: Limits) -> None:
    grant = size(asked, predicted, site).grant
    after = granted(asked, grant)
    if grant.cpus_per_task is not None:
        assert predicted.cores is not None
        assert grant.cpus_per_task >= predicted.cores.upper - 1e-5
    for kind in GPUS:
        given_gpus = getattr(grant, kind)
        if given_gpus is not None:
            assert predicted.gpus is not None
            assert given_gpus >= predicted.gpus.upper
    if any(getattr(grant, kind) is not None for kind in MEMORY):
        assert predicted.memory is not None
        assert after.mem_mib is not None
        assert after.mem_mib >= max(predicted.memory.upper - 1e-3, site.memory_floor_mib)


@given(requests(), PREDICTIONS, ANY_LIMITS)
def test_memory_that_follows_cpus_still_covers_the_need_when_cpus_are_cut(
    asked: JobRequest, predicted: Prediction, site: Limits
) -> None:
    grant = size(asked, predicted, site).grant
    share = per_cpu_mib(asked, site)
    if grant.cpus_per_task is None or share == 0:
        return
    need = memory_need_mib(asked, predicted, site)
    assert share is not None
    assert need is not None
    assert (grant.mem_per_cpu_mib or share) * grant.cpus_per_task * asked.num_tasks >= need


@given(requests(), PREDICTIONS, ANY_LIMITS, KEPT)
def test_each_dimension_has_its_reason_and_the_amounts_that_it_refers_to(
    asked: JobRequest, predicted: Prediction, site: Limits, kept: dict[Dimension, str]
) -> None:
    sized = size(asked, predicted, site, kept)
    after = granted(asked, sized.grant)
    by_name = {reason.dimension: reason for reason in sized.reasons}
    assert list(by_name) == ["memory", "cores", "gpus"]
    assert all(reason.reason for reason in sized.reasons)
    assert all((reason.reason == NOT_ASKED) == (reason.asked is None) for reason in sized.reasons)
    assert (by_name["memory"].asked, by_name["memory"].granted) == (asked.mem_mib, after.mem_mib)
    cores = by_name["cores"]
    assert (cores.asked, cores.granted) == ((asked.cpus, after.cpus) if asked.cpus_per_task else (None, None))
    assert (by_name["gpus"].asked, by_name["gpus"].granted) == (asked.gpus, after.gpus)


@given(requests(), ANY_LIMITS)
def test_no_evidence_changes_nothing(asked: JobRequest, site: Limits) -> None:
    sized = size(asked, prediction(), site)
    assert not sized.grant
    assert {reason.reason for reason in sized.reasons} <= {NOT_ASKED, NO_EVIDENCE}


def test_two_tasks_keep_a_cpu_each() -> None:
    asked = request(num_tasks=2, cpus_per_task=8, mem_per_node_mib=8000)
    sized = size(asked, prediction(memory=300.0, cores=0.9), LIMITS)
    grant = sized.grant
    assert grant == Grant(cpus_per_task=1, mem_per_node_mib=320)
    assert granted(asked, grant).cpus == 2
    assert sized.reasons[1].predicted == 1.8, "the busy cores of both"


def test_the_example_of_the_handbook() -> None:
    asked = request(cpus_per_task=8, mem_per_node_mib=8000, gpus_per_node=4)
    sized = size(asked, prediction(memory=251.0, cores=1.4, gpus=1), LIMITS)
    assert sized.grant == Grant(cpus_per_task=2, mem_per_node_mib=256, gpus_per_node=1)


def test_a_request_for_memory_per_cpu_stays_per_cpu() -> None:
    asked = request(cpus_per_task=8, mem_per_cpu_mib=1000)
    assert size(asked, prediction(memory=251.0, cores=1.4), LIMITS).grant == Grant(
        cpus_per_task=2, mem_per_cpu_mib=128
    )


def test_memory_per_cpu_leaves_each_task_room_for_the_peak() -> None:
    for more in ({}, {"gpus_per_job": 4, "nodes": 2}):
        asked = request(num_tasks=2, cpus_per_task=8, mem_per_cpu_mib=1000, **more)
        grant = size(asked, prediction(memory=640.0, cores=1.0), LIMITS).grant
        assert grant == Grant(cpus_per_task=1, mem_per_cpu_mib=640)


def test_memory_per_cpu_keeps_the_cpus_that_carry_it() -> None:
    asked = request(cpus_per_task=8, mem_per_cpu_mib=1000)
    sized = size(asked, prediction(memory=4000.0, cores=0.5), LIMITS)
    assert sized.grant.cpus_per_task == 4
    assert sized.reasons[1].reason == "its memory per CPU needs that many CPUs"


@pytest.mark.parametrize(
    ("default", "cpus"),
    [(None, None), (0, 1), (500, 2), (100, None)],
)
def test_cpus_that_bring_default_memory_are_kept_as_far_as_it_is_needed(
    default: int | None, cpus: int | None
) -> None:
    sized = size(
        request(cpus_per_task=8), prediction(memory=900.0, cores=0.5), limits(def_mem_per_cpu_mib=default)
    )
    assert sized.grant == Grant(cpus_per_task=cpus)


@pytest.mark.parametrize(
    "asked",
    [
        request(cpus_per_task=8, mem_per_cpu_mib=1000),
        request(cpus_per_task=8),
        request(cpus_per_task=None, gpus_per_node=4, mem_per_gpu_mib=1000),
    ],
    ids=["per_cpu", "per_cpu_by_default", "per_gpu"],
)
def test_memory_that_is_kept_keeps_the_cpus_or_gpus_that_bring_it(asked: JobRequest) -> None:
    predicted = prediction(memory=100.0, cores=0.5, gpus=1)
    site = limits(def_mem_per_cpu_mib=1000)
    assert size(asked, predicted, site).grant
    assert not size(asked, predicted, site, {"memory": "the script passes its memory on"}).grant


def test_the_cpus_of_a_job_whose_memory_comes_with_gpus_bring_none() -> None:
    asked = request(cpus_per_task=8, gpus_per_node=1, mem_per_gpu_mib=1000)
    for default in (None, 100):
        grant = size(asked, prediction(memory=900.0, cores=0.5), limits(def_mem_per_cpu_mib=default)).grant
        assert grant.cpus_per_task == 1


def test_a_resource_that_is_needed_whole_is_not_cut_even_without_a_least_saving() -> None:
    asked = request(cpus_per_task=8, mem_per_node_mib=928)
    assert not size(asked, prediction(memory=900.0, cores=8.0), limits(min_saving=0.0)).grant


def test_a_reason_mentions_a_slowdown_only_if_there_is_one() -> None:
    asked = request(cpus_per_task=8, mem_per_node_mib=8000, gpus_per_node=4)
    sized = size(asked, prediction(memory=900.0, cores=2.0, gpus=1.0), LIMITS)
    assert [one.predicted for one in sized.reasons] == [928, 2.0, 1.0]
    assert sized.reasons[1].reason == "9 earlier jobs"


def test_cpus_that_bring_memory_are_kept_if_its_need_is_unknown() -> None:
    sized = size(request(cpus_per_task=8), prediction(cores=0.5), limits(def_mem_per_cpu_mib=1000))
    assert not sized.grant


@pytest.mark.parametrize(("upper", "cut"), [(899.0, 896 + 32), (900.0, None), (2000.0, None)])
def test_a_cut_that_saves_little_is_not_made(upper: float, cut: int | None) -> None:
    site = limits(min_saving=0.1, memory_step_mib=1 if cut is None else 32)
    asked = request(cpus_per_task=None, mem_per_node_mib=1000 if cut is None else 1040)
    sized = size(asked, prediction(memory=upper + (1 if cut is None else 0)), site)
    assert sized.grant.mem_per_node_mib == cut
    assert (sized.reasons[0].reason == FITS) == (cut is None)


@pytest.mark.parametrize(
    ("changes", "grant"),
    [
        ({"gpus_per_job": 4}, Grant(gpus_per_job=2)),
        ({"gpus_per_task": 4, "num_tasks": 2, "nodes": 1}, Grant(gpus_per_task=2)),
        ({"gpus_per_node": 4, "nodes": 3}, Grant(gpus_per_node=2)),
        ({"gpus_per_job": 4, "nodes": 1}, Grant(gpus_per_job=2)),
        ({"gpus_per_job": 4, "mem_per_gpu_mib": 1000}, Grant(gpus_per_job=2, mem_per_gpu_mib=304)),
        ({"gpus_per_job": 4, "mem_per_gpu_mib": 200}, Grant(mem_per_gpu_mib=152)),
        # The GPUs of all tasks carry what all tasks need.
        (
            {"gpus_per_task": 4, "num_tasks": 2, "mem_per_gpu_mib": 400},
            Grant(gpus_per_task=2, mem_per_gpu_mib=304),
        ),
        # Any of the nodes may hold the peak, also if there are fewer tasks than nodes.
        (
            {"gpus_per_node": 4, "nodes": 2, "mem_per_gpu_mib": 1000},
            Grant(gpus_per_node=2, mem_per_gpu_mib=304),
        ),
    ],
)
def test_gpus_and_their_memory_keep_the_form_of_the_request(changes: dict[str, Any], grant: Grant) -> None:
    asked = request(cpus_per_task=None, **changes)
    assert size(asked, prediction(memory=600.0, gpus=2), LIMITS).grant == grant


@pytest.mark.parametrize(
    ("changes", "busy", "granted_gpus"),
    [
        # Four on each node, and two of each are busy: `--gpus=4` would be three and one.
        ({"gpus_per_job": 8, "nodes": 2}, 4, None),
        ({"gpus_per_job": 4, "nodes": 3}, 2, None),
        ({"gpus_per_job": 8, "nodes": 2}, 1, 2),
        ({"gpus_per_job": 8, "nodes": 2}, 8, None),
        ({"gpus_per_job": 8, "nodes": 1}, 4, 4),
        ({"gpus_per_node": 4, "nodes": 2}, 2, 2),
    ],
)
def test_a_job_on_several_nodes_keeps_gpus_that_slurm_would_share_out_unevenly(
    changes: dict[str, Any], busy: int, granted_gpus: int | None
) -> None:
    sized = size(request(cpus_per_task=None, **changes), prediction(gpus=busy), LIMITS)
    found = (sized.grant.gpus_per_job, sized.grant.gpus_per_node)
    assert next((gpus for gpus in found if gpus is not None), None) == granted_gpus
    is_uneven = granted_gpus is None and busy < changes["gpus_per_job"]
    assert (sized.reasons[2].reason == UNEVEN) == is_uneven


@pytest.mark.parametrize(
    ("gpus", "asked_mib", "grant"),
    [
        # One node may have one GPU only, and its memory has to hold a node's peak (608 MiB).
        (8.0, 1000, Grant(mem_per_gpu_mib=608)),
        (8.0, 600, Grant()),
        (1.0, 1000, Grant(gpus_per_job=2, mem_per_gpu_mib=608)),
        (1.0, 600, Grant()),
    ],
)
def test_memory_that_comes_with_gpus_holds_a_nodes_peak_with_a_single_gpu(
    gpus: float, asked_mib: int, grant: Grant
) -> None:
    asked = request(cpus_per_task=None, gpus_per_job=8, nodes=2, num_tasks=2, mem_per_gpu_mib=asked_mib)
    assert size(asked, prediction(memory=600.0, gpus=gpus), LIMITS).grant == grant


@pytest.mark.parametrize(
    ("changes", "kept", "mem_per_gpu_mib"),
    [
        # Five on nodes of four are four and one, three of two tasks may be two and one.
        ({"gpus_per_job": 5}, {"gpus": "gpus_of_nodes"}, 608),
        ({"gpus_per_job": 5, "num_tasks": 2}, {"gpus": "gpus_of_nodes"}, 608),
        ({"gpus_per_job": 3, "num_tasks": 2}, {}, 608),
        ({"gpus_per_job": 2, "num_tasks": 4}, {}, 1216),
        # Each of two nodes has one at least, however many tasks there are.
        ({"gpus_per_job": 5, "nodes": 2, "num_tasks": 4}, {}, 1216),
        ({"gpus_per_job": 5, "nodes": 2}, {}, 608),
        # One node has all of them.
        ({"gpus_per_job": 3}, {}, 203),
        ({"gpus_per_job": 3, "num_tasks": 2, "nodes": 1}, {}, 406),
        ({"gpus_per_node": 4}, {"gpus": "gres"}, 152),
    ],
)
def test_memory_that_comes_with_gpus_holds_a_nodes_peak_with_one_gpu_of_a_node(
    changes: dict[str, Any], kept: dict[Dimension, str], mem_per_gpu_mib: int
) -> None:
    """Of `--gpus=5 --mem-per-gpu=2000` on nodes of four, one node had 208 MiB and the other 52 (22.05 and 24.11)."""
    asked = request(cpus_per_task=None, mem_per_gpu_mib=2000, **changes)
    grant = size(asked, prediction(memory=600.0, gpus=8), LIMITS, kept).grant
    assert grant == Grant(mem_per_gpu_mib=mem_per_gpu_mib)


def test_headroom_least_share_and_floors_are_respected() -> None:
    asked = request(cpus_per_task=16, mem_per_node_mib=16000, gpus_per_node=4)
    predicted = prediction(memory=1000.0, cores=2.0, gpus=1)
    roomy = size(asked, predicted, limits(headroom=0.5)).grant
    assert roomy == Grant(cpus_per_task=3, mem_per_node_mib=1504, gpus_per_node=2)
    half = size(asked, predicted, limits(least_share=0.5)).grant
    assert half == Grant(cpus_per_task=8, mem_per_node_mib=8000, gpus_per_node=2)
    by_cpus = request(cpus_per_task=16, mem_per_cpu_mib=1000)
    assert size(by_cpus, predicted, limits(least_share=0.5)).grant == Grant(cpus_per_task=8)
    assert size(by_cpus, predicted, limits(least_share=0.25)).grant == Grant(cpus_per_task=4)
    memory_alone = size(by_cpus, prediction(memory=1000.0), limits(least_share=0.5)).grant
    assert memory_alone == Grant(mem_per_cpu_mib=500)
    floors = size(asked, predicted, limits(min_cpus_per_task=4, min_gpus=3, memory_floor_mib=4096)).grant
    assert floors == Grant(cpus_per_task=4, mem_per_node_mib=4096, gpus_per_node=3)


def test_a_site_that_accepts_slower_jobs_grants_fewer_cpus_than_needed_and_says_so() -> None:
    slow = msgspec.structs.replace(prediction(cores=7.5), fewest_cpus=6.0)
    sized = size(request(cpus_per_task=16), slow, LIMITS)
    assert sized.grant.cpus_per_task == 6
    [cores] = [one for one in sized.reasons if one.dimension == "cores"]
    assert (cores.predicted, cores.granted) == (7.5, 6)
    assert cores.reason == "9 earlier jobs, slowed as far as the site allows"
    assert size(request(cpus_per_task=16), prediction(cores=7.5), LIMITS).grant.cpus_per_task == 8


def test_cpus_are_rounded_up_to_whole_cores() -> None:
    asked = request(cpus_per_task=8)
    assert size(asked, prediction(memory=1.0, cores=0.5), limits(cpus_step=2)).grant == Grant(cpus_per_task=2)
    assert size(asked, prediction(memory=1.0, cores=2.5), limits(cpus_step=2)).grant == Grant(cpus_per_task=4)


def test_memory_never_goes_below_the_floor() -> None:
    asked = request(cpus_per_task=None, mem_per_node_mib=8000)
    assert size(asked, prediction(memory=1.0), LIMITS).grant.mem_per_node_mib == 128


def test_a_prediction_beyond_all_bounds_keeps_the_request() -> None:
    asked = request(cpus_per_task=8, mem_per_node_mib=8000)
    assert not size(asked, prediction(memory=math.exp(40), cores=math.exp(40)), LIMITS).grant
