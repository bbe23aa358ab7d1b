"""Memory that brings CPUs under MaxMemPerCPU: cut only as far as the job does not need them."""

from typing import Any

import pytest

from accounting.request import Dimension, Grant
from slurm_plugin.policy.facts import MemoryTerms, strictest
from slurm_plugin.policy.sizing import size
from slurm_plugin.policy.submission import NOT_BATCH
from slurm_plugin.service.decide import with_memory_terms
from tests.builders import request
from tests.slurm_plugin.policy.sized import limits, prediction


@pytest.mark.parametrize(
    ("asked", "busy", "step", "grant"),
    [
        # Slurm gives it four CPUs.
        ({"cpus_per_task": None, "mem_per_node_mib": 8000}, 2.6, 1, Grant(mem_per_node_mib=6000)),
        ({"cpus_per_task": None, "mem_per_node_mib": 8000}, 9.0, 1, Grant()),
        ({"cpus_per_task": None, "mem_per_node_mib": 8000}, 1.0, 1, Grant(mem_per_node_mib=416)),
        ({"cpus_per_task": 1, "mem_per_cpu_mib": 8000}, 2.6, 1, Grant(mem_per_cpu_mib=6000)),
        ({"cpus_per_task": 2, "mem_per_cpu_mib": 8000}, 2.6, 1, Grant(mem_per_cpu_mib=4000)),
        (
            {"cpus_per_task": None, "mem_per_node_mib": 20000, "num_tasks": 2},
            3.0,
            1,
            Grant(mem_per_node_mib=12000),
        ),
        (
            {"cpus_per_task": None, "mem_per_node_mib": 8000, "num_tasks": 2, "nodes": 2},
            3.0,
            1,
            Grant(mem_per_node_mib=6000),
        ),
        # Each task has its own share, and one of the two nodes has two of the three tasks.
        (
            {"cpus_per_task": 1, "mem_per_cpu_mib": 8000, "num_tasks": 4},
            2.6,
            1,
            Grant(mem_per_cpu_mib=6000),
        ),
        (
            {"cpus_per_task": None, "mem_per_node_mib": 16000, "num_tasks": 3, "nodes": 2},
            2.6,
            1,
            Grant(mem_per_node_mib=12000),
        ),
        # A part of a CPU is a CPU: five for both tasks, three for each.
        ({"cpus_per_task": None, "mem_per_node_mib": 9000, "num_tasks": 2}, 3.0, 1, Grant()),
        # No more than it asks for, and no more than one core of two threads.
        (
            {"cpus_per_task": None, "mem_per_node_mib": 8000, "num_tasks": 4},
            3.0,
            1,
            Grant(mem_per_node_mib=416),
        ),
        ({"cpus_per_task": None, "mem_per_node_mib": 8000}, 2.0, 2, Grant(mem_per_node_mib=416)),
        # Two tasks may share a core.
        ({"cpus_per_task": None, "mem_per_node_mib": 8000, "num_tasks": 2}, 2.0, 2, Grant()),
    ],
)
def test_memory_that_brings_cpus_is_cut_only_as_far_as_they_are_idle(
    asked: dict[str, Any], busy: float, step: int, grant: Grant
) -> None:
    site = limits(max_mem_per_cpu_mib=2000, cpus_step=step)
    assert size(request(**asked), prediction(memory=400.0, cores=busy), site).grant == grant


@pytest.mark.parametrize(
    ("asked", "least", "step", "grant"),
    [
        ({"cpus_per_task": None, "mem_per_node_mib": 8000}, 3, 1, Grant(mem_per_node_mib=6000)),
        ({"cpus_per_task": None, "mem_per_node_mib": 8000}, 9, 1, Grant()),
        ({"cpus_per_task": None, "mem_per_node_mib": 8000}, 1, 1, Grant(mem_per_node_mib=416)),
        # Slurm looks at what is asked, not at the other thread of a core.
        ({"cpus_per_task": None, "mem_per_node_mib": 8000}, 2, 2, Grant(mem_per_node_mib=4000)),
        ({"cpus_per_task": 2, "mem_per_cpu_mib": 6000}, 4, 2, Grant(mem_per_cpu_mib=4000)),
        ({"cpus_per_task": 8, "mem_per_node_mib": 8000}, 4, 1, Grant(cpus_per_task=4, mem_per_node_mib=416)),
    ],
)
def test_memory_brings_the_cpus_that_a_job_must_have(
    asked: dict[str, Any], least: int, step: int, grant: Grant
) -> None:
    site = limits(max_mem_per_cpu_mib=2000, min_cpus_per_task=least, cpus_step=step)
    assert size(request(**asked), prediction(memory=400.0, cores=0.5), site).grant == grant


@pytest.mark.parametrize(
    ("asked", "reason", "mem_mib"),
    [
        ({}, "the script starts a rank on each", None),
        ({"mem_per_node_mib": 2000}, "the script starts a rank on each", 416),
        # One task, or as many as are asked for.
        ({}, NOT_BATCH, 416),
        ({"cpus_per_task": 1}, NOT_BATCH, None),
        ({"cpus_per_task": 1}, "max_mem_per_cpu", None),
        ({"cpus_per_task": 1, "num_tasks": 2}, NOT_BATCH, 416),
        # Only one reason is told, and its script may be another.
        ({}, "threads_per_core", None),
        ({}, "whole_sockets", 416),
    ],
)
def test_memory_brings_all_cpus_if_tasks_are_started_by_their_number(
    asked: dict[str, Any], reason: str, mem_mib: int | None
) -> None:
    job = request(**{"cpus_per_task": None, "mem_per_node_mib": 8000, **asked})
    kept: dict[Dimension, str] = {"cores": reason}
    sized = size(job, prediction(memory=400.0, cores=0.5), limits(max_mem_per_cpu_mib=2000), kept)
    assert sized.grant == Grant(mem_per_node_mib=mem_mib)


@pytest.mark.parametrize(
    ("partitions", "mem_mib"),
    [((1000, 4000), 12000), ((4000, 1000), 12000), ((4000, 0), 12000), ((1000, 20000), 3000), ((0, 0), 416)],
)
def test_cpus_that_it_keeps_busy_are_brought_in_each_of_its_partitions(
    partitions: tuple[int, int], mem_mib: int
) -> None:
    terms = strictest([MemoryTerms(max_per_cpu_mib=limit_mib) for limit_mib in partitions])
    site = with_memory_terms(limits(), terms, known=True)
    asked = request(cpus_per_task=None, mem_per_node_mib=16000)
    assert size(asked, prediction(memory=400.0, cores=2.6), site).grant == Grant(mem_per_node_mib=mem_mib)
