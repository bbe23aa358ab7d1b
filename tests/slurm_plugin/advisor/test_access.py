"""In which of several partitions a job may start, depending on its user, account and QOS."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slurm_plugin.advisor.access import may_use
from slurm_plugin.advisor.problem import problem_of
from slurm_plugin.advisor.room import numbers_of
from slurm_plugin.advisor.run_time import by_limit
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
