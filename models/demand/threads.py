"""Cores come whole: when a family is known to keep one busy, and when a bound is hardly more than so many. Pure.

What is known of a job is the mean of its busy cores. That of a program of one thread lies just below 1, job after job,
however many CPUs it had, since a thread cannot use more than one. No tail in logarithms (tail.py) says so. Means of
several threads lie anywhere between whole numbers, and one just below a whole number says nothing of the next job
(docs/decisions/0029 has the counts): so only one thread is recognised.

A mean hides a short peak: eight threads in a tenth of the time and one hardly busy in the rest look like one thread.
Against that stand three things. The median of the family must lie just below 1 too, not its highest alone. Some jobs
must have had more CPUs than the number to which the bound is lowered: what we cut to it can show no more, so that a
family of which all known jobs were cut is given one more again, and tells anew. And who is cut by mistake runs longer,
but does not fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from models.past.evidence import SURPRISE_LOG, PastUse, middle
from models.past.jobs import PastJob
from models.past.kills import KILLED_BUMP, SPARED_A_KILL

# A core is busy if it is for this share of the time, in the middle job of a family.
BUSY_SHARE = 0.9
# So many jobs must have had more CPUs a task.
LEAST_WITH_MORE = 3


def runs_one_thread(past: PastUse, jobs: Iterable[PastJob]) -> bool:
    """Whether a family's jobs keep one core a task busy and no more; `past` is their use of cores."""
    if past.highest_log > 0 or middle(sorted(past.needed)) < BUSY_SHARE:
        return False
    return had_more(jobs, 1)


def without_excess(upper: float, past: PastUse, jobs: Iterable[PastJob]) -> float:
    """Return a bound of cores without what it exceeds a whole number by, where that is no surprise.

    The next whole core would be granted for the sake of two per cent. It is not below what was used once.
    """
    whole = math.floor(upper)
    if whole < 1 or past.highest_log > math.log(whole) or math.log(upper / whole) > SURPRISE_LOG:
        return upper
    return float(whole) if had_more(jobs, whole) else upper


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
    fewer = [job for job in jobs if _had_fewer(job)]
    stopped = [job for job in fewer if _was_stopped(job)]
    if not stopped:
        return 0.0
    whole = [job for job in jobs if job.complete and job.given_cpus and not _had_fewer(job)]
    in_time = [job for job in whole if not job.wall_at_least]
    again = {job.job_id: job for job in in_time if job.job_id}
    all_in_time = len(whole) == len(in_time) >= LEAST_WITH_MORE
    wanting = [
        job for job in stopped
        if (job.wall_at_least and all_in_time) or (job.job_id in again and not _lacked_other(job, again[job.job_id]))
    ]  # fmt: skip
    most = max((_given_a_task(job) for job in wanting), default=0.0)
    spared = sum(job.complete and not job.wall_at_least and _given_a_task(job) <= most for job in fewer)
    if spared >= SPARED_A_KILL * len(wanting):
        return 0.0
    return max(((job.asked_cpus or 0) / job.num_tasks for job in wanting), default=0.0)


def _had_fewer(job: PastJob) -> bool:
    return job.given_cpus is not None and job.asked_cpus is not None and job.given_cpus < job.asked_cpus


def _given_a_task(job: PastJob) -> float:
    return (job.given_cpus or 0) / job.num_tasks


def _was_stopped(job: PastJob) -> bool:
    """Whether a job ended by no end of its own, for want of neither memory nor of more CPUs to keep busy."""
    if job.wall_at_least:
        return not was_filled(job)
    return not job.complete and not job.mem_at_least


def _lacked_other(job: PastJob, again: PastJob) -> bool:
    """Whether it may have wanted memory, or GPUs, that were cut as well, by what it used when it ran again."""
    had_fewer_gpus = (job.given_gpus or 0) < (job.asked_gpus or 0)
    return had_fewer_gpus or (again.mem_mib or 0.0) > (job.given_mem_mib or math.inf)


def was_filled(job: PastJob) -> bool:
    """Whether a job that was cut kept nearly all that it was left busy."""
    given = job.given_cpus or 0
    return _had_fewer(job) and (job.cores_per_task or 0.0) * job.num_tasks >= BUSY_SHARE * given


def had_more(jobs: Iterable[PastJob], cpus: int) -> bool:
    """Whether some of the jobs whose cores are known ran to their end with more than so many CPUs a task."""
    return sum(_given(job) > cpus * job.num_tasks for job in jobs) >= LEAST_WITH_MORE


def _given(job: PastJob) -> int:
    shows = job.complete and job.cores_per_task is not None
    return (job.given_cpus or job.asked_cpus or 0) if shows else 0
