"""What became of a simulated load, in columns and in figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import msgspec
import numpy

from models.scheduling.room import MILLI, Amounts, Floats, Ints, Parts
from models.simulation.lending import idle_s
from models.simulation.nodes import Cluster
from models.simulation.workload import Workload

CPUS, GPUS = 0, 2

# For slowdowns, jobs shorter than this count as if they ran this long (Feitelson's bound).
SHORT_S = 10.0


class Outcome(IntEnum):
    """What became of a job by the end of a simulation. `UNFIT`: it asked for more than the cluster has."""

    ABSENT = 0
    WAITING = 1
    RUNNING = 2
    COMPLETED = 3
    FAILED = 4
    TIMEOUT = 5
    UNFIT = 6


class Moment(msgspec.Struct, frozen=True, gc=False):
    """What was allocated and really used from a moment on, and how many jobs waited and ran."""

    at_s: float
    allocated: Amounts
    used: Amounts
    waiting: int
    running: int


class Run(msgspec.Struct, frozen=True, gc=False):
    """One run of a job: where, from when, and until when it would run (seconds).

    Reserved parts of nodes count as nodes after all others (Cluster.part_of).
    """

    number: int
    start_s: float
    end_s: float
    parts: Parts


class LentUse(msgspec.Struct, frozen=True):
    """How much of their nodes owners left alone, and jobs held of that: GPU seconds, or CPU seconds without GPUs."""

    idle: float = 0.0
    used: float = 0.0


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each job: `start_s` and `end_s` of its last run (NaN: none), attempts that failed for memory.

    `first_start_s` is that of its first run. `moments` are the changes over time, `runs` all runs in the order of
    their starts. `interruptions` has the number of runs of each job that an owner ended. `why` is the last decision
    on the job that was to be explained, if its device was chosen.
    """

    jobs: Workload
    total: Amounts
    until_s: float
    outcome: Ints
    start_s: Floats
    first_start_s: Floats
    end_s: Floats
    failures: Ints
    granted: Ints
    moments: list[Moment]
    runs: list[Run]
    interruptions: Ints
    lent: LentUse = LentUse()
    why: str = ""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A simulation in one line. Times in seconds; shares of the cluster over the whole time, 0..1.

    `due` counts jobs with a deadline that has passed or that they met; `missed_deadlines` only those that finished,
    late. `lent_used` is a share of what owners left alone. `deployed` counts jobs that started at all; `completion`
    is finished / (finished + queued), `finished_of_all` the share of all that came, including running ones.
    """

    jobs: int
    deployed: int
    finished: int
    queued: int
    running: int
    failures: int
    missed_deadlines: int
    due: int
    met_deadlines: int
    interruptions: int
    lent_used: float
    completion: float
    finished_of_all: float
    mean_wait_s: float
    longest_wait_s: float
    bounded_slowdown: float
    mean_run_s: float
    cpu_allocated: float
    gpu_allocated: float
    mem_allocated: float
    cpu_used: float
    gpu_used: float
    mem_used: float


def figures(results: Results) -> Figures:
    """Return the figures of a simulation; waits are those of jobs that started, until their first start."""
    outcome = results.outcome
    came = outcome != Outcome.ABSENT
    started = ~numpy.isnan(results.first_start_s)
    finished = outcome == Outcome.COMPLETED
    waits_s = (results.first_start_s - results.jobs.submit_s)[started]
    run_s = (results.end_s - results.start_s)[finished]
    stayed_s = (results.end_s - results.jobs.submit_s)[finished]
    queued = int((outcome == Outcome.WAITING).sum())
    done = int(finished.sum())
    late = finished & (results.end_s > results.jobs.deadline_s)
    in_time = finished & ~late & (results.jobs.deadline_s < numpy.inf)
    allocated, used = mean_shares(results)
    return Figures(
        jobs=int(came.sum()),
        deployed=int(started.sum()),
        finished=done,
        queued=queued,
        running=int((outcome == Outcome.RUNNING).sum()),
        failures=int(results.failures.sum()),
        missed_deadlines=int(late.sum()),
        due=int((came & ((results.jobs.deadline_s <= results.until_s) | in_time)).sum()),
        met_deadlines=int(in_time.sum()),
        interruptions=int(results.interruptions.sum()),
        lent_used=results.lent.used / max(results.lent.idle, 1e-9),
        completion=done / max(1, done + queued),
        finished_of_all=done / max(1, int(came.sum())),
        mean_wait_s=_mean(waits_s),
        longest_wait_s=float(waits_s.max(initial=0.0)),
        bounded_slowdown=_mean(bounded_slowdowns(stayed_s, run_s)),
        mean_run_s=_mean(run_s),
        cpu_allocated=allocated[0],
        mem_allocated=allocated[1],
        gpu_allocated=allocated[2],
        cpu_used=used[0],
        mem_used=used[1],
        gpu_used=used[2],
    )


def lent_use(cluster: Cluster, runs: Sequence[Run], until_s: float) -> LentUse:
    """Return what owners left alone until a moment, and how much of it runs held."""
    row = GPUS if cluster.total[GPUS] else CPUS
    idle = sum(
        (
            idle_s(spans, 0.0, until_s) * int(cluster.capacity[row, node])
            for node, spans in cluster.owners.items()
        ),
        0.0,
    )
    used = sum(
        (
            (min(run.end_s, until_s) - run.start_s) * amounts[row]
            for run in runs
            if run.start_s < until_s
            for node, amounts in run.parts
            if node in cluster.owners
        ),
        0.0,
    )
    return LentUse(idle / MILLI, used / MILLI)


def bounded_slowdowns(stayed_s: Floats, run_s: Floats) -> Floats:
    """Return jobs' time from submission to end over their run time, at least 1; short runs count as SHORT_S."""
    found: Floats = numpy.maximum(1.0, stayed_s / numpy.maximum(run_s, SHORT_S))
    return found


def mean_shares(results: Results) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return how much of the cluster was allocated, and really used, over the whole time (CPU, memory, GPU)."""
    if not results.moments:
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    at_s = numpy.array([moment.at_s for moment in results.moments] + [results.until_s])
    spans_s = numpy.diff(at_s)
    whole_s = max(results.until_s, 1e-9)
    allocated = numpy.array([moment.allocated for moment in results.moments], dtype=numpy.float64)
    used = numpy.array([moment.used for moment in results.moments], dtype=numpy.float64)
    total = numpy.maximum(numpy.array(results.total, dtype=numpy.float64), 1.0)
    return tuple((spans_s @ allocated / whole_s / total).tolist()), tuple(
        (spans_s @ used / whole_s / total).tolist()
    )


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0
