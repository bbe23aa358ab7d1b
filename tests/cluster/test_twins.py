"""Requests drawn by chance: what Slurm lets run as it was typed also runs when it is cut, and in the same way."""

from dataclasses import replace

import pytest

from tests.cluster.matrix.prefixes import chosen_prefix, why_missing
from tests.cluster.twins.clusters import CLUSTERS
from tests.cluster.twins.compare import Outcome, losses, verdict
from tests.cluster.twins.draw import drawn
from tests.cluster.twins.pairs import run_pairs
from tests.cluster.twins.variables import per_node_sum

REQUESTS = 24
SEED = 1

TWIN = Outcome(
    "COMPLETED",
    allocated={"cpu": 8, "mem": 4000, "node": 2, "gres/gpu": 2},
    tasks=((0, 1), (0, 1), (1, 1)),
)
CUT = replace(TWIN, allocated={"cpu": 4, "mem": 1024, "node": 2, "gres/gpu": 2})


def test_a_cut_request_that_ran_like_its_twin_lost_nothing() -> None:
    assert losses(CUT, TWIN, used_mib=500, used_cores=3) == []
    assert verdict(CUT, TWIN) == "cut"
    assert verdict(TWIN, TWIN) == "as it was"


@pytest.mark.parametrize(
    ("changed", "loss"),
    [
        ({"end": "waits", "said": "Resources"}, "waits, not COMPLETED: Resources"),
        ({"end": "refused", "said": "sbatch: error: no"}, "refused, not COMPLETED: sbatch: error: no"),
        ({"allocated": CUT.allocated | {"node": 1}}, "nodes 1, not 2"),
        ({"tasks": ((0, 1), (1, 1), (1, 1))}, "tasks on each node (1, 2), not (2, 1)"),
        ({"tasks": ((0, 1), (0, 0), (1, 1))}, "a task sees no GPU"),
        ({"allocated": CUT.allocated | {"cpu": 9}}, "cpu 9, more than 8"),
        ({"allocated": CUT.allocated | {"cpu": 2}}, "2 CPUs, fewer than the 3 that are busy"),
        (
            {"allocated": CUT.allocated | {"mem": 999}},
            "999 MiB, less than the 1000 that are used",
        ),
    ],
)
def test_what_a_cut_request_lost_is_named(changed: dict[str, object], loss: str) -> None:
    assert losses(replace(CUT, **changed), TWIN, used_mib=500, used_cores=3) == [loss]  # type: ignore[arg-type]


def test_tasks_may_move_to_other_nodes_if_nobody_said_how_many() -> None:
    gathered = replace(CUT, allocated=CUT.allocated | {"node": 1}, tasks=((0, 1),) * 3)
    assert losses(gathered, TWIN, used_mib=500, used_cores=3, says_nodes=False, says_tasks=False) == []
    spread = replace(CUT, allocated=CUT.allocated | {"node": 3}, tasks=((0, 1), (1, 1), (2, 1)))
    assert (
        losses(
            spread,
            TWIN,
            used_mib=100,
            used_cores=3,
            says_nodes=False,
            says_tasks=False,
            lists_partitions=True,
        )
        == []
    )
    one_less = replace(gathered, tasks=((0, 1),) * 2)
    assert losses(one_less, TWIN, used_mib=500, used_cores=3, says_nodes=False, says_tasks=False) == [
        "nodes 1, not 2",
        "tasks on each node (2,), not (2, 1)",
    ]


def test_tasks_without_gpus_may_be_shared_out_otherwise() -> None:
    shifted, with_gpus = (replace(CUT, tasks=tuple((node, gpus) for node in (0, 1, 1))) for gpus in (0, 1))
    twin = replace(TWIN, tasks=((0, 0), (0, 0), (1, 0)))
    assert losses(shifted, twin, used_mib=100, used_cores=3, says_tasks=False) == []
    assert losses(with_gpus, TWIN, used_mib=100, used_cores=3, says_tasks=False) == [
        "tasks on each node (1, 2), not (2, 1)"
    ]


@pytest.mark.parametrize(
    ("mine", "theirs", "loss"),
    [
        ("script NTASKS=3", "script NTASKS=3", ""),
        ("step NTASKS=4", "step NTASKS=3", "in the step SLURM_NTASKS is 4, not 3"),
        ("script X=1", "script MEM_PER_NODE=2000", "in the script SLURM_MEM_PER_NODE is none, not 2000"),
        ("script MEM_PER_NODE=512", "script MEM_PER_NODE=2000", ""),
        (
            "script MEM_PER_NODE=2000",
            "script MEM_PER_NODE=2000",
            "in the script SLURM_MEM_PER_NODE is 2000, which is not what the job has",
        ),
        ("script JOB_CPUS_PER_NODE=2(x2)", "script JOB_CPUS_PER_NODE=5,3", ""),
        (
            "script JOB_CPUS_PER_NODE=2(x3)",
            "script JOB_CPUS_PER_NODE=4(x2)",
            "in the script SLURM_JOB_CPUS_PER_NODE is 2(x3), which is not what the job has",
        ),
        # The twin's says no more of what it was given.
        ("script MEM_PER_CPU=999", "script MEM_PER_CPU=999", ""),
    ],
)
def test_what_a_cut_job_is_told_of_itself_is_as_true_as_for_its_twin(
    mine: str, theirs: str, loss: str
) -> None:
    ours, twin = replace(CUT, said=f"x\n{mine}\n"), replace(TWIN, said=f"{theirs}\n")
    found = losses(ours, twin, used_mib=500, used_cores=3)
    assert [one for one in found if "_X is" not in one] == ([loss] if loss else [])


def test_a_list_of_nodes_is_added_up() -> None:
    assert [per_node_sum(value) for value in ("8", "4(x2),2", "1,3(x3)")] == [8, 10, 10]


def test_steps_that_wait_although_they_did_not_are_named() -> None:
    waits = replace(CUT, said="srun: Job 3 step creation temporarily disabled, retrying\n")
    assert losses(waits, TWIN, used_mib=500, used_cores=3) == ["1 of its steps wait for others, not 0"]


def test_what_does_not_run_as_it_was_typed_proves_nothing() -> None:
    refused = Outcome("refused")
    for ours in (refused, CUT):
        assert losses(ours, refused, used_mib=500, used_cores=3) == []
    assert verdict(refused, refused) == "not run"


def test_a_seed_draws_the_same_requests_again() -> None:
    assert drawn(50, 7) == drawn(50, 7) != drawn(50, 8)


def test_clients_that_ask_are_direct() -> None:
    assert {form.command for form in drawn(50, 7, asking=True)} == {"srun", "salloc"}


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("asking", [False, True])
def test_requests_drawn_by_chance_lose_nothing_by_being_cut(asking: bool) -> None:
    if reason := why_missing(chosen_prefix()):
        pytest.skip(reason)
    requests = drawn(REQUESTS, SEED, asking=asking)
    pairs = list(run_pairs(chosen_prefix(), requests, CLUSTERS["uneven"], asking=asking))
    assert [(pair.form.asked, pair.losses) for pair in pairs if pair.losses] == []
    assert "cut" in [verdict(pair.ours, pair.twin) for pair in pairs]
