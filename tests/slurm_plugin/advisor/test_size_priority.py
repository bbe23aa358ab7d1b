"""What a job's size is worth in its priority, by sprio of 22.05, on two nodes of 16 CPUs and 64,000 MiB."""

import msgspec
import pytest

from models.planning.problem import Pending
from slurm_plugin.advisor.size_priority import at_their_size, size_points
from slurm_plugin.advisor.waiting import Needed, variants
from slurm_plugin.slurm.cluster_lines import parse_terms
from slurm_plugin.slurm.snapshot import NodeState, QueuedJob, Snapshot
from tests.slurm_plugin.slurm.queued import snapshot, waiting

NODES = tuple(
    NodeState(name=name, cpus=16, mem_mib=64_000, gpus=0, partitions=("batch",)) for name in ("n1", "n2")
)
# All ask for five minutes, and for this many nodes, CPUs and MiB.
CUT, WHOLE, OF_TWO = (1, 1, 128), (1, 8, 8000), (2, 16, 16_000)


def seen(config: str, *jobs: QueuedJob) -> Snapshot:
    return snapshot(*jobs, nodes=NODES, terms=parse_terms(config))


def asking(job: tuple[int, int, int], limit_s: float = 300.0) -> Pending:
    nodes, cpus, mem_mib = job
    return Pending(
        job_id=7, account=0, user=0, pools=frozenset({0}), priority=5000, factor=0, demand=(cpus * 1000, mem_mib, 0),
        limit_s=limit_s, likely_s=60, upper_s=90, waited_s=0, nodes=nodes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("config", "job", "points"),
    [
        ("PriorityWeightJobSize = 100000", CUT, 26_562),
        ("PriorityWeightJobSize = 100000", WHOLE, 37_500),
        ("PriorityWeightJobSize = 100000", OF_TWO, 75_000),
        ("PriorityWeightJobSize = 100000\nPriorityFavorSmall = Yes", CUT, 73_437),
        ("PriorityWeightJobSize = 100000\nPriorityFavorSmall = Yes", OF_TWO, 25_000),
        ("PriorityWeightJobSize = 1000000\nPriorityFlags = SMALL_RELATIVE_TO_TIME", CUT, 100_000),
        ("PriorityWeightJobSize = 1000000\nPriorityFlags = SMALL_RELATIVE_TO_TIME", OF_TWO, 200_000),
        ("PriorityWeightTRES = CPU=100000,Mem=100000", CUT, 3225),
        ("PriorityWeightTRES = CPU=100000,Mem=100000", WHOLE, 31_250),
        ("PriorityWeightTRES = CPU=1000,Mem=10\nPriorityFlags = NO_NORMAL_TRES", CUT, 2280),
        ("PriorityWeightTRES = CPU=1000,Mem=10\nPriorityFlags = NO_NORMAL_TRES", WHOLE, 88_000),
        ("PriorityWeightTRES = (null)\nPriorityWeightJobSize = 0", WHOLE, 0),
    ],
)
def test_points_are_those_of_sprio(config: str, job: tuple[int, int, int], points: int) -> None:
    assert int(size_points(asking(job), ("batch",), seen(config))) == points


def test_shares_are_those_of_the_first_of_several_partitions() -> None:
    of_tres = seen("PriorityWeightTRES = CPU=100000")
    assert size_points(asking(WHOLE), ("batch", "empty"), of_tres) == 25_000
    assert size_points(asking(WHOLE), ("empty", "batch"), of_tres) == 0


def test_a_job_without_a_limit_gets_no_points_for_its_time() -> None:
    by_time = seen("PriorityWeightJobSize = 1000\nPriorityFlags = SMALL_RELATIVE_TO_TIME")
    assert size_points(asking(WHOLE, float("inf")), ("batch",), by_time) == 0.0


@pytest.mark.parametrize(("fixed", "priorities"), [(False, [5000, 2500, 5000]), (True, [5000] * 3)])
def test_a_smaller_request_has_a_lower_priority_unless_that_was_set_directly(
    fixed: bool, priorities: list[int]
) -> None:
    job = waiting(7, cpus=8, mem_mib=8000, priority=5000, fixed=fixed)
    might = variants(asking(WHOLE), Needed(cpus=4, mem_mib=128, wall_s=300.0))
    assert [one.what.partition(",")[0] for one in might[:3]] == ["as it is", "4 CPUs", "128 MiB of memory"]
    found = at_their_size(job, might, seen("PriorityWeightTRES = CPU=20000", job))
    assert [one.job.priority for one in found[:3]] == priorities


def test_a_smaller_request_makes_no_priority_negative() -> None:
    job = waiting(7, cpus=8, mem_mib=8000, priority=5)
    might = variants(msgspec.structs.replace(asking(WHOLE), priority=5), Needed(cpus=4, mem_mib=128))
    found = at_their_size(job, might, seen("PriorityWeightTRES = CPU=20000", job))
    assert [one.job.priority for one in found[:2]] == [5, 0]
