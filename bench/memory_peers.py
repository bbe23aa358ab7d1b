"""Others' methods of sizing memory, each in a few lines, replayed as ours is: by what had ended before a decision.

    max+15%    the most that a job of that name used, and 15 %: KRR's rule, and what sites write by hand
    Witt p99   the 99th percentile of the name's peaks (Witt, Wagner, Leser: Feedback-based resource allocation, 2019)
    Tovar      the past peak that would have wasted least, if a failed job runs again with its request
               (Tovar et al.: A job sizing strategy for high-throughput scientific workflows, 2018)
    VPA        Kubernetes' Vertical Pod Autoscaler: the 90th percentile of a histogram that forgets by half in a day,
               and 15 %
    oracle     the job's own peak once a job of its name has ended: the floor for all methods that need one ended job

None says anything about a name of which no job has ended; the request then stands.
"""

from __future__ import annotations

import itertools
import math
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

import msgspec
import numpy

from bench.memory_traces import Trace
from models.judging.online import DecideAt
from models.run_time.importance import Floats

MARGIN = 1.15
DAY_S = 86400.0


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer may see of a job; of a job to be sized, only `name` and `asked_mib`."""

    name: str
    end_s: float
    run_s: float
    asked_mib: float
    peak_mib: float
    cores: float


class Peer(Protocol):
    """The jobs of one name: what they teach, and what the next one is given."""

    def learn(self, job: Job) -> None:
        """Learn from an ended job."""

    def size(self, job: Job) -> float:
        """Return what a job is given; at least one job has been learned from."""


class Highest:
    """The maximum so far, times a factor; of memory, or of cores, rounded up to whole ones."""

    def __init__(self, cores: bool = False) -> None:
        self._cores, self._highest = cores, 0.0

    def learn(self, job: Job) -> None:
        """Learn from a job; unknown cores are ignored."""
        used = job.cores if self._cores else job.peak_mib
        self._highest = max(self._highest, 0.0 if math.isnan(used) else used)

    def size(self, job: Job) -> float:  # noqa: ARG002 - the shape of a peer
        """Return the maximum so far, times the factor."""
        if self._cores:
            return math.ceil(self._highest) if self._highest else math.nan
        return self._highest * MARGIN


class Percentile:
    """The 99th percentile of all peaks so far, interpolated."""

    def __init__(self) -> None:
        self._peaks: list[float] = []

    def learn(self, job: Job) -> None:
        """Learn from a job."""
        insort(self._peaks, job.peak_mib)

    def size(self, job: Job) -> float:  # noqa: ARG002 - the shape of a peer
        """Return the percentile."""
        whole, part = divmod(0.99 * (len(self._peaks) - 1), 1)
        below, above = (self._peaks[min(int(whole) + step, len(self._peaks) - 1)] for step in (0, 1))
        return below + part * (above - below)


class FirstAllocation:
    """The peak that would have wasted least over the past, with failed jobs run again with their request."""

    def __init__(self) -> None:
        self._peaks, self._runs = numpy.empty(0), numpy.empty(0)
        self._until: Floats | None = None

    def learn(self, job: Job) -> None:
        """Learn from a job."""
        place = self._peaks.searchsorted(job.peak_mib)
        self._peaks = numpy.insert(self._peaks, place, job.peak_mib)
        self._runs = numpy.insert(self._runs, place, job.run_s)
        self._until = None

    def size(self, job: Job) -> float:
        """Return the cheapest of the peaks so far."""
        if self._until is None:
            self._until = self._runs.cumsum()
        peaks, until = self._peaks, self._until
        again = max(job.asked_mib, float(peaks[-1])) * (until[-1] - until)
        return float(peaks[numpy.argmin(peaks * until[-1] + again)])


class Autoscaler:
    """The Vertical Pod Autoscaler's histogram: its buckets grow by 5 % from 10 MB on."""

    SHARE, FIRST_MIB, RATIO, BUCKETS = 0.90, 1e7 / 2**20, 1.05, 260
    # After this many half-lives, weights are rescaled, because they would no longer fit on one scale.
    LONGEST = 50.0

    def __init__(self) -> None:
        self._weights = numpy.zeros(self.BUCKETS)
        self._since_s: float | None = None

    def learn(self, job: Job) -> None:
        """Learn from a job, with twice the weight of a job one day earlier."""
        age = 0.0 if self._since_s is None else (job.end_s - self._since_s) / DAY_S
        if self._since_s is None or age > self.LONGEST:
            self._weights *= 2.0**-age
            self._since_s, age = job.end_s, 0.0
        place = math.log1p(job.peak_mib * (self.RATIO - 1) / self.FIRST_MIB) / math.log(self.RATIO)
        self._weights[min(int(place), self.BUCKETS - 1)] += 2.0**age

    def size(self, job: Job) -> float:  # noqa: ARG002 - the shape of a peer
        """Return the upper end of the bucket with the percentile, plus the margin."""
        upto = self._weights.cumsum()
        bucket = int(numpy.searchsorted(upto, self.SHARE * upto[-1]))
        return MARGIN * self.FIRST_MIB * float(self.RATIO ** (bucket + 1) - 1) / (self.RATIO - 1)


class Oracle:
    """Knows what a job will use."""

    def learn(self, job: Job) -> None:
        """Learn nothing."""

    def size(self, job: Job) -> float:
        """Return the job's own peak."""
        return job.peak_mib


PEERS: dict[str, Callable[[], Peer]] = {
    "max+15%": Highest,
    "Witt p99": Percentile,
    "Tovar": FirstAllocation,
    "VPA": Autoscaler,
}
ORACLE = "oracle"


def sized_by(make: Callable[[], Peer], trace: Trace, decide_at: DecideAt, warm: Collection[str]) -> Floats:
    """Return what a peer gives each job of a trace, by row; NaN for names it has not seen, and for `warm` jobs."""
    peers: defaultdict[str, Peer] = defaultdict(make)
    jobs = jobs_of(trace)
    given = numpy.full(len(jobs), math.nan)
    seen: set[str] = set()
    for row, ended in moments(trace, decide_at, warm):
        for other in ended:
            peers[jobs[other].name].learn(jobs[other])
            seen.add(jobs[other].name)
        if jobs[row].name in seen:
            given[row] = peers[jobs[row].name].size(jobs[row])
    return given


def jobs_of(trace: Trace) -> list[Job]:
    """Return a trace's jobs in the form that peers see."""
    names = ["job_name", "end", "elapsed_s", "req_mem_mib", "peak_mem_mib", "used_cores"]
    rows = zip(*(trace.jobs[name].tolist() for name in names), strict=True)
    return [
        Job(name=name, end_s=end_s, run_s=run_s, asked_mib=asked, peak_mib=peak, cores=cores)
        for name, end_s, run_s, asked, peak, cores in rows
    ]


def moments(trace: Trace, decide_at: DecideAt, warm: Collection[str]) -> Iterator[tuple[int, list[int]]]:
    """Yield each job's row when it is decided, with the rows that ended since the last one; `warm` ones ended first."""
    when = trace.column("submit_time" if decide_at == "submit" else "start")
    early = trace.jobs["job_id"].isin(list(warm)).to_numpy()
    end_s = numpy.where(early, -math.inf, trace.column("end"))
    waiting = sorted(range(len(end_s)), key=lambda row: end_s[row], reverse=True)
    for row in numpy.argsort(when, kind="stable").tolist():
        if early[row]:
            continue
        ended = list(itertools.takewhile(lambda other, row=row: end_s[other] < when[row], reversed(waiting)))  # type: ignore[misc]
        del waiting[len(waiting) - len(ended) :]
        yield row, ended
