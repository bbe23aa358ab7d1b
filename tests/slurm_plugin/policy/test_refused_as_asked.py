"""Requests that no partition takes as asked are left alone: cut, they would be let in, and wait for ever later."""

import msgspec
import pytest

from slurm_plugin.policy.forms import kept_by_form
from slurm_plugin.policy.maximums import Maximum, Maximums, QosMaximums
from slurm_plugin.slurm.limits import parse_node_terms
from tests.builders import request
from tests.slurm_plugin.policy.test_memory_limits import PARTITIONS, facts_of


@pytest.mark.parametrize(
    ("partition", "asked", "kept"),
    [
        ("node", {"mem_per_node_mib": 64001}, True),
        ("node", {"mem_per_node_mib": 64000}, False),
        ("node", {"mem_per_cpu_mib": 8001, "cpus_per_task": 8}, True),
        ("node", {"mem_per_cpu_mib": 8000, "cpus_per_task": 8}, False),
        # Its tasks may run on as many nodes, or at least two of them run on one.
        ("node", {"mem_per_cpu_mib": 8000, "cpus_per_task": 8, "num_tasks": 3}, False),
        ("node", {"mem_per_cpu_mib": 8000, "cpus_per_task": 8, "num_tasks": 3, "nodes": 2}, True),
        ("node", {}, False),
        # It may run in the other partition.
        ("node,free", {"mem_per_node_mib": 64001}, False),
        ("free", {"mem_per_node_mib": 64001}, False),
        ("node,large", {"mem_per_node_mib": 64001}, False),
        ("node,large", {"mem_per_node_mib": 90001}, True),
        # A partition's own maximum, of either kind, replaces that of the cluster.
        ("other", {"mem_per_node_mib": 80001}, True),
        ("per_cpu", {"mem_per_node_mib": 80001, "cpus_per_task": 32}, False),
    ],
)
def test_a_request_above_the_maximum_of_a_node_is_left_as_it_is(
    partition: str, asked: dict[str, int], kept: bool
) -> None:
    more = "".join(
        f"PartitionName={name} Default=NO QoS=N/A DefMemPerNode=UNLIMITED {words}\n"
        for name, words in (("free", ""), ("large", "MaxMemPerNode=90000"), ("per_cpu", "MaxMemPerCPU=4000"))
    )
    cluster = (
        "MaxMemPerNode = 80000\n" if partition in ("other", "per_cpu") else "MaxMemPerNode = UNLIMITED\n"
    )
    forms = facts_of(cluster, PARTITIONS + more).forms_of(request(partition=partition, **asked))
    assert kept_by_form(forms) == (
        {"memory": "max_mem_per_node", "cores": "max_mem_per_node"} if kept else {}
    )


@pytest.mark.parametrize(
    ("partition", "asked", "kept"),
    [
        ("few", {"cpus_per_task": 5}, True),
        ("few", {"cpus_per_task": 4, "num_tasks": 3}, False),
        ("few", {"cpus_per_task": 4, "num_tasks": 3, "nodes": 2}, True),
        ("few", {"cpus_per_task": 4}, False),
        ("few,main", {"cpus_per_task": 5}, False),
        ("few,some", {"cpus_per_task": 8}, False),
        ("few,some", {"cpus_per_task": 9}, True),
    ],
)
def test_a_request_for_more_cpus_of_a_node_than_all_its_partitions_allow_is_left_alone(
    partition: str, asked: dict[str, int], kept: bool
) -> None:
    more = "PartitionName=few MaxCPUsPerNode=4\nPartitionName=some MaxCPUsPerNode=8\n"
    facts = facts_of(partitions=PARTITIONS.replace("AllowQos=ALL", "MaxCPUsPerNode=UNLIMITED") + more)
    forms = facts.forms_of(request(partition=partition, **asked))
    assert kept_by_form(forms) == (
        {"memory": "max_cpus_per_node", "cores": "max_cpus_per_node"} if kept else {}
    )


@pytest.mark.parametrize(
    ("partition", "asked", "kept"),
    [
        ("small,few", {"cpus_per_task": 5, "mem_per_node_mib": 4001}, True),
        ("few,small", {"cpus_per_task": 5, "mem_per_node_mib": 4001}, True),
        ("small,few", {"cpus_per_task": 5, "mem_per_node_mib": 4000}, False),
        ("small,few", {"cpus_per_task": 4, "mem_per_node_mib": 4001}, False),
        ("small,few,main", {"cpus_per_task": 5, "mem_per_node_mib": 4001}, False),
        ("small,few,old", {"cpus_per_task": 5, "mem_per_node_mib": 4001}, True),
        ("small,few,old", {"cpus_per_task": 2, "mem_per_node_mib": 4001}, False),
        ("deny,few", {"cpus_per_task": 5, "mem_per_node_mib": 4001}, True),
        ("deny,few", {"cpus_per_task": 5, "mem_per_node_mib": 3000}, False),
    ],
)
def test_a_request_that_each_of_its_partitions_refuses_for_its_own_reason_is_left_alone(
    partition: str, asked: dict[str, int], kept: bool
) -> None:
    """Cut, such a job ran, was killed for memory, and waited for ever with its own request (22.05)."""
    more = (
        "PartitionName=small MaxMemPerNode=4000\nPartitionName=few MaxCPUsPerNode=4\n"
        "PartitionName=old TotalNodes=1\nPartitionName=deny QoS=deny\n"
    )
    facts = msgspec.structs.replace(
        facts_of(config="", partitions="PartitionName=main Default=YES\n" + more),
        capacity=parse_node_terms("NodeName=o-1 CPUTot=2 RealMemory=64000 Partitions=old\n").capacity,
        qos_maximums={"deny": QosMaximums(most=Maximums(of_job=(Maximum(mem_mib=3000),)), refuses=True)},
    )
    found = kept_by_form(facts.forms_of(request(partition=partition, **asked)))
    assert {"memory", "cores"}.issubset(found) is kept
    assert bool(found) is kept
