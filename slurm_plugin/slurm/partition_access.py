"""What else decides who may use a partition, besides slurmctld's own words: parent accounts and users' groups.

This is asked for only if a waiting job lists several partitions, and one of them depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from slurm_plugin.slurm.groups import groups_of
from slurm_plugin.slurm.limits import config_words
from slurm_plugin.slurm.release import parse_release
from slurm_plugin.slurm.snapshot import PartitionState, QueuedJob


def chosen_among(job: QueuedJob, names: Collection[str]) -> bool:
    """Whether a job waits for several partitions, at least one of them among these names."""
    return job.waits and len(job.partitions) > 1 and any(name in names for name in job.partitions)


def accounts_are_inherited(config: str) -> bool:
    """Whether a partition's AllowAccounts and DenyAccounts apply to accounts below those too: from 23.02."""
    return parse_release(config_words(config).get("SLURM_VERSION", "0.0")) >= (23, 2)


def user_groups(jobs: Sequence[QueuedJob], partitions: Sequence[PartitionState]) -> dict[str, frozenset[str]]:
    """Return the groups of users, if groups decide in which partition one of their jobs may start.

    root, and users not known on this host, are left out: Slurm does not check the groups of root.
    """
    by_group = {one.name for one in partitions if one.groups}
    asking = {job.user: job.uid for job in jobs if chosen_among(job, by_group)}
    told = {user: groups_of(user) for user, uid in asking.items() if uid}
    return {user: groups for user, groups in told.items() if groups is not None}
