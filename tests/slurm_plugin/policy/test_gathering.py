"""Fewer CPUs or GPUs put more tasks on a node, which is not allowed if the node's memory may not hold them all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.request import Grant, JobRequest, granted
from slurm_plugin.policy.sizing import GATHERS, OUTNUMBERS, size
from slurm_plugin.policy.submission import Submission, job_request
from slurm_plugin.service.decide import fixed_by
from tests.builders import request
from tests.slurm_plugin.policy.sized import limits, prediction

LIMITS = limits()
# 16 tasks of 150 MiB, on four nodes of 16 CPUs at four CPUs each, and on one of them at one each (22.05, 24.11).
MPI: dict[str, Any] = {"num_tasks": 16, "cpus_per_task": 4, "mem_per_node_mib": 1000}
NEEDS = prediction(memory=2400.0, cores=1.0)


@pytest.mark.parametrize(
    ("changes", "bounds", "cpus_per_task"),
    [
        ({}, {}, None),
        # Slurm fills one node after the other, also if their number is fixed.
        ({"nodes": 4}, {}, None),
        ({"nodes": 4}, {"tasks_stay": True}, 1),
        ({"nodes": 16}, {}, 1),
        ({"nodes": 1}, {}, 1),
        ({"num_tasks": 1}, {}, 1),
        ({"mem_per_node_mib": 2400}, {}, 1),
        ({"mem_per_node_mib": None, "mem_per_cpu_mib": 2400}, {}, 1),
        ({"mem_per_node_mib": None}, {"def_mem_per_node_mib": 1000}, None),
        ({"mem_per_node_mib": None}, {"def_mem_per_node_mib": 2400}, 1),
        # All the memory of a node, however much that is.
        ({"mem_per_node_mib": None}, {}, None),
    ],
)
def test_cpus_stay_if_fewer_would_gather_more_tasks_than_a_node_holds(
    changes: dict[str, Any], bounds: dict[str, Any], cpus_per_task: int | None
) -> None:
    sized = size(request(**(MPI | changes)), NEEDS, limits(**bounds))
    assert sized.grant.cpus_per_task == cpus_per_task
    cores = next(one.reason for one in sized.reasons if one.dimension == "cores")
    assert (cores == GATHERS) == (cpus_per_task is None)


def test_tasks_are_not_gathered_if_their_need_is_unknown() -> None:
    assert not size(request(**MPI), prediction(cores=1.0), LIMITS).grant
    kept = size(request(**MPI), NEEDS, LIMITS, {"memory": "its script"})
    assert not kept.grant


@pytest.mark.parametrize(
    ("asked", "gathers"),
    [
        ({"gpus_per_task": 2}, True),
        ({"gpus_per_job": 8}, True),
        # As many on each node, however many tasks there are.
        ({"gpus_per_node": 4}, False),
        ({"gpus_per_task": 2, "num_tasks": 1}, False),
    ],
)
def test_gpus_counted_by_task_or_job_stay_too_if_fewer_would_gather_tasks(
    asked: dict[str, Any], gathers: bool
) -> None:
    wanted = request(**{"num_tasks": 4, "cpus_per_task": None, "mem_per_node_mib": 1000, **asked})
    assert (size(wanted, prediction(memory=2400.0, gpus=1), LIMITS).grant == Grant()) == gathers


@pytest.mark.parametrize(
    ("changes", "bounds", "keeps"),
    [
        # 8 tasks on two nodes of 16 CPUs, four on each; with two CPUs each the first node has 6 of them and four GPUs.
        ({"nodes": 2, "gpus_per_node": 4}, {}, True),
        # On one node it has four GPUs instead of eight.
        ({"gpus_per_node": 4}, {}, True),
        ({"gpus_per_job": 8}, {}, True),
        ({"nodes": 2, "gpus_per_job": 8}, {}, True),
        ({"nodes": 2, "gpus_per_node": 4}, {"tasks_stay": True}, False),
        ({"nodes": 1, "gpus_per_node": 4}, {}, False),
        ({"nodes": 8, "gpus_per_node": 1}, {}, False),
        ({"gpus_per_node": 8}, {}, False),
        ({"gpus_per_task": 1}, {}, False),
        ({"num_tasks": 1, "gpus_per_job": 8}, {}, False),
        ({}, {}, False),
    ],
)
def test_a_node_gets_no_more_tasks_than_it_has_gpus(
    changes: dict[str, Any], bounds: dict[str, Any], keeps: bool
) -> None:
    """Each task takes the GPU with its own number on the node; a task without such a GPU fails."""
    wanted = request(**{"num_tasks": 8, "cpus_per_task": 4, "mem_per_node_mib": 8000, **changes})
    sized = size(wanted, prediction(memory=2400.0, cores=1.0, gpus=8), limits(**bounds))
    cores = next(one.reason for one in sized.reasons if one.dimension == "cores")
    assert (cores == OUTNUMBERS, sized.grant.cpus_per_task) == (keeps, None if keeps else 1)


@given(
    st.integers(2, 64),
    st.integers(2, 16),
    st.none() | st.integers(1, 8),
    st.integers(200, 8000),
    st.floats(1, 8000),
)
def test_a_node_that_may_get_all_tasks_can_hold_them_or_cpus_stay(
    tasks: int, cpus: int, nodes: int | None, mem_mib: int, need_mib: float
) -> None:
    asked: JobRequest = request(num_tasks=tasks, cpus_per_task=cpus, nodes=nodes, mem_per_node_mib=mem_mib)
    after = granted(asked, size(asked, prediction(memory=need_mib, cores=1.0), LIMITS).grant)
    assert after.cpus == asked.cpus or nodes in (1, tasks) or (after.mem_per_node_mib or 0) >= need_mib


@pytest.mark.parametrize(
    ("fields", "stay"),
    [
        ({"nodes_min": 4, "nodes_max": 4, "ntasks_per_node": 4}, True),
        ({"nodes_min": 4, "nodes_max": 4, "ntasks_per_node": 4, "num_tasks": 16}, True),
        ({"nodes_min": 4, "nodes_max": 4, "ntasks_per_node": 8, "num_tasks": 16}, False),
        ({"nodes_min": 2, "nodes_max": 4, "ntasks_per_node": 4}, False),
        ({"nodes_min": 2, "ntasks_per_node": 4}, False),
        ({"nodes_max": 2, "ntasks_per_node": 4}, False),
        ({"nodes_min": 4, "nodes_max": 4, "num_tasks": 16}, False),
        ({"ntasks_per_node": 4, "num_tasks": 16}, False),
        ({"ntasks_per_node": 4}, True),
        ({"num_tasks": 4}, False),
    ],
)
def test_a_job_that_sets_its_tasks_per_node_keeps_them_there(fields: dict[str, Any], stay: bool) -> None:
    submission = Submission(
        user="ann", uid=1000, batch=True, other=(), script="#!/bin/sh\ntrue\n", cpus_per_task=4, **fields
    )
    assert fixed_by(submission, job_request(submission)).tasks_stay == stay


@pytest.mark.parametrize(
    ("command", "fields", "keeps"),
    [
        ("srun -N 4 ./fit", {}, True),
        ("srun --nodes=2-4 ./fit", {}, True),
        ("srun -N4 -n 16 ./fit", {"nodes_min": 4, "nodes_max": 4}, False),
        ("srun -N 1 ./fit", {}, False),
        ("srun -N 1-4 ./fit", {}, False),
        ("srun -N 12 ./fit", {}, True),
        ("srun -N $SLURM_NNODES ./fit", {}, False),
        ("mpirun --map-by ppr:4:node ./fit", {}, True),
        ("mpirun -npernode 4 ./fit", {"nodes_min": 4, "nodes_max": 4}, True),
        ("srun -m plane=4 ./fit", {"nodes_min": 4, "nodes_max": 4}, True),
        ("mpiexec -ppn 4 ./fit", {"nodes_min": 4, "nodes_max": 4, "ntasks_per_node": 4}, False),
        ("mpirun ./fit -ppn 4", {}, True),
        ("mpirun -np 16 ./fit", {}, False),
        ("./fit -N 4", {}, False),
    ],
)
def test_a_script_that_relies_on_its_nodes_keeps_its_cpus(
    command: str, fields: dict[str, Any], keeps: bool
) -> None:
    """With fewer CPUs `-n 16 -c 4` gets one node, and `-N 4 -n 16 -c 4` most of its CPUs on the first of four."""
    submission = Submission(
        user="ann", uid=1000, batch=True, other=(), script=f"#!/bin/sh\n{command}\n", num_tasks=16, cpus_per_task=4,
        **fields,
    )  # fmt: skip
    assert ("cores" in dict(fixed_by(submission, job_request(submission)).kept)) == keeps


@pytest.mark.parametrize(
    ("fields", "keeps"),
    [
        ({"other": ("gres",), "nodes_min": 2, "nodes_max": 2}, True),
        ({"other": ("tres_per_job",)}, True),
        ({"other": ("gres",), "nodes_min": 1, "nodes_max": 1}, False),
        ({"other": ("gres",), "nodes_min": 2, "nodes_max": 2, "ntasks_per_node": 4, "num_tasks": 8}, False),
        ({"other": ("gres",), "num_tasks": 1}, False),
        ({"other": ()}, False),
    ],
)
def test_tasks_stay_apart_if_nobody_can_count_their_gpus(fields: dict[str, Any], keeps: bool) -> None:
    """Five with `-N 2 -c 4 --gres=gpu:a:1,gpu:b:2` were two and three; cut, four had three GPUs (24.11)."""
    submission = Submission(**{"user": "ann", "uid": 1000, "batch": True, "num_tasks": 5, **fields})
    assert dict(fixed_by(submission, job_request(submission)).kept).get("cores") == (
        OUTNUMBERS if keeps else None
    )
