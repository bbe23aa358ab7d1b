"""Cores come whole: when a family is known to keep one busy, and when a bound is hardly more than so many. Pure.

What is known of a job is the mean of its busy cores. That of a program of one thread lies just below 1, job after job,
however many CPUs it had, since a thread cannot use more than one. No tail in logarithms (tail.py) says so. Means of
several threads lie anywhere between whole numbers, and one just below a whole number says nothing of the next job
(docs/decisions/0029 has the counts): so only one thread is recognised.

A mean hides a short peak: eight threads in a tenth of the time and one hardly busy in the rest look like one thread.
Against that stand three things. The median of the family must lie just below 1 too, not its highest alone. Only jobs
count that had more than one CPU a task; what we cut to one CPU can show no more than one, so that a family of which all
known jobs were cut is given two again, and tells anew. And who is cut by mistake runs longer, but does not fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from models.evidence import SURPRISE_LOG, PastJob, PastUse, middle

# A core is busy if it is for this share of the time, in the middle job of a family.
BUSY_SHARE = 0.9
# So many jobs must have had more than one CPU a task, and used no more than one.
LEAST_WITH_MORE = 3


def runs_one_thread(past: PastUse, jobs: Iterable[PastJob]) -> bool:
    """Whether a family's jobs keep one core a task busy and no more; `past` is their use of cores."""
    if past.highest_log > 0 or middle(sorted(past.needed)) < BUSY_SHARE:
        return False
    return sum(map(had_more, jobs)) >= LEAST_WITH_MORE


def had_more(job: PastJob) -> bool:
    """Whether a job whose cores are known ran to its end with more than one CPU a task."""
    cpus = job.given_cpus or job.asked_cpus or 0
    return job.complete and job.cores_per_task is not None and cpus > job.num_tasks


def cut_off(upper: float, highest: float) -> float:
    """Return a bound of cores without what it exceeds a whole number by, if that is no surprise; never below `highest`.

    The next whole core would be granted for the sake of two per cent: a job that needs those is slower by as much.
    """
    whole = math.floor(upper)
    hardly = whole >= highest and whole > 0 and math.log(upper / whole) <= SURPRISE_LOG
    return float(whole) if hardly else upper
