"""The fewest CPUs with which jobs are expected to run longer by no more than the site accepts. Pure.

The work stays the same: with c CPUs per task, a job that keeps u busy runs max(1, u / c) times as long. Over a
family's past jobs, this must hold:

    E[max(1, u / c)] - 1 ≤ most_slowdown

The next job need not be like the past ones, so PRIOR_JOBS imaginary jobs are added that need the whole predicted
bound. A job that was cut, and kept all that it was left busy, needed at least that much (it is *censored*): its share
goes to the jobs that needed more, and to the whole bound if there are none (Kaplan and Meier 1958, as Efron's
redistribution to the right). So jobs that were cut cannot teach that still fewer CPUs would do.

No job is slowed beyond its time limit: the longest run, of a job that needs the whole bound, still ends within it. If
the limit is not known, the job is not slowed at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from models.demand.tail import PRIOR_JOBS
from models.demand.too_few import was_filled
from models.past.jobs import PastJob, use_of

# CPUs per task that a job kept busy, and the share of the family that it stands for.
Shares = Sequence[tuple[float, float]]


def fewest_cpus(jobs: Iterable[PastJob], upper: float, most_slowdown: float, in_time: float = 0.0) -> float:
    """Return the fewest whole CPUs per task, at least `in_time`, that slow jobs by no more than `most_slowdown`.

    It is never more than `upper`, the bound of what they need.
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
    """Return the CPUs per task with which the longest run, of a job that could keep `upper` busy, ends in time."""
    return upper * longest_s / limit_s


def expected_slowdown(shares: Shares, cpus: float) -> float:
    """Return the share by which jobs run longer with this many CPUs per task."""
    return sum(share * (busy / cpus - 1) for busy, share in shares if busy > cpus)


def shares_of(jobs: Iterable[PastJob], upper: float) -> list[tuple[float, float]]:
    """Return what past and imaginary jobs need, each with its share of all; a need that is not known is `upper`."""
    known = [job for job in jobs if job.complete and job.cores_per_task is not None]
    # Among equal uses, uncensored jobs come first: a censored one needed as much or more.
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
