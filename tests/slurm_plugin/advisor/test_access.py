"""In which of several partitions a job may start, depending on its user, account and QOS."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slurm_plugin.advisor.access import may_use, takes
from slurm_plugin.advisor.problem import TOO_LARGE, problem_of
from slurm_plugin.advisor.room import numbers_of
from slurm_plugin.advisor.run_time import by_limit
from slurm_plugin.policy.facts import MemoryTerms
from slurm_plugin.slurm.snapshot import PartitionState
from tests.slurm_plugin.slurm.queued import snapshot, waiting

ABOVE = {"lasers": "physics", "physics": "root"}


@pytest.mark.parametrize(
    ("partition", "takes"),
    [
        ({}, True),
        ({"accounts": ("physics",)}, True),
        ({"accounts": ("lasers",)}, True),
        ({"accounts": ("chemistry",)}, False),
        ({"denied_accounts": ("physics",)}, False),
        ({"denied_accounts": ("chemistry",)}, True),
        # If some accounts are allowed, Slurm does not look at the denied ones.
        ({"accounts": ("physics",), "denied_accounts": ("lasers",)}, True),
        ({"all_qos": ("normal", "long")}, True),
        ({"all_qos": ("long",)}, False),
        ({"denied_qos": ("normal",)}, False),
        ({"groups": ("staff", "ann")}, True),
        ({"groups": ("staff",)}, False),
        ({"most_nodes": 2}, True),
        ({"most_nodes": 1}, False),
        ({"most_nodes": math.inf}, True),
    ],
)
def test_which_jobs_a_partition_accepts(partition: dict[str, Any], takes: bool) -> None:
    known = snapshot(account_parents=ABOVE, user_groups={"ann": frozenset({"ann"})})
    job = waiting(1, account="lasers", qos="normal", num_nodes=2)
    assert may_use(job, PartitionState(name="own", **partition), known) is takes


def test_unknown_groups_of_a_user_forbid_nothing_and_an_account_counts_without_its_parents() -> None:
    partitions = [
        PartitionState(name="own", groups=("staff",)),
        PartitionState(name="a", accounts=("physics",)),
    ]
    job = waiting(1, account="lasers")
    assert [may_use(job, one, snapshot()) for one in partitions] == [True, False]


def test_a_job_does_not_count_in_a_partition_that_does_not_accept_it() -> None:
    partitions = (PartitionState(name="batch"), PartitionState(name="own", accounts=("chemistry",), tier=9))
    found = snapshot(
        waiting(1, partitions=("batch", "own")), waiting(2, partitions=("own",)), partitions=partitions
    )
    several, alone = problem_of(found, lambda job: by_limit(job, "this is a test")).pending
    pools = numbers_of(found).pools
    assert (several.pools, several.tier) == (frozenset({pools["batch"]}), 1)
    # For a job with only one partition slurmctld itself says so.
    assert (alone.pools, alone.tier) == (frozenset({pools["own"]}), 9)


SMALL = PartitionState(name="small", memory=MemoryTerms(max_per_node_mib=4000))
FEW = PartitionState(name="few", most_cpus_per_node=4)


@pytest.mark.parametrize(
    ("asked", "small", "few"),
    [
        ({"mem_per_node_mib": 4000, "min_cpus_per_node": 4}, True, True),
        ({"mem_per_node_mib": 4001, "min_cpus_per_node": 4}, False, True),
        ({"mem_per_node_mib": 4000, "min_cpus_per_node": 5}, True, False),
        ({"mem_per_cpu_mib": 1000, "min_cpus_per_node": 4}, True, True),
        ({"mem_per_cpu_mib": 1001, "min_cpus_per_node": 4}, False, True),
        ({"min_cpus_per_node": 5}, True, False),
    ],
)
def test_which_jobs_ask_for_no_more_of_a_node_than_a_partition_allows(
    asked: dict[str, Any], small: bool, few: bool
) -> None:
    job = waiting(1, **{"mem_per_node_mib": None, **asked})
    assert (takes(job, SMALL), takes(job, FEW)) == (small, few)


def test_a_job_does_not_count_in_a_partition_that_is_too_small_for_it() -> None:
    """Plans let it start there at once, while Slurm let it wait in the other (22.05)."""
    both = {"partitions": ("small", "few"), "mem_per_node_mib": 8000}
    found = snapshot(
        waiting(1, **both, min_cpus_per_node=4),
        waiting(2, **both, min_cpus_per_node=8),
        partitions=(SMALL, FEW),
    )
    one, none = problem_of(found, lambda job: by_limit(job, "this is a test")).pending
    assert one.pools == frozenset({numbers_of(found).pools["few"]})
    assert (none.kept, none.out) == (TOO_LARGE, True)
