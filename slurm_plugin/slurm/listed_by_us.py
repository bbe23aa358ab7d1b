"""Which jobs list a partition that their users did not: it was added by us, and is to be taken out again. Pure.

It is noted before it is written to Slurm, and for as long as slurmctld knows of the job, or of any task of its array:
a task that is split off, or was preempted and is requeued, lists it too, and so does a job that ended and is requeued.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from slurm_plugin.slurm.lease import Clock, Lease, is_over
from slurm_plugin.slurm.queue import Relist
from slurm_plugin.slurm.snapshot import QueuedJob


class Listed(msgspec.Struct, frozen=True, gc=False):
    """A job, or the array of all its tasks, the partition that was added, and the submit time (unix seconds).

    `gone` is when it was first seen to have ended.
    """

    job_id: int
    partition: str
    submit_s: float
    gone: Clock | None = None


def number_of(job: QueuedJob) -> int:
    """Return the number under which a job is noted: its array's, if it belongs to one."""
    return job.array_job_id or job.job_id


def by_us(listed: Iterable[Listed], jobs: Iterable[QueuedJob]) -> dict[int, str]:
    """Return the partition that was added to each record that waits and still lists it next to its own.

    A number may belong to another job by now: a job that was not requeued has the submit time that was noted. A job
    that lists nothing else was given that by its user since: without it, it would list no partition at all.
    """
    noted = {one.job_id: one for one in listed}
    found = ((job, noted.get(number_of(job))) for job in jobs if job.waits)
    return {
        job.job_id: one.partition
        for job, one in found
        if one is not None
        and one.partition in job.partitions
        and job.partitions != (one.partition,)
        and (job.restarts or job.submit_s == one.submit_s)
    }


def added(listed: Iterable[Listed], job: QueuedJob, partition: str) -> tuple[Listed, ...]:
    """Return what is noted once a partition is about to be added to a job."""
    rest = (one for one in listed if one.job_id != number_of(job))
    return (*rest, Listed(number_of(job), partition, job.submit_s))


def without(listed: Iterable[Listed], job: QueuedJob) -> tuple[Listed, ...]:
    """Return what is noted once a job no longer lists what was added; tasks of its array may, and stay noted."""
    return tuple(one for one in listed if job.array_job_id or one.job_id != job.job_id)


def still_there(
    listed: Iterable[Listed], jobs: Collection[QueuedJob], now: Clock, forgets_s: float
) -> tuple[Listed, ...]:
    """Return what is noted of jobs that wait or run, or that ended less than `forgets_s` ago."""
    there = {number_of(job) for job in jobs}
    seen = (
        msgspec.structs.replace(one, gone=None if one.job_id in there else one.gone or now) for one in listed
    )
    return tuple(one for one in seen if one.gone is None or not is_over(Lease(one.gone, forgets_s), now))


def taken_out(jobs: Iterable[QueuedJob], ours: Mapping[int, str], reason: str) -> list[Relist]:
    """Return the changes that remove from jobs what was added to them."""
    return [
        Relist(
            job_id=job.job_id,
            uid=job.uid,
            before=job.partitions,
            after=tuple(name for name in job.partitions if name != ours[job.job_id]),
            reason=reason,
        )
        for job in jobs
        if job.job_id in ours
    ]
