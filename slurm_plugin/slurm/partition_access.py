"""What has to be known beside slurmctld's words of who may use which partition: accounts above others, users' groups.

It is asked for only where a job that waits lists several partitions, and one of them goes by it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from slurm_plugin.slurm.groups import groups_of
from slurm_plugin.slurm.limits import config_words
from slurm_plugin.slurm.release import parse_release
from slurm_plugin.slurm.snapshot import PartitionState, QueuedJob


def chosen_among(job: QueuedJob, names: Collection[str]) -> bool:
    """Whether a job waits for several partitions, one of them of these names."""
    return job.waits and len(job.partitions) > 1 and any(name in names for name in job.partitions)


def accounts_are_inherited(config: str) -> bool:
    """Whether a partition's AllowAccounts and DenyAccounts hold for accounts below, too: from 23.02 on."""
    return parse_release(config_words(config).get("SLURM_VERSION", "0.0")) >= (23, 2)


def user_groups(jobs: Sequence[QueuedJob], partitions: Sequence[PartitionState]) -> dict[str, frozenset[str]]:
    """Return the groups of users where they decide in which partition a job may start.

    root, and who is not known on this host, are left out: Slurm asks no groups of root.
    """
    by_group = {one.name for one in partitions if one.groups}
    asking = {job.user: job.uid for job in jobs if chosen_among(job, by_group)}
    told = {user: groups_of(user) for user, uid in asking.items() if uid}
    return {user: groups for user, groups in told.items() if groups is not None}
