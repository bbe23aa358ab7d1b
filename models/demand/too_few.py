"""How many CPUs, or GPUs, were too few for some job of a family, by how it ended. Pure.

What a job used does not show this: a job that cannot go on with fewer uses less than it was left. The evidence is
jobs that we cut and that did not end well, if the same jobs, or others of the family, did so with all that they asked
for (docs/decisions/0068, 0075, 0078).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from models.past.failing import failing
from models.past.jobs import PastJob, cpus_a_task, ended_well, had_fewer_cpus, had_fewer_gpus
from models.past.kills import KILLED_BUMP, SPARED_A_KILL

# A core counts as busy from this share of the time on: of a family, in its median job.
BUSY_SHARE = 0.9
# This many jobs with all their CPUs must have ended in time before one that did not says anything.
LEAST_WHOLE = 3


def too_few(jobs: Sequence[PastJob]) -> float:
    """Return a bound above the CPUs per task that were too few for some job; 0 if none were."""
    return max(_too_few_in_time(jobs), enough_to_go_on(jobs))


def _too_few_in_time(jobs: Iterable[PastJob]) -> float:
    """Return KILLED_BUMP times the most CPUs per task that a cut job kept all busy until it ran out of time; else 0.

    Nobody knows how many it needed. If jobs with all their CPUs run out of time too, their family runs until its
    limit anyway, and the answer is 0.
    """
    late = [job for job in jobs if job.wall_at_least]
    if not all(map(was_filled, late)):
        return 0.0
    return max((KILLED_BUMP * (job.given_cpus or 0) / job.num_tasks for job in late), default=0.0)


def enough_to_go_on(jobs: Sequence[PastJob]) -> float:
    """Return the CPUs per task that jobs had asked for and without which they failed, or waited until their limit.

    They failed one after the other (failing.py), or were stopped and one of two things is known: such a job ran again
    with all of them and ended in time, with no more memory than it had before; or it was idle until its limit, while
    jobs with all their CPUs end in time. It is 0 if there is none, or if ten times as many jobs ended well with no
    more CPUs than those had (SPARED_A_KILL).
    """
    wanting = (*_stopped_for_cpus(jobs), *filter(had_fewer_cpus, failing(jobs)))
    return max(((job.asked_cpus or 0) / job.num_tasks for job in wanting), default=0.0)


def _stopped_for_cpus(jobs: Sequence[PastJob]) -> list[PastJob]:
    fewer = [job for job in jobs if had_fewer_cpus(job)]
    stopped = [job for job in fewer if _was_stopped(job)]
    if not stopped:
        return []
    whole = [job for job in jobs if job.complete and job.given_cpus and not had_fewer_cpus(job)]
    in_time = [job for job in whole if not job.wall_at_least]
    again = _by_number(in_time)
    all_in_time = len(whole) == len(in_time) >= LEAST_WHOLE
    wanting = [
        job for job in stopped
        if (job.wall_at_least and all_in_time)
        or (job.job_id in again and not (_may_lack_gpus(job) or _lacked_memory(job, again[job.job_id])))
    ]  # fmt: skip
    return [] if _are_spared(fewer, wanting, cpus_a_task) else wanting


def gpus_to_go_on(jobs: Sequence[PastJob]) -> int:
    """Return the GPUs that jobs had asked for and without which they failed, or waited until their limit.

    They failed one after the other (failing.py); or such a job ran again with all of them and ended in time, with no
    more memory than it had before. If it had fewer CPUs too, the GPUs are taken to be the reason. It is 0 if there is
    none, or if ten times as many jobs ended well with no more GPUs than those had (SPARED_A_KILL).
    """
    fewer = [job for job in jobs if had_fewer_gpus(job)]
    again = _by_number(job for job in jobs if ended_well(job) and job.given_gpus and not had_fewer_gpus(job))
    wanting = [
        job for job in fewer
        if (job.wall_at_least or not (job.complete or job.mem_at_least))
        and job.job_id in again and not _lacked_memory(job, again[job.job_id])
    ]  # fmt: skip
    if _are_spared(fewer, wanting, lambda job: job.given_gpus or 0):
        wanting = []
    wanting += filter(had_fewer_gpus, failing(jobs))
    return max((job.asked_gpus or 0 for job in wanting), default=0)


def was_filled(job: PastJob) -> bool:
    """Return whether a job that was cut kept busy nearly all the CPUs that it was left."""
    given = job.given_cpus or 0
    return had_fewer_cpus(job) and (job.cores_per_task or 0.0) * job.num_tasks >= BUSY_SHARE * given


def _are_spared(
    fewer: Iterable[PastJob], wanting: Sequence[PastJob], given: Callable[[PastJob], float]
) -> bool:
    """Return whether SPARED_A_KILL times as many jobs as in `wanting` ended well with no more than those had."""
    most = max(map(given, wanting), default=0.0)
    spared = sum(ended_well(job) and given(job) <= most for job in fewer)
    return spared >= SPARED_A_KILL * len(wanting)


def _may_lack_gpus(job: PastJob) -> bool:
    """Return whether a job had fewer GPUs, or an unknown number: not every site accounts for them."""
    return (job.given_gpus or 0) < (job.asked_gpus or 0)


def _by_number(jobs: Iterable[PastJob]) -> dict[int, PastJob]:
    return {job.job_id: job for job in jobs if job.job_id}


def _was_stopped(job: PastJob) -> bool:
    """Return whether a job did not end by itself, though it lacked neither memory nor more CPUs to keep busy."""
    if job.wall_at_least:
        return not was_filled(job)
    return not job.complete and not job.mem_at_least


def _lacked_memory(job: PastJob, again: PastJob) -> bool:
    """Return whether a job may have lacked memory that was cut too, by what it used when it ran again."""
    return (again.mem_mib or 0.0) > (job.given_mem_mib or math.inf)
