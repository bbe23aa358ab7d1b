"""What is said of a pending job, and what it might ask for instead."""

import math
from typing import Any

import msgspec
import pytest

from models.planning.problem import Pending
from slurm_plugin.advisor.waiting import (
    Needed,
    ahead_of,
    asks_now,
    is_cut,
    variants,
    way_back,
    why_it_waits,
    why_whole,
)
from slurm_plugin.slurm.reasons import REASONS, reason_of
from slurm_plugin.slurm.snapshot import QueuedJob
from tests.slurm_plugin.slurm.queued import waiting

JOB = waiting(7, partitions=("main", "long"), priority=100)
PENDING = Pending(
    job_id=7, account=0, user=0, pools=frozenset({0}), priority=100, factor=0, demand=(8000, 8000, 0), limit_s=3600,
    likely_s=600, upper_s=900, waited_s=0,
)  # fmt: skip


DECIDED = "rightsizer/1;id=0a;mode=enforce;why={};asked=tasks:1,cpus:8,gpus:4{}"


def changed(**values: Any) -> QueuedJob:
    return msgspec.structs.replace(JOB, **values)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "3 other jobs come first (Priority)"),
        ("None", "Slurm has not considered it yet; 3 other jobs come first (None)"),
        ("Resources", "it is next, and waits until enough resources are free (Resources)"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n[1-2]",
            "a node that it needs is down, drained, reserved or about to be powered down",
        ),
        (
            "ReqNodeNotAvail,_Reserved_for_maintenance",
            "the nodes that it could use are reserved, or will be before its time limit ends",
        ),
        (
            "ReqNodeNotAvail,_May_be_reserved_for_other_job",
            "the nodes that it could use are down or drained, or reserved now or before its time limit ends",
        ),
        ("user_env_retrieval_failed_requeued_held", "its node could not read the user's environment"),
        ("launch failed requeued held", "Slurm could not start it, requeued it and holds it"),
        ("QOSMaxCpuPerUserLimit", "its user has as much as the QOS allows at a time"),
        ("QOSMaxGRESPerUser", "its user has as much as the QOS allows at a time"),
        (
            "QOSGrpCpuLimit",
            "if it started, all jobs of its QOS together would have more than they may have at a time",
        ),
        ("AssocGrpMemLimit", "if it started, its account would have more than it may have at a time"),
        ("AssocGrpCPUMinutesLimit", "its account has used up its time"),
        ("AssocGrpGRESMinutes", "its account has used up its time"),
        ("AssocGrpWallLimit", "its account has used up its time"),
        ("AssocGrpCPURunMinutesLimit", "if it started, the running jobs of its account could use more time"),
        ("AssocMaxJobsLimit", "its user runs as many jobs at a time as the account allows"),
        ("AssocMaxCpuMinutesPerJobLimit", "it asks for more than its account allows"),
        ("AssocMaxWallDurationPerJobLimit", "it asks for more than its account allows"),
        ("QOSGrpMemoryMinutes", "its QOS has used up its time"),
        ("QOSGrpMemoryRunMinutes", "if it started, the running jobs of its QOS could use more time"),
        ("QOSMaxWallDurationPerJobLimit", "it asks for more than its QOS allows"),
        ("MaxMemoryPerAccount", "its account has as much as the QOS allows at a time"),
        ("JobHeldAdmin", "an administrator holds it; ask the administrator"),
        (
            "Job's_account_not_permitted_to_use_this_partition_(acct_allows_other_not_root)",
            "its account may not use the partition",
        ),
        (
            "Nodes_required_for_job_are_DOWN,_DRAINED,_REBOOTING_or_…",
            "nodes that it needs are down or drained",
        ),
        ("QOSNotAllowed", "its QOS may not use the partition"),
        ("MaxMemPerLimit", "it asks for more memory per node, or per CPU, than its partition allows"),
        (
            "BadConstraints",
            "no node matches its request: --constraint, --nodelist and similar options, or more CPUs",
        ),
        ("QOSUsageThreshold", "its account's fair share is below the minimum of its QOS"),
        ("SchedDefer", "Slurm starts no job right at its submission"),
        ("NvidiaImexChannels", "Slurm gives no other reason (NvidiaImexChannels)"),
    ],
)
def test_every_reason_has_words(reason: str, words: str) -> None:
    assert why_it_waits(changed(reason=reason), 3).startswith(words)


def test_the_reason_of_one_partition_is_said_of_that_one() -> None:
    said = why_it_waits(changed(reason="PartitionTimeLimit"), 3)
    assert "applies to one of its partitions, and it also waits in the others" in said
    assert "others, too" not in why_it_waits(changed(reason="PartitionTimeLimit", partitions=("main",)), 3)


def test_reasons_are_matched_from_narrow_to_wide() -> None:
    assert REASONS[-1].pattern == "*"
    assert len({reason.pattern for reason in REASONS}) == len(REASONS)


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("None", ""),
        ("Priority", ""),
        ("Resources", ""),
        ("Cleaning", ""),
        ("MaxCpuPerAccount", "a limit of its QOS holds it"),
        ("AssociationJobLimit", "a limit of its account holds it"),
        ("JobHoldMaxRequeue", "it is held"),
        ("user_env_retrieval_failed_requeued_held", "it is held"),
        ("user env retrieval failed requeued held", "it is held"),
        ("launch_failed_requeued_held", "it is held"),
        ("InvalidQOS", "Slurm says that it cannot run with its present request"),
        ("DeadLine", "its deadline has passed"),
        ("ReqNodeNotAvail,_Reserved_for_maintenance", ""),
        ("ReqNodeNotAvail, May be reserved for other job", ""),
        ("ReqNodeNotAvail,_UnavailableNodes:reserved[1-2]", "the nodes that it needs are not available"),
        ("MaxMemPerLimit", "its partition does not accept it now"),
        ("MaxPoweredUpNodes", "the largest allowed number of nodes is powered up"),
        (
            "Job's_account_not_permitted_to_use_this_partition_(acct_allows_other_not_root)",
            "Slurm says that it cannot run with its present request",
        ),
        (
            "Job's QOS not permitted to use this partition (main denies low including low)",
            "Slurm says that it cannot run with its present request",
        ),
        (
            "uid_1001_not_in_group_permitted_to_use_this_partition_(main)._groups_allowed:_staff",
            "Slurm says that it cannot run with its present request",
        ),
        (
            "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
            "",
        ),
    ],
)
def test_a_job_that_waits_for_more_than_its_turn_keeps_its_place(reason: str, kept: str) -> None:
    assert reason_of(reason).kept == kept


def test_jobs_ahead_are_those_that_could_take_its_nodes_first() -> None:
    others = (
        changed(job_id=1, priority=101, partitions=("main",)),
        changed(job_id=2, priority=99),
        changed(job_id=3, priority=200, partitions=("gpu",)),
        changed(job_id=4, priority=200, held=True),
        changed(job_id=5, priority=200, state="RUNNING"),
        JOB,
    )
    assert ahead_of(JOB, others) == 1
    waits_for_another = changed(job_id=6, priority=200, dependency="afterok:1")
    assert ahead_of(JOB, (*others, waits_for_another), out={6}) == 1


def test_a_variant_asks_for_what_similar_jobs_needed() -> None:
    found = variants(PENDING, Needed(cpus=2, mem_mib=512, wall_s=700))
    assert [one.what for one in found] == [
        "as it is",
        "2 CPUs, as jobs like it needed",
        "512 MiB of memory, as jobs like it needed",
        "15 minutes of time, as jobs like it needed",
        "all of these",
    ]
    assert found[0].job == PENDING
    assert found[-1].job.demand == (2000, 512, 0)
    assert found[-1].job.limit_s == 900


def test_a_variant_with_fewer_cpus_asks_for_whole_cores() -> None:
    """Asking for 2 of a socket of 4 CPUs brings nothing."""
    known, half = Needed(cpus=2, mem_mib=8000), Needed(mem_mib=8000)
    assert [one.job.demand[0] for one in variants(PENDING, known, step=4)][1] == 4000
    assert [one.job.demand[0] for one in variants(PENDING, half, step=3)][1] == 3000
    told = [one.what for one in variants(PENDING, known, step=8)]
    assert told == ["as it is", "30 minutes of time, half of what it asks for"]


def test_a_job_that_gets_whole_nodes_gains_only_by_asking_for_less_time() -> None:
    found = variants(PENDING, Needed(cpus=2, mem_mib=512), whole_nodes=True)
    assert [one.what for one in found] == ["as it is", "30 minutes of time, half of what it asks for"]


def test_a_variant_asks_for_half_of_a_resource_whose_need_is_unknown() -> None:
    found = variants(PENDING, Needed())
    assert [one.what for one in found[1:4]] == [
        "4 CPUs, half of what it asks for",
        "4,000 MiB of memory, half of what it asks for",
        "30 minutes of time, half of what it asks for",
    ]


def test_no_variant_asks_for_as_much_or_more() -> None:
    needs_all = Needed(cpus=8, mem_mib=9000, wall_s=3600)
    assert [one.what for one in variants(PENDING, needs_all)] == ["as it is"]
    endless = msgspec.structs.replace(PENDING, limit_s=math.inf, demand=(1000, 0, 0))
    assert [one.what for one in variants(endless, Needed())] == ["as it is"]


def test_a_job_left_whole_by_a_brake_is_told_so() -> None:
    assert why_whole(changed(admin_comment="")) == ""
    assert why_whole(changed(admin_comment=DECIDED.format("fits", ""))) == ""
    whole = why_whole(changed(admin_comment=DECIDED.format("braked", "")))
    assert whole.startswith("it has what it asked for, because cutting jobs like it is stopped")
    few = why_whole(changed(admin_comment=DECIDED.format("braked", ";granted=gpus:1")))
    assert few.startswith("it has what it asked for, but fewer GPUs, because")


CUT = "rightsizer/1;id=0a;mode=enforce;why=resized;asked=tasks:2,cpus:8,mem:8000;granted=cpus:1,mem:128"
WITH_GPUS = f"{CUT},gpus:1".replace("mem:8000", "mem:8000,gpus:4")
ONLY_MEMORY = CUT.replace("cpus:8", "cpus:1").replace("granted=cpus:1,", "granted=")
# What Slurm has of it: two CPUs, one for each task.
AS_CUT = {
    "batch": True, "admin_comment": CUT, "num_tasks": 2, "cpus_per_task": 1, "min_cpus": 2, "min_cpus_per_node": 1,
    "mem_per_node_mib": 128,
}  # fmt: skip
BELOW = {"reason": "QOSMinMemory"}
WHOLE = "MinMemoryNode=8000 CPUsPerTask=8 NumCPUs=16 MinCPUsNode=8"
TOO_EARLY = "it was cut before that minimum applied to it"
AGAIN = f"{TOO_EARLY}; submit it again with --comment=rightsize=off"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, f"`scontrol update JobId=7 {WHOLE}` gives it what it asked for"),
        (BELOW, f"{TOO_EARLY}; `scontrol update JobId=7 {WHOLE}` gives it what it asked for"),
        (
            {"array_job_id": 5, "array_tasks": "1-3"},
            f"`scontrol update JobId=5_[1-3] {WHOLE}` gives it what it asked for",
        ),
        (
            {"tres_per_task": "cpu=1"},
            f"`scontrol update JobId=7 {WHOLE} TresPerTask=cpu=8` gives it what it asked for",
        ),
        # A srun or salloc would fail, and which field has the GPUs is not read.
        ({"batch": False}, ""),
        ({"batch": False, **BELOW}, AGAIN),
        ({"admin_comment": WITH_GPUS}, ""),
        ({"admin_comment": WITH_GPUS, **BELOW}, AGAIN),
    ],
)
def test_a_cut_job_is_told_how_to_get_its_request_back(values: dict[str, Any], words: str) -> None:
    assert is_cut(changed(**(AS_CUT | values)))
    assert way_back(changed(**(AS_CUT | values)), cpus_stay=False) == words


@pytest.mark.parametrize(
    ("values", "cut"),
    [
        ({"admin_comment": ""}, False),
        ({"admin_comment": CUT.replace("granted", "would")}, False),
        ({"admin_comment": f"{CUT};recovery=out_of_memory:0"}, False),
        ({"state": "RUNNING"}, False),
        ({"mem_per_node_mib": 300}, True),
    ],
)
def test_a_job_that_is_not_as_we_cut_it_has_no_way_back(values: dict[str, Any], cut: bool) -> None:
    job = changed(**(AS_CUT | BELOW | values))
    assert (is_cut(job), way_back(job, cpus_stay=False)) == (cut, "")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ""),
        ({"mem_per_node_mib": 8000}, "2 CPUs, 7.8 GiB per node"),
        ({"cpus_per_task": 4, "min_cpus": 8}, "8 CPUs, 128 MiB per node"),
        ({"min_cpus": 16}, "16 CPUs, 128 MiB per node"),
        ({"mem_per_node_mib": None, "mem_per_cpu_mib": 500}, "2 CPUs, 500 MiB per CPU"),
        ({"num_tasks": 1, "min_cpus": 1}, "1 CPU, 128 MiB per node"),
        # It has not been changed, or what it has is told already.
        ({"mem_per_node_mib": 300, "admin_comment": f"{CUT};recovery=out_of_memory:0"}, ""),
        ({"mem_per_node_mib": 300, "state": "RUNNING"}, ""),
        ({"mem_per_node_mib": 300, "admin_comment": ""}, ""),
    ],
)
def test_what_a_cut_job_asks_for_is_told_once_it_was_changed(values: dict[str, Any], words: str) -> None:
    told = f"now it asks for {words}" if words else ""
    assert asks_now(changed(**(AS_CUT | values))) == told


def test_cpus_that_must_stay_are_not_to_be_changed_by_the_user_either() -> None:
    assert way_back(changed(**AS_CUT), cpus_stay=True) == ""
    assert way_back(changed(**AS_CUT, **BELOW), cpus_stay=True) == AGAIN
    memory = AS_CUT | {"admin_comment": ONLY_MEMORY}
    assert "MinMemoryNode=8000 CPUsPerTask=1`" in way_back(changed(**memory), cpus_stay=True)
    # After `scontrol update MinCPUsNode=2`, MinCPUsNode=16 would ask for both tasks on one node.
    assert way_back(changed(**(AS_CUT | {"min_cpus_per_node": 2})), cpus_stay=False) == ""
