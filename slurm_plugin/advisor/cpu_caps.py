"""Partitions whose jobs together may not use all CPUs of a node: MaxCPUsPerNode, MaxCPUsPerSocket. Pure.

Of a limit per socket only the sum is considered: nothing shows on which socket a job runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_plugin.slurm.snapshot import NodeState, PartitionState, Snapshot


def capped_of(snapshot: Snapshot) -> tuple[PartitionState, ...]:
    """Return the partitions whose jobs may not use all CPUs of at least one of their nodes."""
    cap = {
        one.name: one
        for one in snapshot.partitions
        if one.most_cpus_per_node is not None or one.most_cpus_per_socket is not None
    }
    found = {
        name
        for node in (snapshot.nodes if cap else ())
        for name in node.partitions
        if name in cap and cap_of(node, cap[name]) < node.cpus
    }
    return tuple(one for name, one in cap.items() if name in found)


def cap_of(node: NodeState, partition: PartitionState) -> int:
    """Return how many CPUs of a node the jobs of a partition may use together."""
    most = node.cpus
    if partition.most_cpus_per_node is not None:
        most = min(most, partition.most_cpus_per_node)
    if partition.most_cpus_per_socket is not None:
        most = min(most, partition.most_cpus_per_socket * -(-node.cpus // node.cpus_per_socket))
    return most


def under_caps(partitions: Sequence[str], capped: Sequence[PartitionState]) -> list[bool]:
    """Return which caps apply to a job: that of its only partition. If there are several, it is not known which."""
    return [[one.name] == [*partitions] for one in capped]
