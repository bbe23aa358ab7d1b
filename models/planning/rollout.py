"""When Slurm as it is would start what waits, with an interval: the queue rolled forward in its own order. Pure.

A limited number of starts is simulated; later ones are estimated as in a plan (tail.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy

from models.planning.cells import Cell, cells_of, slurm_order
from models.planning.checks import check
from models.planning.forward import Until
from models.planning.futures import IN_ALL, Future, Outlook, drawn_future, likely_future, look_ahead
from models.planning.problem import Problem
from models.planning.prospects import rest_of
from models.scheduling.room import Floats

HORIZON_S = 7 * 86_400.0
# The most starts of tasks that are simulated in all.
MOST_STARTS = 12_000
LOW, HIGH = 0.1, 0.9


class StartSpan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When a record would start (seconds from now; infinite: beyond the horizon); low to high holds 80 % of draws."""

    start_s: float
    low_s: float
    high_s: float


def expected_starts(problem: Problem, samples: int, seed: int = 1) -> list[StartSpan]:
    """Return when Slurm as it is would start each waiting record (of an array, the first task).

    `start_s` is the start if everything runs as long as is likely. Low and high are the 10 and 90 % quantiles over
    `samples` futures with drawn run times, each with a sample of the forecast in turn; without samples both are
    `start_s`. ModelError as in `check`.
    """
    check(problem)
    cells = cells_of(problem)
    if not cells:
        return [StartSpan(start_s=numpy.inf, low_s=numpy.inf, high_s=numpy.inf)] * len(problem.pending)
    places = places_of(slurm_order(problem.pending))
    comes = max(map(len, problem.coming), default=0)
    tasks = [sum(problem.pending[number].tasks for number in cell.active) + comes for cell in cells]
    untils = [
        Until(until_s=HORIZON_S, most_starts=max(1, most))
        for most in shared_out(tasks, MOST_STARTS // (samples + 1))
    ]
    futures = [likely_future(problem, cells), *drawn_futures(problem, cells, samples, seed)]
    likely, *drawn = (_outlook(cells, places, future, untils) for future in futures)
    low_s, high_s = span_of(likely.first_s, drawn)
    return [
        StartSpan(start_s=start_s, low_s=low, high_s=high)
        for start_s, low, high in zip(likely.first_s.tolist(), low_s.tolist(), high_s.tolist(), strict=True)
    ]


def _outlook(cells: list[Cell], places: Floats, future: Future, untils: list[Until]) -> Outlook:
    """Return what a future brings; starts later than what was simulated are estimated, within the horizon."""
    found = look_ahead(cells, places, future, untils)
    later_s = rest_of(cells, future, found, found, places, None)
    return msgspec.structs.replace(
        found, first_s=numpy.minimum(found.first_s, numpy.where(later_s < HORIZON_S, later_s, numpy.inf))
    )


def shared_out(wanted: Sequence[int], most: int) -> list[int]:
    """Return how much of `most` each gets: what it wants, or as much as any other that gets less than it wants."""
    found, left = [0] * len(wanted), most
    in_order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    for done, at in enumerate(in_order):
        found[at] = min(wanted[at], left // (len(wanted) - done))
        left -= found[at]
    return found


def drawn_futures(problem: Problem, cells: list[Cell], samples: int, seed: int) -> list[Future]:
    """Return futures with drawn run times for intervals, each with a sample of the forecast in turn."""
    draw = numpy.random.default_rng(seed)
    return [drawn_future(problem, cells, number, draw, IN_ALL) for number in range(samples)]


def places_of(order: list[int]) -> Floats:
    """Return the place of each record in an order of all."""
    places: Floats = numpy.empty(len(order))
    places[order] = numpy.arange(len(order))
    return places


def span_of(start_s: Floats, drawn: list[Outlook]) -> tuple[Floats, Floats]:
    """Return the 80 % interval of starts in drawn futures (seconds), widened to contain `start_s`."""
    if not drawn:
        return start_s, start_s
    first_s = numpy.array([outlook.first_s for outlook in drawn])
    low_s = numpy.quantile(first_s, LOW, axis=0, method="lower")
    high_s = numpy.quantile(first_s, HIGH, axis=0, method="higher")
    return numpy.minimum(low_s, start_s), numpy.maximum(high_s, start_s)
