"""What all orders of a queue share in one future, and the starts of an outlook on it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy

from models.planning.cells import Cell
from models.planning.futures import Future, Outlook
from models.planning.objectives import Starts
from models.planning.problem import SHORTEST_S, Problem
from models.scheduling.room import Floats


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What all orders share in one future: one value for each record, followed by one for each job to come.

    `tasks` is how many there are, `waited_s` how long they have waited, `run_s` how long they likely run,
    `start_by_s` when Slurm gives them up, `share` their share of all machines, and `until_s` until when each is
    looked at (-1: it does not count). `run_s` is the likely run time even in futures with drawn ones: the slowdown of
    a job that has waited for days and is drawn to run for seconds would outweigh all others (0038).
    """

    tasks: Floats
    waited_s: Floats
    run_s: Floats
    start_by_s: Floats
    share: Floats
    until_s: Floats


def starts_of(ground: Ground, outlook: Outlook, rest_s: Floats, horizon_s: float) -> Starts:
    """Return the starts of an outlook on a future: simulated as far as the base rollout went, then estimated.

    The base rollout is that of the queue as it is. A task that does not start within the horizon counts as starting
    at the horizon's end. A job of the forecast counts from its arrival on.
    """
    until_s = ground.until_s
    rows = numpy.array([number for rolled in outlook.rolled for number in rolled.numbers], dtype=numpy.int64)
    start_s = numpy.array(
        [at_s for rolled in outlook.rolled for at_s in rolled.starts_s], dtype=numpy.float64
    )
    seen = start_s <= until_s[rows]
    rows, start_s = rows[seen], start_s[seen]
    left = ground.tasks - numpy.bincount(rows, minlength=len(ground.tasks))
    rest = ((left > 0) & (until_s >= 0)).nonzero()[0]
    later_s = until_s.copy()
    known = numpy.isfinite(rest_s).nonzero()[0]
    later_s[known] = rest_s[known]
    later_s = numpy.clip(later_s, until_s, numpy.maximum(until_s, horizon_s))
    every = numpy.concatenate([rows, rest])
    return Starts(
        waited_s=ground.waited_s[every],
        start_s=numpy.concatenate([start_s, later_s[rest]]),
        run_s=ground.run_s[every],
        start_by_s=ground.start_by_s[every],
        weight=numpy.concatenate([numpy.ones(len(rows)), left[rest]]),
        share=ground.share[every],
        until_s=until_s[every],
    )


def grounds_of(
    problem: Problem, cells: Sequence[Cell], futures: Sequence[Future], base: Sequence[Outlook]
) -> list[Ground]:
    """Return what is alike in each future; `base` has what starts in it if nothing is moved."""
    pending = problem.pending
    tasks = numpy.array([float(job.tasks) for job in pending])
    waited_s = numpy.array([job.waited_s for job in pending])
    start_by_s = numpy.array([job.start_by_s for job in pending])
    share = numpy.array(problem.shares())
    run_s = numpy.array([max(SHORTEST_S, job.likely_s) for job in pending])
    found = []
    for future, outlook in zip(futures, base, strict=True):
        coming = future.coming
        alone = numpy.ones(len(coming))
        found.append(
            Ground(
                tasks=numpy.concatenate([tasks, alone]),
                waited_s=numpy.concatenate([waited_s, [-one.at_s for one in coming]]),
                run_s=numpy.concatenate([run_s, [one.likely_s for one in coming]]),
                start_by_s=numpy.concatenate([start_by_s, numpy.inf * alone]),
                share=numpy.concatenate([share, 0.0 * alone]),
                until_s=_untils(len(pending), cells, future, outlook),
            )
        )
    return found


def _untils(jobs: int, cells: Sequence[Cell], future: Future, base: Outlook) -> Floats:
    """Return until when each record, and each job to come, is looked at (seconds); -1: it does not count."""
    until_s: Floats = numpy.full(jobs + len(future.coming), -1.0)
    for cell, seen in zip(cells, base.rolled, strict=True):
        until_s[cell.queue.numbers] = seen.until_s
        for number, one in enumerate(future.coming):
            if one.pools in cell.groups and one.at_s < seen.until_s:
                until_s[jobs + number] = seen.until_s
    return until_s
