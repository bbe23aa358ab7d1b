"""The orders that are tried, as a table: each maps the waiting records to keys, the least first. Pure.

An order only wishes; within_bounds.py decides what the site allows of it. Records with equal keys stay in Slurm's own
order. To add an order, add a line to ORDERS.

WFP3 and UNICEF: Tang, Lan, Desai, Buettner: Fault-aware, utility-based job scheduling on Blue Gene/P systems (CLUSTER
2009). F1: Carastan-Santos, de Camargo: Obtaining dynamic scheduling policies with simulation and machine learning
(SC'17), log10(run)·cores + 870·log10(submit); here submission times count from that of the oldest waiting job. The
papers take the user's limit, or any guess, for the run time; here it is the likely run time.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy

from models.planning.problem import SHORTEST_S, Problem
from models.scheduling.heap_order import heap_preorder
from models.scheduling.room import MILLI, Floats

AS_IS = "as it is"
# In `aged`, a job counts as younger by this many times its likely run time; measured (docs/decisions/0038).
STRENGTH = 20.0


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """What orders look at, one value per record: Slurm's rank, seconds, cores of a task, its share of the cluster."""

    rank: Floats
    likely_s: Floats
    waited_s: Floats
    deadline_s: Floats
    cores: Floats
    share: Floats
    seed: int


Order = Callable[[Columns], Floats]


def columns_of(problem: Problem, rank: Floats, seed: int) -> Columns:
    """Return the columns of the waiting records, given Slurm's own ranks."""
    pending = problem.pending

    def column(values: list[float]) -> Floats:
        return numpy.array(values, dtype=numpy.float64)

    return Columns(
        rank=rank,
        likely_s=column([max(SHORTEST_S, min(job.likely_s, job.limit_s)) for job in pending]),
        waited_s=column([job.waited_s for job in pending]),
        deadline_s=column([job.deadline_s for job in pending]),
        cores=column([job.demand[0] / MILLI for job in pending]),
        share=column(problem.shares()),
        seed=seed,
    )


def smallest_area(jobs: Columns) -> Floats:
    """Least share of the cluster × time first: what a job keeps from others, whatever resource is short."""
    areas: Floats = jobs.share * jobs.likely_s
    return areas


def expansion(jobs: Columns) -> Floats:
    """Highest expansion factor (wait + run) / run first."""
    return -(jobs.waited_s + jobs.likely_s) / jobs.likely_s


def wfp3(jobs: Columns) -> Floats:
    """(wait / run)³ · cores, highest first."""
    return -((jobs.waited_s / jobs.likely_s) ** 3) * jobs.cores


def unicef(jobs: Columns) -> Floats:
    """Wait / (log2(cores) · run), highest first; one core counts as two."""
    return -jobs.waited_s / (numpy.log2(numpy.maximum(2.0, jobs.cores)) * jobs.likely_s)


def f1(jobs: Columns) -> Floats:
    """log10(run) · cores + 870 · log10(submit), least first."""
    submitted_s = jobs.waited_s.max(initial=0.0) - jobs.waited_s
    cores = numpy.maximum(1.0, jobs.cores)
    keys: Floats = numpy.log10(jobs.likely_s) * cores + 870.0 * numpy.log10(numpy.maximum(1.0, submitted_s))
    return keys


def heap(jobs: Columns) -> Floats:
    """Areas as a max-heap in pre-order, small ones among large ones (heap_order.py)."""
    order = heap_preorder(smallest_area(jobs), numpy.random.default_rng(jobs.seed))
    keys: Floats = numpy.empty(len(order))
    keys[order] = numpy.arange(len(order))
    return keys


def aged(jobs: Columns) -> Floats:
    """First come, first served, as if each job had come later by STRENGTH times its likely run time.

    If waits are short compared with run times, this is shortest first; in a queue that lasts days, few jobs pass one
    that has waited. Two jobs keep their order while both wait.
    """
    return STRENGTH * jobs.likely_s - jobs.waited_s


ORDERS: dict[str, Order] = {
    AS_IS: lambda jobs: jobs.rank,
    "aged shortest first": aged,
    "shortest first": lambda jobs: jobs.likely_s,
    "smallest area first": smallest_area,
    "expansion factor": expansion,
    "WFP3": wfp3,
    "UNICEF": unicef,
    "F1": f1,
    "heap": heap,
    "earliest deadline": lambda jobs: jobs.deadline_s,
    "largest first": lambda jobs: -jobs.share,
}
