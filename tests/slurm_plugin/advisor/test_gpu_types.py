"""How the advisor plans GPUs of several types."""

from __future__ import annotations

from typing import Any

import pytest

from models.planning.problem import Pending, Problem
from models.planning.rollout import expected_starts
from models.planning.shadow import usable
from slurm_plugin.advisor.problem import problem_of
from slurm_plugin.advisor.room import gpu_types_of
from slurm_plugin.advisor.run_time import by_limit
from slurm_plugin.advisor.unmoved import site_of, unmoved
from slurm_plugin.slurm.snapshot import NodeState, QueuedJob, Snapshot
from tests.slurm_plugin.slurm.queued import NOW_S, running, snapshot, waiting


def node(name: str, **types: int) -> NodeState:
    """Return a node with this many GPUs of each type; `plain` means GPUs without a type."""
    return NodeState(
        name=name,
        cpus=8,
        mem_mib=16_000,
        gpus=sum(types.values()),
        gpu_types=tuple((kind, count) for kind, count in types.items() if kind != "plain"),
        partitions=("batch",),
    )


def problem(of: Snapshot) -> Problem:
    return problem_of(of, lambda job: by_limit(job, "this is a test"))


def asks(job_id: int, gpus: int, kind: str = "", **fields: Any) -> QueuedJob:
    types = ((kind, gpus),) if kind else ()
    return waiting(job_id, gpus=gpus, gpu_types=types, **fields)


@pytest.mark.parametrize(
    ("nodes", "types"),
    [
        ((node("n1", a100=4), node("n2", h100=4, a100=1)), ("a100", "h100")),
        # If all GPUs are of one type nothing has to be distinguished.
        ((node("n1", a100=4), node("n2", a100=2), node("n3")), ()),
        ((node("n1", plain=4), node("n2", plain=4)), ()),
        ((node("n1", plain=4), node("n2", a100=4)), ("a100",)),
    ],
)
def test_which_gpu_types_are_distinguished(nodes: tuple[NodeState, ...], types: tuple[str, ...]) -> None:
    assert gpu_types_of(nodes) == types
    found = problem(snapshot(asks(1, 1, "a100"), nodes=nodes))
    assert {len(machine.amounts) for machine in found.machines} == {3 + len(types)}


def test_a_job_is_expected_where_its_gpu_type_is() -> None:
    nodes = (node("n1", a100=4), node("n2", h100=4))
    held = running(9, gpus=4, gpu_types=(("h100", 4),), nodes=("n2",), limit_s=1800)
    found = problem(snapshot(held, asks(1, 2, "h100"), asks(2, 2), asks(3, 4, "h100"), nodes=nodes))
    assert [span.start_s for span in expected_starts(found, 0)] == [1200.0, 0.0, 1200.0 + 3600.0]


def test_a_running_job_holds_its_type_and_one_without_a_type_holds_those_left() -> None:
    jobs = (
        running(1, gpus=3),
        running(2, gpus=1, gpu_types=(("a100", 1),)),
        running(3, gpus=1, gpu_types=(("mig", 1),), nodes=("n2",)),
    )
    nodes = (node("n1", a100=2, mig=4), node("n2", mig=4))
    held = {one.job_id: one.parts for one in problem(snapshot(*jobs, nodes=nodes)).running}
    assert held == {
        1: ((0, (1000, 1000, 3000, 1000, 2000)),),
        2: ((0, (1000, 1000, 1000, 1000, 0)),),
        3: ((1, (1000, 1000, 1000, 0, 1000)),),
    }


def only(of: Snapshot) -> Pending:
    (found,) = problem(of).pending
    return found


def test_a_job_of_whole_nodes_may_have_nodes_of_either_type() -> None:
    nodes = (node("n1", a100=4), node("n2", h100=4), node("n3", h100=4))
    whole = only(snapshot(asks(1, 1, exclusive=True), nodes=nodes))
    assert (whole.kept, whole.demand) == ("", (8000, 16_000, 4000, 0, 0))
    typed = only(snapshot(asks(1, 2, "h100", exclusive=True, num_nodes=2), nodes=nodes))
    assert (typed.kept, typed.nodes, typed.demand) == ("", 2, (16_000, 32_000, 8000, 0, 2000))
    # Six GPUs of a type are on two nodes; nodes with fewer of them do not count.
    larger = only(snapshot(asks(1, 6, "h100"), nodes=nodes))
    assert (larger.kept, larger.nodes) == ("", 2)


def test_another_gpu_type_starts_the_queue_without_us_anew() -> None:
    before = snapshot(asks(1, 1, "a100"), nodes=(node("n1", a100=4), node("n2", h100=4)))
    after = snapshot(asks(1, 1, "a100"), nodes=(node("n1", a100=4), node("n2", v100=4)))
    shadow = unmoved(None, before, problem(before), 86_400.0).shadow
    assert usable(shadow, site_of(before, problem(before)), NOW_S)
    assert not usable(shadow, site_of(after, problem(after)), NOW_S)
