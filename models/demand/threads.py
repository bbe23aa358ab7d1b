"""Whole cores: when a family keeps one core busy, and when a bound hardly exceeds a whole number. Pure.

Only the mean of a job's busy cores is known. For a program of one thread it lies just below 1, job after job, however
many CPUs it had, since a thread cannot use more than one. A tail in logarithms (tail.py) cannot express that. Means
of several threads lie anywhere between whole numbers, and a mean just below a whole number says nothing of the next
job (docs/decisions/0029 has the counts). So only one thread is recognised.

A mean hides a short peak: eight threads in a tenth of the time, and one that is hardly busy in the rest, look like
one thread. Three things guard against that:

- The family's median must lie just below 1 too, not only its highest.
- Some jobs must have had more CPUs than the number to which the bound is lowered: a job that was cut to that number
  can show no more. So if all known jobs of a family were cut, it is given one more again, which shows anew.
- A job that is cut by mistake runs longer, but does not fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from models.demand.too_few import BUSY_SHARE
from models.past.evidence import SURPRISE_LOG, PastUse, middle
from models.past.jobs import PastJob

# This many jobs must have had more CPUs per task.
LEAST_WITH_MORE = 3


def runs_one_thread(past: PastUse, jobs: Iterable[PastJob]) -> bool:
    """Return whether a family's jobs keep one core per task busy and no more; `past` is their use of cores."""
    if past.highest_log > 0 or middle(sorted(past.needed)) < BUSY_SHARE:
        return False
    return had_more(jobs, 1)


def without_excess(upper: float, past: PastUse, jobs: Iterable[PastJob]) -> float:
    """Return a bound of cores, rounded down to a whole number if what it exceeds that by would be no surprise.

    Otherwise the next whole core would be granted for the sake of two per cent. It is never below what was used once.
    """
    whole = math.floor(upper)
    if whole < 1 or past.highest_log > math.log(whole) or math.log(upper / whole) > SURPRISE_LOG:
        return upper
    return float(whole) if had_more(jobs, whole) else upper


def had_more(jobs: Iterable[PastJob], cpus: int) -> bool:
    """Return whether LEAST_WITH_MORE jobs whose cores are known ran to their end with more CPUs per task."""
    return sum(_given(job) > cpus * job.num_tasks for job in jobs) >= LEAST_WITH_MORE


def _given(job: PastJob) -> int:
    shows = job.complete and job.cores_per_task is not None
    return (job.given_cpus or job.asked_cpus or 0) if shows else 0
