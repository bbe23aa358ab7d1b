"""How useful idle GPUs are to the jobs that usually come, node by node."""

from __future__ import annotations

import msgspec

from accounting.report.gpu_jobs import Given
from slurm_plugin.advisor.idle_gpus import beside_a_gpu, idle_gpus, usual_among
from slurm_plugin.slurm.snapshot import NodeState, SchedulerTerms
from tests.slurm_plugin.slurm.queued import running, snapshot, waiting

# Four jobs want one GPU with two CPUs, one wants four with eight.
USUALLY = usual_among([Given(2, 4000, 1, 1, 4), Given(8, 16_000, 4, 1, 1)])


def node(name: str, **changes: object) -> NodeState:
    plain = NodeState(name=name, cpus=16, mem_mib=64_000, gpus=4, partitions=("batch",))
    return msgspec.structs.replace(plain, **changes)


def test_each_node_names_its_reason_and_the_worst_comes_first() -> None:
    found = snapshot(
        running(1, cpus=15, mem_mib=1000, nodes=("held",)),
        running(2, cpus=1, mem_mib=62_000, gpus=1, nodes=("full",)),
        running(3, cpus=1, mem_mib=1000, gpus=2, nodes=("few",)),
        waiting(4, gpus=4),
        nodes=(
            node("free"),
            node("held"),
            node("full"),
            node("few"),
            node("away", away=True),
            node("none", gpus=0),
        ),
    )
    rows = idle_gpus(found, USUALLY)
    told = {
        row.node: (row.idle, row.usable, row.lost_for_cpus, row.lost_for_memory, row.lost_for_gpus)
        for row in rows
    }
    assert told == {
        "held": (4, 0, 4, 0, 0),
        "full": (3, 0, 0, 3, 0),
        "few": (2, 1.6, 0, 0, 0.4),
        "free": (4, 4, 0, 0, 0),
    }
    assert [row.node for row in rows] == ["held", "full", "few", "free"]
    assert {row.node: (row.cpus_free, row.mem_free_mib, row.cpus_held) for row in rows} == {
        "held": (1, 63_000, 15),
        "full": (15, 2000, 0),
        "few": (15, 63_000, 0),
        "free": (16, 64_000, 0),
    }


def test_a_job_on_several_nodes_is_usual_by_its_share_of_each_and_counts_on_each() -> None:
    usual = usual_among([Given(8, 8000, 4, 2, 1), Given(4, 4000, 2, 1, 2)])
    assert usual.gpus.tolist() == [2]
    assert usual.cpu_milli.tolist() == [4000]


def test_no_gpu_is_lost_for_memory_if_memory_does_not_count() -> None:
    held = running(1, cpus=1, mem_mib=64_000, nodes=("n",))
    terms = SchedulerTerms(priority_type="", scheduler_type="", parameters=(), memory_counts=False)
    (row,) = idle_gpus(snapshot(held, nodes=(node("n"),), terms=terms), USUALLY)
    assert (row.usable, row.lost_for_memory, row.mem_free_mib) == (4, 0, None)


def test_idle_gpus_are_shown_without_their_use_if_usual_jobs_are_unknown() -> None:
    (row,) = idle_gpus(snapshot(nodes=(node("n"),)), usual_among([]))
    assert (row.idle, row.usable, row.lost_for_gpus) == (4, None, None)
    assert idle_gpus(snapshot(nodes=()), USUALLY) == []


def test_what_nine_of_ten_jobs_take_in_addition_to_a_gpu() -> None:
    some = [Given(4, 8000, 2, 1, 80), Given(8, 1000, 1, 1, 10), Given(64, 64_000, 1, 1, 10)]
    assert beside_a_gpu(some) == (8.0, 4000.0)
    assert beside_a_gpu([Given(64, 64_000, 8, 2, 1)]) == (8.0, 8000.0)
    assert beside_a_gpu([]) is None


def test_what_slurm_counts_on_a_node_goes_before_an_equal_share_of_its_jobs() -> None:
    # `sbatch -N 2 --gpus=5` has four GPUs of one node and one of the other.
    found = snapshot(
        running(1, cpus=12, mem_mib=40_000, gpus=5, nodes=("full", "most")),
        nodes=(node("full", held=(10, 30_000, 4)), node("most", held=(2, 10_000, 1))),
    )
    (row,) = idle_gpus(found, USUALLY)
    assert (row.node, row.idle, row.usable, row.cpus_free, row.mem_free_mib) == ("most", 3, 2.4, 14, 54_000)
