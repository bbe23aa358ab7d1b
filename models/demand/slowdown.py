"""The fewest CPUs with which jobs are expected to run longer by no more than the site bears. Pure.

Work stays: with c CPUs a task, a job that keeps u busy runs max(1, u / c) times as long. Over a family's past jobs that
is to be

    E[max(1, u / c)] - 1 ≤ most_slowdown

The next job need not be like them: PRIOR_JOBS pretended ones need the whole bound that was predicted. A job that we
cut, and that kept busy all it was left, needed at least so much (it is *censored*): its share goes to those that needed
more, and to the whole bound where there is none (Kaplan and Meier 1958, as Efron's redistribution to the right). So
jobs that were cut cannot teach that still fewer CPUs would do.

Nobody is slowed into his time limit: the longest run, of a job that needs the whole bound, still ends within it. Where
no limit is known nobody is slowed at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from models.demand.tail import PRIOR_JOBS
from models.demand.too_few import was_filled
from models.past.jobs import PastJob, use_of

# CPUs a task that a job kept busy, and the share of the family that stands for.
Shares = Sequence[tuple[float, float]]


def fewest_cpus(jobs: Iterable[PastJob], upper: float, most_slowdown: float, in_time: float = 0.0) -> float:
    """Return the fewest whole CPUs a task, at least `in_time`, that slow jobs by no more than a share.

    It is `upper`, the bound of what they need, where that is no less.
    """
    shares = shares_of(jobs, upper)
    enough = math.ceil(upper)
    too_few = min(max(1, math.ceil(in_time)), enough) - 1
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if expected_slowdown(shares, middle) <= most_slowdown:
            enough = middle
        else:
            too_few = middle
    return min(upper, float(enough))


def cpus_in_time(upper: float, longest_s: float, limit_s: float) -> float:
    """Return the CPUs a task with which the longest run, of a job that could keep `upper` busy, ends in time."""
    return upper * longest_s / limit_s


def expected_slowdown(shares: Shares, cpus: float) -> float:
    """Return by which share jobs run longer with so many CPUs a task."""
    return sum(share * (busy / cpus - 1) for busy, share in shares if busy > cpus)


def shares_of(jobs: Iterable[PastJob], upper: float) -> list[tuple[float, float]]:
    """Return what past and pretended jobs need, each with its share of all; what is not known needs `upper`."""
    known = [job for job in jobs if job.complete and job.cores_per_task is not None]
    # Of equal ones those that show all come first: a censored one needed as much or more.
    uses = sorted((use_of(job, "cores") or 0.0, was_filled(job)) for job in known)
    left = 1.0
    total = len(uses) + PRIOR_JOBS
    shares: list[tuple[float, float]] = []
    for place, (busy, censored) in enumerate(uses):
        if not censored:
            share = left / (total - place)
            shares.append((busy, share))
            left -= share
    shares.append((upper, left))
    return shares
