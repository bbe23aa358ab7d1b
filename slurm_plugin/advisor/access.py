"""In which of its partitions a job may start at all: by their Allow…, Deny…, MaxNodes, and Max…PerNode. Pure.

This matters only for jobs that list several partitions: for a single one, slurmctld gives the job's reason. What is
not known of a user or an account forbids nothing. Whether a partition needs reservations, or is only for some login
nodes, is not checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from slurm_plugin.policy.maximums import is_beyond
from slurm_plugin.slurm.snapshot import PartitionState, QueuedJob, Snapshot


def may_use(job: QueuedJob, partition: PartitionState, snapshot: Snapshot) -> bool:
    """Whether a partition accepts this job's account, QOS, user and number of nodes."""
    accounts = frozenset(lineage(job.account, snapshot.account_parents))
    groups = snapshot.user_groups.get(job.user)
    return (
        _is_let(accounts, partition.accounts, partition.denied_accounts)
        and _is_let({job.qos.lower()}, partition.all_qos, partition.denied_qos)
        and (groups is None or not partition.groups or not groups.isdisjoint(partition.groups))
        and job.num_nodes <= partition.most_nodes
    )


def takes(job: QueuedJob, partition: PartitionState) -> bool:
    """Whether a partition lets a job ask for so much of a node, whatever its QOS (MaxMemPerNode, MaxCPUsPerNode)."""
    least = job.min_cpus_per_node
    mem_mib = max(job.mem_per_node_mib or 0, (job.mem_per_cpu_mib or 0) * least)
    most = partition.most_cpus_per_node
    return not is_beyond(mem_mib, partition.memory.max_per_node_mib) and (most is None or least <= most)


def _is_let(names: Collection[str], allowed: Collection[str], denied: Collection[str]) -> bool:
    """Whether a name is allowed or, if `allowed` is empty, none is denied: otherwise Slurm ignores `denied`."""
    return any(name in allowed for name in names) if allowed else not any(name in denied for name in names)


def lineage(account: str, parents: Mapping[str, str]) -> Iterator[str]:
    """Yield an account and those above it, as far as they are known."""
    seen = set[str]()
    while account and account not in seen:
        seen.add(account)
        yield account
        account = parents.get(account, "")
