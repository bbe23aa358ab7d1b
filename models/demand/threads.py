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
from collections.abc import Iterable

from models.demand.too_few import BUSY_SHARE
from models.past.evidence import SURPRISE_LOG, PastUse, middle
from models.past.jobs import PastJob

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


def had_more(jobs: Iterable[PastJob], cpus: int) -> bool:
    """Whether some of the jobs whose cores are known ran to their end with more than so many CPUs a task."""
    return sum(_given(job) > cpus * job.num_tasks for job in jobs) >= LEAST_WITH_MORE


def _given(job: PastJob) -> int:
    shows = job.complete and job.cores_per_task is not None
    return (job.given_cpus or job.asked_cpus or 0) if shows else 0
