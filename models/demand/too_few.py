"""How many CPUs, or GPUs, were too few for some job of a family, by how it ended. Pure.

What a job used does not tell it: who cannot go on with fewer uses less than he was left. It is told by jobs that we cut
and that came to no end of their own, where the same jobs, or others of the family, came to theirs with all that they
asked for (docs/decisions/0068, 0075).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from models.past.jobs import PastJob
from models.past.kills import KILLED_BUMP, SPARED_A_KILL

# A core is busy if it is for this share of the time, in the middle job of a family.
BUSY_SHARE = 0.9
# So many jobs with all their CPUs must have come to their end in time, for one that did not to tell anything.
LEAST_WHOLE = 3


def too_few(jobs: Sequence[PastJob]) -> float:
    """Return the CPUs a task that were too few for some job, and some more; 0 where none were."""
    return max(_too_few_in_time(jobs), enough_to_go_on(jobs))


def _too_few_in_time(jobs: Iterable[PastJob]) -> float:
    """Return the fewer CPUs that some job kept all busy and ran out of time with, and some more (KILLED_BUMP).

    Nobody knows how many it needed. Where jobs with all their CPUs run out of time too, their family runs until its
    limit anyway.
    """
    late = [job for job in jobs if job.wall_at_least]
    if not all(map(was_filled, late)):
        return 0.0
    return max((KILLED_BUMP * (job.given_cpus or 0) / job.num_tasks for job in late), default=0.0)


def enough_to_go_on(jobs: Sequence[PastJob]) -> float:
    """Return the CPUs a task that jobs asked for which fewer stopped: they failed, or waited until their time was over.

    Either one of them ran again with all, and came to its end in time with no more memory than before; or it was idle
    until its limit, and jobs with all their CPUs come to their end in time. Not where ten times as many ended well with
    no more than those had (SPARED_A_KILL).
    """
    fewer = [job for job in jobs if _had_fewer_cpus(job)]
    stopped = [job for job in fewer if _was_stopped(job)]
    if not stopped:
        return 0.0
    whole = [job for job in jobs if job.complete and job.given_cpus and not _had_fewer_cpus(job)]
    in_time = [job for job in whole if not job.wall_at_least]
    again = _by_number(in_time)
    all_in_time = len(whole) == len(in_time) >= LEAST_WHOLE
    wanting = [
        job for job in stopped
        if (job.wall_at_least and all_in_time)
        or (job.job_id in again and not (_may_lack_gpus(job) or _lacked_memory(job, again[job.job_id])))
    ]  # fmt: skip
    if _are_spared(fewer, wanting, _cpus_a_task):
        return 0.0
    return max(((job.asked_cpus or 0) / job.num_tasks for job in wanting), default=0.0)


def gpus_to_go_on(jobs: Sequence[PastJob]) -> int:
    """Return the GPUs that jobs asked for which fewer stopped: they failed, or waited until their time was over.

    One of them ran again with all, and came to its end in time with no more memory than before. Where it had fewer CPUs
    as well, GPUs count first. Not where ten times as many ended well with no more (SPARED_A_KILL).
    """
    fewer = [job for job in jobs if _had_fewer_gpus(job)]
    again = _by_number(
        job for job in jobs if _ended_well(job) and job.given_gpus and not _had_fewer_gpus(job)
    )
    wanting = [
        job for job in fewer
        if (job.wall_at_least or not (job.complete or job.mem_at_least))
        and job.job_id in again and not _lacked_memory(job, again[job.job_id])
    ]  # fmt: skip
    if _are_spared(fewer, wanting, lambda job: job.given_gpus or 0):
        return 0
    return max((job.asked_gpus or 0 for job in wanting), default=0)


def was_filled(job: PastJob) -> bool:
    """Whether a job that was cut kept nearly all CPUs that it was left busy."""
    given = job.given_cpus or 0
    return _had_fewer_cpus(job) and (job.cores_per_task or 0.0) * job.num_tasks >= BUSY_SHARE * given


def _are_spared(
    fewer: Iterable[PastJob], wanting: Sequence[PastJob], given: Callable[[PastJob], float]
) -> bool:
    """Whether ten times as many as those that wanted more ended well with no more than these were given."""
    most = max(map(given, wanting), default=0.0)
    spared = sum(_ended_well(job) and given(job) <= most for job in fewer)
    return spared >= SPARED_A_KILL * len(wanting)


def _had_fewer_cpus(job: PastJob) -> bool:
    return job.given_cpus is not None and job.asked_cpus is not None and job.given_cpus < job.asked_cpus


def _had_fewer_gpus(job: PastJob) -> bool:
    return job.given_gpus is not None and job.given_gpus < (job.asked_gpus or 0)


def _may_lack_gpus(job: PastJob) -> bool:
    """Whether it had fewer GPUs, or as many as nobody knows: not every site accounts for them."""
    return (job.given_gpus or 0) < (job.asked_gpus or 0)


def _cpus_a_task(job: PastJob) -> float:
    return (job.given_cpus or 0) / job.num_tasks


def _by_number(jobs: Iterable[PastJob]) -> dict[int, PastJob]:
    return {job.job_id: job for job in jobs if job.job_id}


def _ended_well(job: PastJob) -> bool:
    return job.complete and not job.wall_at_least


def _was_stopped(job: PastJob) -> bool:
    """Whether a job ended by no end of its own, for want of neither memory nor of more CPUs to keep busy."""
    if job.wall_at_least:
        return not was_filled(job)
    return not job.complete and not job.mem_at_least


def _lacked_memory(job: PastJob, again: PastJob) -> bool:
    """Whether it may have wanted memory that was cut as well, by what it used when it ran again."""
    return (again.mem_mib or 0.0) > (job.given_mem_mib or math.inf)
