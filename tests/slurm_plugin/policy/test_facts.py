"""What partitions and nodes mean for a submission."""

from typing import Any

import pytest

from accounting.decisions.decision import Fixed
from accounting.request import JobRequest
from slurm_plugin.config.settings import Config, Policy
from slurm_plugin.policy.facts import MemoryTerms, Minimum, Partition, SiteFacts
from slurm_plugin.policy.forms import ALL, kept_by_form
from slurm_plugin.policy.rules import limits_of
from slurm_plugin.policy.submission import job_request
from slurm_plugin.service.decide import fixed_by, with_floors
from slurm_plugin.slurm.limits import (
    chooses_partitions,
    gives_whole_nodes,
    parse_node_terms,
    parse_partitions,
    parse_qos,
    takes_turns,
)
from tests.builders import submission


@pytest.mark.parametrize(
    ("said", "whole"),
    [
        ("OverSubscribe=NO", False),
        ("OverSubscribe=FORCE:1", False),
        ("ExclusiveUser=YES ExclusiveTopo=NO OverSubscribe=NO", False),
        ("OverSubscribe=EXCLUSIVE", True),
        ("ExclusiveTopo=YES OverSubscribe=NO", True),
        ("OverSubscribe=NO Exclusive=NODE", True),
        ("OverSubscribe=NO Exclusive=TOPO", True),
        ("OverSubscribe=NO Exclusive=USER", False),
        ("OverSubscribe=NO Exclusive=NO", False),
    ],
)
def test_a_partition_of_whole_nodes_keeps_the_whole_request(said: str, whole: bool) -> None:
    text = f"PartitionName=main Default=YES OverSubscribe=NO\nPartitionName=other Default=NO {said}\n"
    facts = SiteFacts(partitions=parse_partitions(text, MemoryTerms(), None))
    forms = {
        name: facts.forms_of(JobRequest(user="alice", partition=name))
        for name in ("", "main", "unknown", "other", "main,other")
    }
    kept = ("exclusive_partition",) if whole else ()
    assert forms == {"": (), "main": (), "unknown": (), "other": kept, "main,other": kept}
    assert set(kept_by_form(["exclusive_partition"])) == ALL


@pytest.mark.parametrize(
    ("said", "mode", "shares"),
    [
        ("OverSubscribe=FORCE:4", "OFF", True),
        ("OverSubscribe=FORCE:4", "REQUEUE", True),
        ("OverSubscribe=FORCE:2", "GANG,SUSPEND", False),
        ("OverSubscribe=FORCE:1", "OFF", False),
        ("OverSubscribe=YES:4", "OFF", False),
        ("OverSubscribe=NO", "OFF", False),
    ],
)
def test_cpus_stay_where_slurm_puts_several_jobs_on_them(said: str, mode: str, shares: bool) -> None:
    """Two jobs of `-c 2` with two busy processes had the CPUs 0 and 1, and looked as if each needed one (22.05)."""
    text = f"PartitionName=main Default=YES OverSubscribe=NO\nPartitionName=crowd Default=NO {said}\n"
    facts = SiteFacts(
        partitions=parse_partitions(text, MemoryTerms(), None),
        takes_turns=takes_turns(
            f"PreemptMode             = {mode}\nPreemptType             = preempt/none\n"
        ),
    )
    kept = {
        name: kept_by_form(facts.forms_of(JobRequest(user="alice", partition=name)))
        for name in ("", "main", "crowd", "main,crowd")
    }
    cores = {"cores": "shared_cpus"} if shares else {}
    assert kept == {"": {}, "main": {}, "crowd": cores, "main,crowd": cores}


def test_a_cluster_of_whole_nodes_keeps_the_whole_request() -> None:
    asked = JobRequest(user="alice")
    linear, shared = (
        "SelectType              = select/linear\n",
        "SelectType              = select/cons_tres\n",
    )
    assert SiteFacts(whole_nodes=gives_whole_nodes(linear)).forms_of(asked) == ("select_linear",)
    assert SiteFacts(whole_nodes=gives_whole_nodes(shared)).forms_of(asked) == ()
    assert set(kept_by_form(["select_linear"])) == ALL


def test_gpus_stay_where_cores_come_with_them() -> None:
    """Of nodes of 16 cores, four of them for each GPU, `-c 16 --gres=gpu:1` is refused (24.11)."""
    nodes = (
        "NodeName=a-1 CPUTot=16 RestrictedCoresPerGPU=4(0-15)  Partitions=gpu,all OS=Linux\n"
        "NodeName=a-2 CPUTot=16 Partitions=main,all Reason=RestrictedCoresPerGPU\n"
        "NodeName=a-3 CPUTot=16 RestrictedCoresPerGPU=4(0-15)  BootTime=None\n"
    )
    facts = SiteFacts(
        restricted_cores=parse_node_terms(nodes).restricted, partitions={"gpu": Partition(is_default=True)}
    )
    kept = {
        name: kept_by_form(facts.forms_of(JobRequest(user="alice", partition=name)))
        for name in ("", "main", "all", "main,gpu")
    }
    gpus = {"gpus": "restricted_cores"}
    assert kept == {"": gpus, "main": {}, "all": gpus, "main,gpu": gpus}


@pytest.mark.parametrize(
    ("partition", "asked", "keeps"),
    [
        ("", {"gpus_per_job": 8}, True),
        ("", {"gpus_per_job": 4}, False),
        ("", {"gpus_per_job": 8, "nodes": 2}, False),
        ("", {"gpus_per_node": 8}, False),
        # Of four GPUs of two types, a job has at most two of its type.
        ("mixed", {"gpus_per_job": 3}, True),
        ("mixed", {"gpus_per_job": 2}, False),
        ("gpu,mixed", {"gpus_per_job": 4}, True),
        ("cpu", {"gpus_per_job": 8}, False),
        # None of its nodes is shown: on 22.05 those of the cloud are hidden while they are powered down.
        ("cloud", {"gpus_per_job": 2}, True),
        ("cloud", {"gpus_per_job": 1}, False),
        ("cloud", {"gpus_per_job": 2, "nodes": 1}, False),
        ("gpu,cloud", {"gpus_per_job": 4}, True),
    ],
)
def test_gpus_stay_if_no_node_has_so_many(partition: str, asked: dict[str, Any], keeps: bool) -> None:
    """With one GPU left of eight, `srun` started one task on one node, and not one on each of two (22.05 to 26.05)."""
    nodes = (
        "NodeName=a-1 Gres=gpu:a100:4(S:0-1),shard:16 Partitions=gpu\n"
        "NodeName=a-2 Gres=gpu:2 Partitions=gpu\n"
        "NodeName=b-1 Gres=gpu:a:2,gpu:b:2 Partitions=mixed\n"
        "NodeName=c-1 Gres=(null) Partitions=cpu\n"
        "NodeName=c-2 Gres=(null)\n"
    )
    facts = SiteFacts(
        most_gpus=parse_node_terms(nodes).most_gpus, partitions={"gpu": Partition(is_default=True)}
    )
    forms = facts.forms_of(JobRequest(user="alice", partition=partition, **asked))
    assert kept_by_form(forms) == ({"gpus": "gpus_of_nodes"} if keeps else {})


@pytest.mark.parametrize(
    ("partition", "asked", "keeps"),
    [
        ("two", {"gpus_per_job": 4}, True),
        ("main,two", {"gpus_per_job": 4}, True),
        ("main,,two,", {"gpus_per_job": 4}, True),
        ("two", {"gpus_per_job": 4, "nodes": 1}, True),
        ("two", {"gpus_per_job": 4, "nodes": 2}, False),
        ("two", {"gpus_per_node": 4}, False),
        ("main", {"gpus_per_job": 4}, False),
        ("unknown", {"gpus_per_job": 4}, False),
    ],
)
def test_gpus_stay_if_the_partition_gives_a_job_several_nodes(
    partition: str, asked: dict[str, Any], keeps: bool
) -> None:
    """With one GPU left of four, on two nodes at least, Slurm refused the job (22.05 to 26.05)."""
    text = "PartitionName=main Default=YES MinNodes=0\nPartitionName=two MaxNodes=UNLIMITED MinNodes=2\n"
    facts = SiteFacts(
        partitions=parse_partitions(text, MemoryTerms(), None),
        most_gpus=dict.fromkeys(("main", "two", "unknown"), 4),
    )
    forms = facts.forms_of(JobRequest(user="alice", partition=partition, **asked))
    assert kept_by_form(forms) == ({"gpus": "gpus_of_nodes"} if keeps else {})


@pytest.mark.parametrize(
    ("asked", "beyond"),
    [
        ({"cpus_per_task": 16, "mem_per_node_mib": 63000}, False),
        ({"cpus_per_task": 17}, True),
        ({"cpus_per_task": 1, "mem_per_node_mib": 63001}, True),
        ({"cpus_per_task": 2, "mem_per_cpu_mib": 32000}, True),
        ({"mem_per_cpu_mib": 30000, "num_tasks": 3}, False),
        ({"gpus_per_node": 5}, True),
        ({"gpus_per_task": 5}, True),
        ({"gpus_per_node": 4}, False),
        # On nodes whose number is given, one has its share of the tasks at least.
        ({"cpus_per_task": 1, "num_tasks": 24}, False),
        ({"cpus_per_task": 1, "num_tasks": 24, "nodes": 1}, True),
        # All nodes together.
        ({"cpus_per_task": 1, "num_tasks": 33}, True),
        ({"gpus_per_job": 5}, True),
        # One of its partitions is large enough, or its nodes are not known.
        ({"partition": "small", "cpus_per_task": 9}, True),
        ({"partition": "small,main", "cpus_per_task": 9}, False),
        ({"partition": "small,new", "cpus_per_task": 99}, False),
        ({"partition": "new", "cpus_per_task": 99}, False),
        # Two of its nodes are not shown.
        ({"partition": "cloud", "cpus_per_task": 99}, False),
    ],
)
def test_a_request_above_all_nodes_is_left_so_that_slurm_refuses_it(
    asked: dict[str, Any], beyond: bool
) -> None:
    """Slurm refuses one above each node, and one above all nodes together waits for ever (22.05 and 26.05)."""
    nodes = (
        "NodeName=a-1 CPUEfctv=16 CPUTot=18 Gres=gpu:4 RealMemory=64000 MemSpecLimit=1000 Partitions=main\n"
        "NodeName=a-2 CPUEfctv=16 CPUTot=16 RealMemory=32000 Partitions=main\n"
        "NodeName=b-1 CPUTot=8 Partitions=small\n"
        "NodeName=c-1 CPUTot=8 Partitions=cloud\n"
    )
    partitions = (
        "PartitionName=main Default=YES TotalNodes=2\nPartitionName=small TotalNodes=1\n"
        "PartitionName=cloud TotalNodes=3\nPartitionName=new TotalNodes=0\n"
    )
    facts = SiteFacts(
        capacity=parse_node_terms(nodes).capacity,
        partitions=parse_partitions(partitions, MemoryTerms(), None),
    )
    forms = facts.forms_of(JobRequest(user="alice", **asked))
    assert ("beyond_nodes" in forms) is beyond


@pytest.mark.parametrize(
    ("plugins", "any_of_them"),
    [
        ("lua", False),
        ("all_partitions,lua", False),
        ("lua,require_timelimit", False),
        ("lua,all_partitions", True),
        ("job_submit/lua,job_submit/partition", True),
        ("(null)", False),
    ],
)
def test_a_job_without_partitions_may_get_any_from_a_plugin_after_ours(
    plugins: str, any_of_them: bool
) -> None:
    """slurmctld refused a job that was cut below the minimum of such a partition's QOS."""
    facts = SiteFacts(
        chosen_later=chooses_partitions(f"JobSubmitPlugins        = {plugins}\n"),
        qos_minimums=parse_qos("large|cpu=4\n"),
        partitions=parse_partitions(
            "PartitionName=a Default=YES\nPartitionName=b QoS=large\n", MemoryTerms(), None
        ),
    )
    least = facts.minimum_for(JobRequest(user="alice"))
    assert least == (Minimum(cpus=4) if any_of_them else Minimum())
    assert facts.minimum_for(JobRequest(user="alice", partition="a")) == Minimum()


def test_a_floor_of_the_site_holds_if_the_job_fixes_less() -> None:
    site = Config(policy=Policy(memory_floor_mib=512, min_cpus_per_task=4, min_gpus=2, cpus_step=4)).policy
    fixed = Fixed(memory_mib=300, cpus_per_task=3, gpus=1)
    limits = with_floors(limits_of(site), job_request(submission()), fixed, Minimum(cpus=1, gpus=1), 2)
    assert limits == limits_of(site)


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({"nodes_min": 2}, 2),
        # With one GPU left, an srun in such a job on two nodes failed (22.05).
        ({"num_tasks": 3}, 3),
        ({"num_tasks": 3, "ntasks_per_node": 2, "nodes_min": 2}, 3),
        ({"num_tasks": 3, "nodes_min": 1, "nodes_max": 2}, 2),
        ({"num_tasks": 3, "nodes_min": 1, "nodes_max": 1}, 1),
        ({"num_tasks": 2, "nodes_min": 1, "nodes_max": 4}, 2),
        ({"nodes_min": 2, "nodes_max": 4}, 4),
        ({"num_tasks": 1}, 1),
        ({}, 1),
    ],
)
def test_the_gpus_of_a_job_suffice_for_all_the_nodes_that_it_may_be_on(
    changes: dict[str, Any], least: int
) -> None:
    for gpus, wanted in (({"gpus_per_job": 4}, least), ({"gpus_per_node": 4}, 1)):
        asked = submission(**changes, **gpus)
        plain = limits_of(Config().policy)
        request = job_request(asked)
        limits = with_floors(plain, request, fixed_by(asked, request), Minimum(), 1)
        assert limits.min_gpus == wanted


@pytest.mark.parametrize(
    ("partition", "asked", "kept"),
    [
        ("few", {"cpus_per_task": 9}, True),
        ("few", {"cpus_per_task": 8}, False),
        ("few", {"cpus_per_task": 8, "num_tasks": 3}, False),
        ("both", {"cpus_per_task": 5}, True),
        ("both", {"cpus_per_task": 4}, False),
        # No node of it is shown.
        ("cloud", {"cpus_per_task": 9}, False),
    ],
)
def test_a_request_for_more_cpus_of_all_sockets_than_its_partition_allows_is_left_alone(
    partition: str, asked: dict[str, Any], kept: bool
) -> None:
    """Cut, such a job was let in, though Slurm refuses it as it was asked (EnforcePartLimits=ALL, 24.11)."""
    partitions = (
        "PartitionName=few MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=4\n"
        "PartitionName=both MaxCPUsPerNode=4 MaxCPUsPerSocket=4\n"
        "PartitionName=cloud MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=4\n"
    )
    nodes = (
        "NodeName=n1 ThreadsPerCore=1 Sockets=1 Boards=1 CPUTot=16 Partitions=few,both\n"
        "NodeName=n2 ThreadsPerCore=1 Sockets=2 Boards=1 CPUTot=32 Partitions=few,both\n"
    )
    facts = SiteFacts(
        partitions=parse_partitions(partitions, MemoryTerms(), None),
        most_sockets=parse_node_terms(nodes).most_sockets,
    )
    forms = facts.forms_of(JobRequest(user="alice", partition=partition, **asked))
    assert kept_by_form(forms) == (
        {"memory": "max_cpus_per_node", "cores": "max_cpus_per_node"} if kept else {}
    )
