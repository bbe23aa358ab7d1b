"""Which pending jobs keep their place, and which cannot start now at all. Pure.

A job keeps its place if Slurm would not look at its priority, if its user or an admin has said when or where it is to
run, or if the model of the cluster does not know what it waits for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from slurm_plugin.advisor import features, licences
from slurm_plugin.slurm.reasons import reason_of
from slurm_plugin.slurm.snapshot import QueuedJob

_TASKS_A_NODE = re.compile(r"NtasksPerN:B:S:C=(\d+):0:\*:[*1]")
# A small group ahead of all others by more than factors may bridge is the top of the queue; at most this share.
TOP_SHARE = 0.1


class Place(NamedTuple):
    """Why a job keeps its place ('' if it need not), and whether it cannot start now at all."""

    kept: str = ""
    out: bool = False


def place_of(job: QueuedJob, now_s: float) -> Place:
    """Return whether a pending job keeps its place by itself, and the first reason why."""
    if job.held:
        return Place("it is held", out=True)
    if job.dependency:
        return Place("it waits for another job", out=True)
    if job.eligible_s > now_s:
        return Place("it begins later", out=True)
    if job.reservation:
        return Place("it has a reservation", out=True)
    reason = reason_of(job.reason)
    if reason.holds(job.partitions):
        return Place(reason.kept, out=True)
    if job.het_job_id:
        return Place("it is a part of a het job")
    if job.fixed:
        return Place("its priority was set directly")
    beyond = unknown_of(job)
    return Place(f"it asks for {', '.join(beyond)}") if beyond else Place()


def unknown_of(job: QueuedJob) -> list[str]:
    """Return what a job asks for that no simulation knows, in Slurm's words: it may start later than predicted."""
    known = (features.is_understood, licences.is_understood, lambda text: _is_even(text, job))
    return [text for text in job.other if not any(is_known(text) for is_known in known)]


def _is_even(text: str, job: QueuedJob) -> bool:
    """Whether --ntasks-per-node only says that all nodes get equally many tasks, which the model assumes."""
    found = _TASKS_A_NODE.fullmatch(text)
    return found is not None and int(found[1]) * job.num_nodes == job.num_tasks


def top_of(jobs: Sequence[QueuedJob], own: Sequence[int], tiers: Sequence[int], reach: int) -> frozenset[int]:
    """Return the ids of jobs at the top of the queue: those of a higher tier than most, or far ahead of the rest.

    `own` are Slurm's priorities without factors, `tiers` those of the jobs' partitions, `reach` how many points
    factors may bridge.
    """
    if not jobs:
        return frozenset()
    usual = max(sorted(set(tiers)), key=tiers.count)
    top = {job.job_id for job, tier in zip(jobs, tiers, strict=True) if tier > usual}
    rest = sorted((-value, job.job_id) for job, value in zip(jobs, own, strict=True) if job.job_id not in top)
    for place in range(1, int(len(rest) * TOP_SHARE) + 1):
        if rest[place][0] - rest[place - 1][0] > reach:
            return frozenset(top | {job_id for _, job_id in rest[:place]})
    return frozenset(top)
