"""Which waiting job comes first. Pure: an ordering decides neither where a job goes nor what may pass it.

There are three kinds: a key that a job keeps while it waits; fairness between users, which changes with every start
(DRF); and a function that arranges the whole queue anew, like the heap in pre-order of the GPU-virtualisation patent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy

from models.scheduling.heap_order import heap_arrangement
from models.scheduling.room import Amounts

# In the heap's order, jobs of a later hour do not pass those of an earlier one; else small ones might wait for ever.
HEAP_WINDOW_S = 3600.0


class Waiting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A waiting job as an ordering sees it. Times are seconds; `number` tells jobs apart, in order of arrival.

    `predicted_s` is its predicted run time; `remaining_s` is how long it still has to run, which only a simulator
    knows for certain; `limit_s` is the longest it may run; `deadline_s` is infinite if it has none. `total` is what
    the whole cluster has. A job on several `nodes` needs the demand on each of them.
    """

    number: int
    submit_s: float
    user: int
    demand: Amounts
    total: Amounts
    predicted_s: float
    remaining_s: float
    limit_s: float
    deadline_s: float = math.inf
    nodes: int = 1


Key = Callable[[Waiting], float]
# From the queue as it stands to each job's place in it (0: first), in the order given.
Arrange = Callable[[Sequence[Waiting]], Sequence[int]]
# From a seed to an arrangement of one queue: each simulation has its own, so that equal simulations are alike.
Arrangement = Callable[[int], Arrange]


class Ordering(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue is ordered: by `key`, by an `arrangement` made anew whenever jobs come, or `fair` between users."""

    key: Key
    arrangement: Arrangement | None = None
    fair: bool = False


def by_submit(job: Waiting) -> float:
    """First come, first served."""
    return job.submit_s


def by_remaining(job: Waiting) -> float:
    """Shortest remaining time first; running jobs are not interrupted, so a waiting job's whole run remains."""
    return job.remaining_s


def by_prediction(job: Waiting) -> float:
    """Shortest job first, by predicted run time."""
    return job.predicted_s


def by_deadline(job: Waiting) -> float:
    """Earliest deadline first; jobs without one come last."""
    return job.deadline_s


def dominant_share(used: Amounts, total: Amounts) -> float:
    """Return the largest share of any resource that a user has (Ghodsi et al., DRF, NSDI 2011)."""
    return max((part / whole for part, whole in zip(used, total, strict=True) if whole), default=0.0)


def by_size(job: Waiting) -> float:
    """Largest first, by the largest share of any resource of the cluster."""
    return -size_of(job)


def size_of(job: Waiting) -> float:
    """Return how much of the cluster a job needs: its dominant share."""
    return dominant_share(job.demand, job.total)


def heap(seed: int) -> Arrange:
    """Return an arrangement that orders each hour's jobs by a max-heap of their sizes in pre-order (heap_order.py)."""
    return heap_arrangement(size_of, _hour_of, numpy.random.default_rng(seed))


def _hour_of(job: Waiting) -> int:
    return int(job.submit_s // HEAP_WINDOW_S)


FIFO = Ordering(key=by_submit)
ORDERINGS: dict[str, Ordering] = {
    "fifo": FIFO,
    "srtf": Ordering(key=by_remaining),
    "sjf": Ordering(key=by_prediction),
    "edf": Ordering(key=by_deadline),
    "largest": Ordering(key=by_size),
    "heap": Ordering(key=by_submit, arrangement=heap),
    "drf": Ordering(key=by_submit, fair=True),
}
