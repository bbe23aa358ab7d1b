"""What became of past jobs under ways to size them: whether each would have failed, and what it would have held.

All in columns, since a large site has a million jobs. A failed job counts whole, and is run again with what its user
asked for.

A peak of memory may be a bound: the job was killed for memory, or Slurm counted only part of it. If a method grants
no more than the bound, the job would have failed. If it grants more, nothing is known: the job does not count,
neither in the share that failed nor in what was saved. So two methods may count different jobs, each those whose
outcome under it is known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from accounting.frames import Flags, Floats, Ints
from accounting.request import JobRequest
from models.judging.health import judged_by
from models.past.columns import PastColumns
from models.past.families import Family
from models.past.jobs import PastJob
from models.past.rows import past_jobs, requests_in

SECONDS_AN_HOUR = 3600.0
DIMENSIONS = {"memory": "GiB·h", "cores": "core·h", "gpus": "GPU·h"}
NO_FAMILY = -1
# So many jobs are sized from one telling of the progress to the next.
TOLD_EACH = 500

Sizing = Callable[[JobRequest], JobRequest]


class Follow(NamedTuple):
    """What a method learns as jobs end: the rows of the attempts that it does not know yet, and how one joins it."""

    rows: Ints
    join: Callable[[JobRequest, PastJob], object]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of jobs in one dimension under one method: one row for each job whose outcome is known.

    `places` says which of the judged jobs they are. Amounts are in the unit of DIMENSIONS. `granted` includes the
    second run of a job that failed; `used` may be a bound for such a job.
    """

    dimension: str
    method: str
    places: Ints
    resized: Flags
    failed: Flags
    requested: Floats
    granted: Floats
    used: Floats


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What a method did to the jobs whose outcome is known, in one dimension; amounts in the unit of DIMENSIONS.

    Second runs are included. Jobs that show a bound below what they would have got are left out of all of it, so
    there may be more `jobs` under a method that grants less. The share saved is of what these `requested`, the share
    failed of those of them that were `resized`.
    """

    jobs: int
    resized: int
    failed: int
    requested: float
    granted: float

    @property
    def saved_share(self) -> float:
        """The share that was saved of what was requested; below 0, sizing cost more."""
        return 1 - self.granted / self.requested if self.requested else 0.0


class LargeFamilies(msgspec.Struct, frozen=True):
    """Families of many judged jobs; `places` has each judged job's family by its place in `names`, or NO_FAMILY."""

    names: Sequence[Family]
    places: Ints


def to_judge(past: PastColumns, from_s: int) -> Ints:
    """Return the attempts that may show what a grant would have done: all that ran to their end, and those killed.

    They are rows of the past that were submitted from `from_s` (unix seconds) on. A run that was killed for memory
    shows what its job needed at least. It is left out if a later run of that job shows it too: a job that is requeued
    after a kill is one job that failed, not two. It is also left out if it had all that its user asked for: such a
    job fails however it is sized.
    """
    later = past.submit_s >= from_s
    return np.flatnonzero(later & (past.complete | (lacked_memory(past) & _tells_last(past, later))))


def lacked_memory(past: PastColumns) -> Flags:
    """Return which attempts show a lower bound of their memory need that is less than was asked for."""
    lacked: Flags = past.mem_at_least & (past.mem_mib < past.asked_mem_mib)
    return lacked


def _tells_last(past: PastColumns, among: Flags) -> Flags:
    """Return which of some attempts are the last of their job that show its memory (`_used`)."""
    rows = np.flatnonzero(among & ~np.isnan(_used(past)["memory"]))
    rows = rows[np.lexsort((past.start_s[rows], past.job_id[rows], past.cluster.codes[rows]))]
    job = np.stack([past.cluster.codes[rows], past.job_id[rows]])
    last = np.zeros(len(past), np.bool_)
    last[rows[:-1][(job[:, 1:] != job[:, :-1]).any(axis=0)]] = True
    last[rows[-1:]] = True
    return last


def _used(past: PastColumns) -> dict[str, Floats]:
    """Return what each used of DIMENSIONS, in the unit of requests; NaN if not known.

    Memory may be a bound of the need (`mem_at_least`); for an attempt that was stopped early, it can only be that.
    """
    shown = past.shows_need("memory") | past.mem_at_least
    return {
        "memory": np.where(shown, past.mem_mib, np.nan),
        "cores": np.where(past.complete, past.cores_per_task, np.nan),
        "gpus": np.where(past.complete, past.gpus, np.nan),
    }


def judge(
    past: PastColumns,
    rows: Ints,
    methods: Mapping[str, Sizing],
    follow: Mapping[str, Follow] | None = None,
    told: Callable[[float], None] = lambda _: None,
) -> Iterator[Outcome]:
    """Yield what became of some jobs in each dimension under each method, in the order of DIMENSIONS.

    `rows` are those of `to_judge`. Jobs are sized in the order of their submission; `follow` says, by method, what it
    learns on the way. `told` is called with the share that is done of the methods that learn: they take nearly all of
    the time.

    A job has a row if it asked for the dimension and its outcome is known: its use is known, or a bound of it is not
    below the grant. So a method that grants more than a bound has no row of that job, which then neither saves nor
    fails. A job that gets all it asked for does not fail because of us, and a use above the request is a measuring
    error.
    """
    used = _used(past)
    asked = {"memory": past.asked_mem_mib, "cores": past.cpus_per_task, "gpus": past.asked_gpus}
    hours = past.wall_s[rows] / SECONDS_AN_HOUR
    scales = {"memory": hours / 1024, "cores": hours * past.num_tasks[rows], "gpus": hours}
    learning = [method for method in methods if method in (follow or {})]

    def tell(method: str, share: float) -> None:
        if method in learning:
            told((learning.index(method) + share) / len(learning))

    given = {
        method: _given(past, rows, size, (follow or {}).get(method), partial(tell, method))
        for method, size in methods.items()
    }
    for (place, dimension), method in itertools.product(enumerate(DIMENSIONS), methods):
        yield _outcome(
            dimension,
            method,
            asked[dimension][rows],
            given[method][:, place],
            used[dimension][rows],
            past.mem_at_least[rows] & (dimension == "memory"),
            scales[dimension],
        )


def _given(
    past: PastColumns, rows: Ints, size: Sizing, follow: Follow | None, told: Callable[[float], None]
) -> Floats:
    """Return what a method gives jobs of DIMENSIONS (jobs × dimensions); NaN if it gives nothing fixed."""
    order = np.argsort(past.submit_s[rows], kind="stable")
    requests = _telling(as_they_came(past, rows[order], follow), len(rows), told)
    amounts = (_amounts(size(request)) for request in requests)
    given = np.empty((len(rows), len(DIMENSIONS)))
    given[order] = np.fromiter(amounts, np.dtype((np.float64, len(DIMENSIONS))), len(rows))
    return given


def _telling(
    requests: Iterable[JobRequest], count: int, told: Callable[[float], None]
) -> Iterator[JobRequest]:
    """Yield requests, and tell every now and then which share of `count` has come."""
    for number, request in enumerate(requests):
        if number % TOLD_EACH == 0:
            told(number / count)
        yield request


def as_they_came(past: PastColumns, rows: Ints, follow: Follow | None) -> Iterator[JobRequest]:
    """Yield the requests of jobs, which are in the order of their submission; before each, what had ended joins.

    So it is in a service that learns of each job that ends. A job that ends in the very second of a submission is not
    known to it.
    """
    requests = requests_in(past, rows)
    if follow is None:
        yield from requests
        return
    ended = follow.rows[np.argsort(past.end_s[follow.rows], kind="stable")]
    finished = zip(requests_in(past, ended), past_jobs(past, ended), strict=True)
    known = np.searchsorted(past.end_s[ended], past.submit_s[rows], "left")
    for request, fresh in zip(requests, np.diff(known, prepend=0).tolist(), strict=True):
        for job in itertools.islice(finished, fresh):
            follow.join(*job)
        yield request


def _amounts(request: JobRequest) -> tuple[float, ...]:
    amounts = (request.mem_mib, request.cpus_per_task, request.gpus_per_node)
    return tuple(math.nan if amount is None else amount for amount in amounts)


def _outcome(
    dimension: str,
    method: str,
    asked: Floats,
    given: Floats,
    used: Floats,
    bounded: Flags,
    scale: Floats,
) -> Outcome:
    """Return what became of jobs; amounts are in the unit of requests, and times `scale` in that of DIMENSIONS."""
    tells, exceeded = judged_by(used, bounded, given)
    places = np.flatnonzero(tells & ~np.isnan(asked) & ~np.isnan(given) & ~np.isnan(used))
    asked, given, used, scale = asked[places], given[places], used[places], scale[places]
    resized = given < asked
    failed = exceeded[places] & resized
    return Outcome(
        dimension=dimension,
        method=method,
        places=places,
        resized=resized,
        failed=failed,
        requested=asked * scale,
        granted=np.where(failed, given + asked, given) * scale,
        used=used * scale,
    )


def whole(outcome: Outcome) -> Tally:
    """Add up all jobs."""
    return _tallies(outcome, np.zeros(len(outcome.places), np.int64), 1)[0]


def by_family(outcome: Outcome, families: LargeFamilies) -> list[Tally]:
    """Add up the jobs of each of some families."""
    return _tallies(outcome, families.places[outcome.places], len(families.names))


def _tallies(outcome: Outcome, group: Ints, groups: int) -> list[Tally]:
    """Add up the jobs of each group; jobs of NO_FAMILY are in none."""
    inside = group >= 0

    def counted(flags: Flags) -> list[int]:
        counts: list[int] = np.bincount(group[inside & flags], minlength=groups).tolist()
        return counts

    def added(amounts: Floats) -> list[float]:
        sums: list[float] = np.bincount(group[inside], amounts[inside], groups).tolist()
        return sums

    columns = (
        counted(inside),
        counted(outcome.resized),
        counted(outcome.failed),
        added(outcome.requested),
        added(outcome.granted),
    )
    return [
        Tally(jobs=jobs, resized=resized, failed=failed, requested=requested, granted=granted)
        for jobs, resized, failed, requested, granted in zip(*columns, strict=True)
    ]


def large_families(past: PastColumns, rows: Ints, least: int) -> LargeFamilies:
    """Return the families with at least `least` of some jobs, in the order of their first jobs.

    A job counts under the widest family that it belongs to.
    """
    names: list[Family] = []
    codes = np.full(len(rows), NO_FAMILY)
    for kind in reversed(past.families):
        own = kind.codes[rows]
        codes = np.where((codes == NO_FAMILY) & (own >= 0), own + len(names), codes)
        names += kind.names
    found, first, place, jobs = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
    large = np.flatnonzero((found != NO_FAMILY) & (jobs >= least))
    large = large[np.argsort(first[large])]
    places = np.full(len(found), NO_FAMILY)
    places[large] = np.arange(len(large))
    return LargeFamilies([names[code] for code in found[large].tolist()], places[place])
