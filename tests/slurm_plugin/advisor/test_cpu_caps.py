"""Partitions whose jobs may not use all CPUs of a node (MaxCPUsPerNode, MaxCPUsPerSocket), in a plan."""

from __future__ import annotations

from typing import Any

import pytest

from models.planning.cells import cells_of
from models.planning.problem import Problem
from models.planning.rollout import expected_starts
from models.planning.shadow import usable
from slurm_plugin.advisor.cpu_caps import cap_of
from slurm_plugin.advisor.problem import UNEQUAL, problem_of
from slurm_plugin.advisor.run_time import by_limit
from slurm_plugin.advisor.unmoved import site_of, unmoved
from slurm_plugin.slurm.snapshot import NodeState, PartitionState, QueuedJob, Snapshot
from tests.slurm_plugin.slurm.queued import NOW_S, running, snapshot, waiting

HOUR_S = 3600.0
BOTH = (PartitionState(name="batch"), PartitionState(name="cpu", most_cpus_per_node=4))


def node(name: str, **fields: Any) -> NodeState:
    known = {"cpus": 8, "mem_mib": 16_000, "gpus": 0, "partitions": ("batch", "cpu"), **fields}
    return NodeState(name=name, **known)


def shared(
    *jobs: QueuedJob,
    nodes: tuple[NodeState, ...] = (node("n1"),),
    partitions: tuple[PartitionState, ...] = BOTH,
) -> Snapshot:
    return snapshot(*jobs, nodes=nodes, partitions=partitions)


def problem(of: Snapshot) -> Problem:
    return problem_of(of, lambda job: by_limit(job, "this is a test"))


def starts(of: Snapshot) -> list[float]:
    return [span.start_s for span in expected_starts(problem(of), samples=0)]


def asks(job_id: int, cpus: int, *partitions: str, **fields: Any) -> QueuedJob:
    return waiting(job_id, cpus=cpus, partitions=partitions or ("cpu",), **fields)


@pytest.mark.parametrize(
    ("per_node", "per_socket", "cpus_per_socket", "most"),
    [(None, None, 4, 8), (6, None, 4, 6), (12, None, 4, 8), (None, 3, 4, 6), (5, 3, 4, 5), (None, 3, 8, 3)],
)
def test_how_many_cpus_of_a_node_a_partition_may_use(
    per_node: int | None, per_socket: int | None, cpus_per_socket: int, most: int
) -> None:
    partition = PartitionState(name="cpu", most_cpus_per_node=per_node, most_cpus_per_socket=per_socket)
    assert cap_of(node("n1", cpus_per_socket=cpus_per_socket), partition) == most


def test_jobs_of_a_capped_partition_wait_for_each_other_and_others_only_for_room() -> None:
    jobs = (asks(1, 4), asks(2, 4), asks(3, 4, "batch"), asks(4, 1))
    assert starts(shared(*jobs)) == [0, HOUR_S, 0, 2 * HOUR_S]


def test_running_jobs_count_only_in_their_own_partition() -> None:
    here = running(9, cpus=4, partitions=("cpu",), limit_s=1800)
    assert starts(shared(here, asks(1, 1))) == [1200]
    elsewhere = running(9, cpus=4, partitions=("batch",), limit_s=1800)
    assert starts(shared(elsewhere, asks(1, 1))) == [0]


def test_a_job_above_the_cap_of_a_node_takes_several_nodes_or_is_not_simulated() -> None:
    two = (node("n1"), node("n2"))
    assert problem(shared(asks(1, 6), nodes=two)).pending[0].nodes == 2
    assert problem(shared(asks(1, 6))).pending[0].kept == UNEQUAL


def test_a_job_that_lists_other_partitions_too_is_under_no_cap() -> None:
    assert starts(shared(asks(1, 4), asks(2, 4, "batch", "cpu"))) == [0, 0]


def test_a_cap_is_not_taken_for_a_gpu_type_or_a_resource_to_share() -> None:
    one = node("n1", gpus=4, gpu_types=(("a100", 4),))
    plain = shared(asks(1, 1, gpus=4), asks(2, 2, gpus=0), asks(3, 1, "batch", gpus=4), nodes=(one,))
    found = problem(plain)
    assert [job.demand for job in found.pending] == [
        (1000, 1000, 4000, 1000), (2000, 1000, 0, 2000), (1000, 1000, 4000, 0),
    ]  # fmt: skip
    assert starts(plain) == [0, 0, HOUR_S]
    assert found.shares() == [1.0, 0.25, 1.0]
    assert cells_of(found)[0].total == (8000, 16_000, 4000, 0)


def test_with_gpu_types_a_job_takes_any_type_left_and_its_cpus_count_under_the_cap() -> None:
    mixed = (node("n1", gpus=4, gpu_types=(("a100", 2), ("h100", 2))), node("n2"))
    typed = {"gpus": 2, "gpu_types": (("a100", 2),)}
    of = shared(
        running(8, cpus=1, partitions=("cpu",), **typed), running(9, cpus=1, gpus=2, partitions=("cpu",))
    )
    of = shared(*of.jobs, asks(1, 1, gpus=1), asks(2, 3, num_nodes=1), nodes=mixed)
    first, second = problem(of).running
    assert (first.parts[0][1], second.parts[0][1]) == (
        (1000, 1000, 2000, 2000, 0, 1000), (1000, 1000, 2000, 0, 2000, 1000),
    )  # fmt: skip
    assert starts(of) == [3000, 0]


def test_a_cap_that_no_node_exceeds_has_no_effect() -> None:
    found = problem(
        shared(asks(1, 4), partitions=(BOTH[0], PartitionState(name="cpu", most_cpus_per_node=8)))
    )
    assert (found.bounds, found.pending[0].demand) == (0, (4000, 1000, 0))


def test_a_queue_kept_from_before_there_was_a_cap_is_not_used_on() -> None:
    before = shared(asks(1, 4), partitions=(BOTH[0], PartitionState(name="cpu")))
    kept = unmoved(None, before, problem(before), HOUR_S).shadow
    now = shared(asks(1, 4), asks(2, 4))
    site = site_of(now, problem(now))
    assert not usable(kept, site, NOW_S)
    found = unmoved(kept, now, problem(now), 4 * HOUR_S)
    again = unmoved(found.shadow, now, problem(now), 4 * HOUR_S)
    assert usable(found.shadow, site, NOW_S)
    assert [one.unmoved_start_s for one in again.problem.pending] == [0, HOUR_S]
