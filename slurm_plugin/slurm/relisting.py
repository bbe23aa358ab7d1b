"""How a pending job comes to list other partitions.

This is done in the job's own user's name, so that slurmctld checks whether the partitions accept the user, account,
QOS and time limit, and marks nothing as set by an administrator. A preempted job lists first the partition in which
it ran.

A partition that takes no new jobs at the moment (State=DRAIN or INACTIVE) keeps those that wait in it. But slurmctld
drops it from a list that is written then, without a complaint, and does not take it back before it is up again (seen on
22.05 and 26.05): so no list that names one is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from slurm_plugin.slurm.queue import Relist, Written
from slurm_plugin.slurm.resizing import Record, Update, ended, said
from slurm_plugin.slurm.snapshot import QueuedJob
from slurm_plugin.slurm.targets import target_of


def relist(change: Relist, record: Record, update: Update, closed: Callable[[], Collection[str]]) -> Written:
    """Carry out a change; raises SlurmError if slurmctld does not answer.

    `closed` returns the partitions that take no new jobs.
    """
    job = record(change.job_id)
    problem = _obstacle(change, job) or _would_be_dropped(change, closed())
    if job is None or problem:
        return Written(job_id=change.job_id, problem=problem)
    words = [f"--uid={job.uid}", "update", f"JobId={target_of(job)}", f"Partition={','.join(change.after)}"]
    complaint = said(update(words))
    after = None if complaint else record(change.job_id)
    if after is not None and after.waits and set(after.partitions) != set(change.after):
        complaint = "not kept"
    return Written(job_id=change.job_id, problem=complaint)


def _would_be_dropped(change: Relist, closed: Collection[str]) -> str:
    """Return which partitions slurmctld would drop from the list; '' if none."""
    names = [name for name in change.after if name in closed]
    return f"{','.join(names)} takes no new jobs now (DRAIN or INACTIVE)" if names else ""


def _obstacle(change: Relist, job: QueuedJob | None) -> str:
    """Return why a change cannot even be tried; '' if it can."""
    if ended(job) or job is None:
        return ended(job)
    if job.uid != change.uid:
        return f"belongs to user {job.uid}, not {change.uid}"
    if set(job.partitions) != set(change.before):
        return f"lists {','.join(job.partitions)} meanwhile"
    return ""
