"""What a cluster is asked to run: jobs in columns, in order of arrival. Pure, except for the seeded generator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy
import numpy.typing as npt

from accounting.errors import ModelError
from models.scheduling.room import RESOURCES, Floats, Ints

Flags = npt.NDArray[numpy.bool_]

RESOURCE_ROWS = len(RESOURCES)
# This many jobs of a made-up load are years of work at the largest sites, and fit into memory.
MOST_JOBS = 10_000_000


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs in columns, sorted by arrival; seconds, and amounts (jobs × resources) in the units of room.RESOURCES.

    `run_s` is how long a job runs with what it asked for, on a node of speed 1. `used` is what it really uses; for
    memory it is the peak. `limit_s` is the user's limit (infinite: none), `deadline_s` likewise; `user` and `kind`
    are numbers.
    """

    submit_s: Floats
    run_s: Floats
    asked: Ints
    used: Ints
    limit_s: Floats
    deadline_s: Floats
    user: Ints
    kind: Ints

    def __post_init__(self) -> None:
        """Refuse what no simulation can interpret."""
        jobs = len(self.submit_s)
        for name in ("run_s", "limit_s", "deadline_s", "user", "kind"):
            if getattr(self, name).shape != (jobs,):
                raise ModelError(f"a workload's {name} must have one value for each of its {jobs} jobs")
        for name in ("asked", "used"):
            if getattr(self, name).shape != (jobs, RESOURCE_ROWS):
                raise ModelError(f"a workload's {name} must be {jobs} jobs × CPU, memory and GPU")
        if not (numpy.isfinite(self.submit_s).all() and (numpy.diff(self.submit_s) >= 0).all()):
            raise ModelError(
                "a workload's jobs must come in the order of their arrival; sort them by submit_s"
            )
        if not (numpy.isfinite(self.run_s).all() and (self.run_s > 0).all() and (self.limit_s > 0).all()):
            raise ModelError(
                "a workload's run times and limits must be above 0 s; leave out jobs that never ran"
            )
        if (self.asked < 0).any() or (self.used < 0).any() or not self.asked.any(axis=1).all():
            raise ModelError("a workload's jobs must ask for something, and for no negative amount")

    def __len__(self) -> int:
        """Return how many jobs there are."""
        return len(self.submit_s)


def workload(
    submit_s: Sequence[float] | Floats,
    run_s: Sequence[float] | Floats,
    asked: Sequence[Sequence[int]] | Ints,
    *,
    used: Sequence[Sequence[int]] | Ints | None = None,
    limit_s: Sequence[float] | Floats | None = None,
    deadline_s: Sequence[float] | Floats | None = None,
    user: Sequence[int] | Ints | None = None,
    kind: Sequence[int] | Ints | None = None,
) -> Workload:
    """Return a workload; unless given, jobs use what they ask for and have no limit, deadline or user."""
    jobs = len(submit_s)
    asked_rows = numpy.asarray(asked, dtype=numpy.int64).reshape(jobs, RESOURCE_ROWS)
    endless = numpy.full(jobs, numpy.inf)
    nobody = numpy.zeros(jobs, dtype=numpy.int64)
    return Workload(
        submit_s=numpy.asarray(submit_s, dtype=numpy.float64),
        run_s=numpy.asarray(run_s, dtype=numpy.float64),
        asked=asked_rows,
        used=asked_rows
        if used is None
        else numpy.asarray(used, dtype=numpy.int64).reshape(jobs, RESOURCE_ROWS),
        limit_s=endless if limit_s is None else numpy.asarray(limit_s, dtype=numpy.float64),
        deadline_s=endless if deadline_s is None else numpy.asarray(deadline_s, dtype=numpy.float64),
        user=nobody if user is None else numpy.asarray(user, dtype=numpy.int64),
        kind=nobody if kind is None else numpy.asarray(kind, dtype=numpy.int64),
    )


def poisson_arrivals(jobs_per_hour: float, hours: float, draw: numpy.random.Generator) -> Floats:
    """Return the arrivals (seconds, sorted) of a Poisson process: exponential gaps until the time is over."""
    if not (jobs_per_hour > 0 and 0 < hours < math.inf and jobs_per_hour < math.inf):
        raise ModelError(f"{jobs_per_hour} jobs/h for {hours} h is not a load; both must be above 0")
    if jobs_per_hour * hours > MOST_JOBS:
        raise ModelError(
            f"{jobs_per_hour} jobs/h for {hours} h is more than {MOST_JOBS} jobs; give less of either"
        )
    arrivals: list[float] = []
    now_s = 0.0
    while True:
        now_s += float(draw.exponential(3600 / jobs_per_hour))
        if now_s >= hours * 3600:
            return numpy.array(arrivals)
        arrivals.append(now_s)
