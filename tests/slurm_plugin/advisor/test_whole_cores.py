"""Plans where Slurm gives whole cores with several threads, or whole sockets: as many jobs start as in Slurm."""

from typing import Any

import pytest
from msgspec.structs import replace

from models.planning.rollout import expected_starts
from slurm_plugin.advisor.whole_cores import whole_cores_of
from slurm_plugin.slurm.snapshot import NodeState, PartitionState, QueuedJob, Snapshot
from tests.slurm_plugin.advisor.test_problem import problem
from tests.slurm_plugin.slurm.queued import TERMS, running, snapshot, waiting


def node(name: str, **shape: Any) -> NodeState:
    return NodeState(name=name, cpus=8, mem_mib=16_000, gpus=0, **{"partitions": ("batch",), **shape})


def cluster(*jobs: QueuedJob, whole_sockets: bool = False, **shape: Any) -> Snapshot:
    partitions = (PartitionState(name="batch", whole_sockets=whole_sockets),)
    return snapshot(*jobs, nodes=(node("n1", **shape),), partitions=partitions)


@pytest.mark.parametrize(
    ("shape", "at_once"),
    [({}, 8), ({"cpus_per_core": 2}, 4), ({"cpus_per_socket": 4, "whole_sockets": True}, 2)],
)
def test_how_many_jobs_of_one_cpu_start_at_once(shape: dict[str, Any], at_once: int) -> None:
    starts = [
        one.start_s
        for one in expected_starts(problem(cluster(*(waiting(n, mem_mib=1) for n in range(9)), **shape)), 0)
    ]
    assert starts.count(0.0) == at_once


def test_a_running_job_holds_whole_cores_whatever_slurm_counts() -> None:
    """With CR_CPU Slurm counts one CPU, but gives the other thread to no other job."""
    jobs = (running(1, cpus=1), running(2, cpus=3), waiting(3, cpus=2))
    found = problem(cluster(*jobs, cpus_per_core=2))
    assert [one.parts for one in found.running] == [((0, (2000, 1000, 0)),), ((0, (4000, 1000, 0)),)]
    assert [one.demand[0] for one in found.pending] == [2000]


def test_each_node_of_a_job_gives_whole_cores() -> None:
    nodes = tuple(node(name, cpus_per_core=2) for name in ("n1", "n2"))
    found = problem(snapshot(waiting(1, cpus=6, num_nodes=2), nodes=nodes))
    assert (found.pending[0].demand[0], found.pending[0].nodes) == (8000, 2)


@pytest.mark.parametrize(
    ("terms", "job", "cpus", "mem_mib"),
    [
        # What AllocTRES then says of each, with 1000 MiB for a CPU (22.05, 24.11).
        ({}, {"num_tasks": 3}, 4, 4000),
        ({"one_task_per_core": True}, {"num_tasks": 3}, 6, 6000),
        ({"one_task_per_core": True}, {"num_tasks": 3, "cpus_per_task": 3}, 12, 12_000),
        ({}, {"num_tasks": 3, "cpus_per_task": 3}, 10, 10_000),
        ({"counts_threads": True}, {"num_tasks": 3}, 4, 3000),
        ({}, {"num_tasks": 3, "mem_per_cpu_mib": None}, 4, 3000),
        # MaxMemPerCPU=2000, and a request of 8000 MiB: 22.05 and 24.11 show these CPUs only in MinCPUsNode.
        ({}, {"num_tasks": 1, "mem_per_cpu_mib": None, "mem_mib": 8000, "min_cpus_per_node": 4}, 4, 8000),
        ({}, {"num_tasks": 3, "state": "RUNNING", "cpus": 4, "mem_mib": 4000, "nodes": ("n1",)}, 4, 4000),
    ],
)
def test_how_much_a_job_takes_of_cores_with_two_threads(
    terms: dict[str, bool], job: dict[str, Any], cpus: int, mem_mib: int
) -> None:
    seen = snapshot(nodes=(node("n1", cpus_per_core=2),), terms=replace(TERMS, **terms))
    asked = job["num_tasks"] * job.get("cpus_per_task", 1)
    amounts = {"cpus": asked, "mem_mib": 1000 * asked, "mem_per_cpu_mib": 1000}
    assert whole_cores_of(seen).taken(waiting(1, **{**amounts, **job})) == (cpus, mem_mib)


@pytest.mark.parametrize(
    ("job", "cpus", "mem_mib"),
    [
        # What AllocTRES then says of two GPUs on 22.05, with 1000 MiB for a CPU by default.
        ({"cpus_per_gpu": 3}, 6, 6000),
        ({"cpus_per_gpu": 3, "cpus": 8, "mem_mib": 8000}, 8, 8000),
        ({"cpus_per_gpu": 3, "mem_per_cpu_mib": 100, "mem_mib": 100}, 6, 600),
        ({"cpus_per_gpu": 3, "mem_per_cpu_mib": None, "mem_per_node_mib": 100, "mem_mib": 100}, 6, 100),
        ({"cpus_per_gpu": 3, "num_nodes": 2, "gpus": 6, "cpus": 2}, 18, 18_000),
        ({"mem_per_gpu_mib": 3000, "mem_per_cpu_mib": None, "mem_per_node_mib": 0, "mem_mib": 6000}, 1, 6000),
        ({"mem_per_gpu_mib": 3000, "cpus_per_gpu": 3}, 6, 6000),
        # DefMemPerGPU=2500, with and without --mem and --mem=0.
        ({"mem_per_gpu_mib": 2500, "mem_per_cpu_mib": None, "mem_per_node_mib": 0}, 1, 5000),
        ({"mem_per_gpu_mib": 2500, "cpus": 8, "mem_mib": 8000}, 8, 5000),
        ({"mem_per_gpu_mib": 2500, "mem_per_cpu_mib": None, "mem_per_node_mib": 100, "mem_mib": 100}, 1, 100),
        (
            {"mem_per_gpu_mib": 2500, "mem_per_cpu_mib": None, "mem_per_node_mib": 0, "mem_mib": 64_000},
            1,
            64_000,
        ),
        ({"state": "RUNNING", "cpus": 4, "cpus_per_gpu": 3, "mem_per_gpu_mib": 9, "nodes": ("n1",)}, 4, 1000),
    ],
)
def test_a_waiting_job_takes_the_cpus_and_the_memory_that_come_with_its_gpus(
    job: dict[str, Any], cpus: int, mem_mib: int
) -> None:
    asked = waiting(1, **{"gpus": 2, "mem_per_cpu_mib": 1000, **job})
    assert whole_cores_of(cluster()).taken(asked) == (cpus, mem_mib)
    # CR_CPU: each CPU is a thread, and no more is given than is counted.
    by_thread = whole_cores_of(replace(cluster(), terms=replace(TERMS, counts_threads=True)))
    assert by_thread.taken(asked) == (cpus, mem_mib)


def test_a_job_whose_gpus_bring_more_cpus_than_are_free_is_not_foreseen_to_start_now() -> None:
    nodes = (replace(node("n1"), gpus=2),)
    jobs = (running(1, cpus=5, limit_s=700), waiting(2, gpus=1, cpus_per_gpu=4, mem_per_node_mib=1000))
    (start,) = expected_starts(problem(snapshot(*jobs, nodes=nodes)), 0)
    assert start.start_s == 100


def test_a_text_like_slurms_own_line_does_not_overflow_a_plan() -> None:
    forged = waiting(2, gpus=10**9, cpus_per_gpu=10**9, mem_per_gpu_mib=10**9, mem_per_cpu_mib=10**9)
    assert [one.start_s for one in expected_starts(problem(cluster(forged, waiting(3))), 0)][1] == 0


def test_with_whole_sockets_no_task_needs_a_core_of_its_own() -> None:
    seen = cluster(whole_sockets=True, cpus_per_core=2, cpus_per_socket=4)
    cores = whole_cores_of(replace(seen, terms=replace(TERMS, one_task_per_core=True)))
    assert cores.taken(waiting(1, cpus=3, num_tasks=3))[0] == 4


def test_the_smallest_step_of_different_nodes_holds() -> None:
    nodes = (
        node("n1", partitions=("smt", "both"), cpus_per_core=4),
        node("n2", partitions=("both", "plain"), cpus_per_core=2),
    )
    cores = whole_cores_of(snapshot(nodes=nodes))
    assert cores.steps == {"smt": 4, "both": 2, "plain": 2}
    for names, step in ((("smt",), 4), (("smt", "plain"), 2), (("gone",), 1)):
        assert cores.step_of(waiting(1, partitions=names)) == step
