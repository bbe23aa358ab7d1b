"""Which waiting job comes first. Pure: an ordering decides neither where a job goes nor what may pass it.

Three kinds: a key that a job keeps while it waits; fairness between users, which changes with every start (DRF); and
a function that arranges the whole queue anew, as the heap in pre-order of the GPU-virtualisation patent does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from models.scheduling.room import Amounts


class Waiting(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A waiting job as an ordering sees it. Times are seconds; `number` tells jobs apart in the order they came.

    `predicted_s` is what someone expects it to run; `remaining_s` what it has still to run, which only a simulator
    knows for certain; `deadline_s` is infinite where it has none.
    """

    number: int
    submit_s: float
    user: int
    demand: Amounts
    predicted_s: float
    remaining_s: float
    deadline_s: float = math.inf


Key = Callable[[Waiting], float]
# The queue as it stands to places in it (0: first), one a job, in the order given.
Arrange = Callable[[Sequence[Waiting]], Sequence[int]]


class Ordering(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue is ordered: by `key`, or anew by `arrange` whenever jobs came, or `fair` between users."""

    key: Key
    arrange: Arrange | None = None
    fair: bool = False


def by_submit(job: Waiting) -> float:
    """First come, first served."""
    return job.submit_s


def by_remaining(job: Waiting) -> float:
    """Shortest remaining time first; what runs is not interrupted, so what remains is a job's whole run."""
    return job.remaining_s


def by_prediction(job: Waiting) -> float:
    """Shortest job first, by its predicted run time."""
    return job.predicted_s


def by_deadline(job: Waiting) -> float:
    """Earliest deadline first; jobs without one come last."""
    return job.deadline_s


def dominant_share(used: Amounts, total: Amounts) -> float:
    """Return the largest share of any resource that a user has (Ghodsi et al., DRF, NSDI 2011)."""
    return max((part / whole for part, whole in zip(used, total, strict=True) if whole), default=0.0)


FIFO = Ordering(key=by_submit)
ORDERINGS: dict[str, Ordering] = {
    "fifo": FIFO,
    "srtf": Ordering(key=by_remaining),
    "sjf": Ordering(key=by_prediction),
    "edf": Ordering(key=by_deadline),
    "drf": Ordering(key=by_submit, fair=True),
}
