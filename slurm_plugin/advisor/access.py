"""In which of its partitions a job may start at all, by their Allow…, Deny… and MaxNodes. Pure.

Only jobs that list several are asked of: of one alone slurmctld tells by the job's reason. What is not known of a user
or an account forbids nothing. That a partition needs reservations, or is for some login nodes, is not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from slurm_plugin.slurm.snapshot import PartitionState, QueuedJob, Snapshot


def may_use(job: QueuedJob, partition: PartitionState, snapshot: Snapshot) -> bool:
    """Whether a partition takes this job's account, QOS, user and number of nodes."""
    accounts = frozenset(lineage(job.account, snapshot.account_parents))
    groups = snapshot.user_groups.get(job.user)
    return (
        _is_let(accounts, partition.accounts, partition.denied_accounts)
        and _is_let({job.qos.lower()}, partition.all_qos, partition.denied_qos)
        and (groups is None or not partition.groups or not groups.isdisjoint(partition.groups))
        and job.num_nodes <= partition.most_nodes
    )


def _is_let(names: Collection[str], allowed: Collection[str], denied: Collection[str]) -> bool:
    """Whether one of these names is allowed, or none denied; where any are allowed, Slurm looks at none denied."""
    return any(name in allowed for name in names) if allowed else not any(name in denied for name in names)


def lineage(account: str, parents: Mapping[str, str]) -> Iterator[str]:
    """Yield an account and those above it, as far as they are known."""
    seen = set[str]()
    while account and account not in seen:
        seen.add(account)
        yield account
        account = parents.get(account, "")
