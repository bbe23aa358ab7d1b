"""What may come: run times drawn between likely and upper, and arrivals of a forecast; the queue rolled through them.

A run time is log-normal: `likely_s` is its median, `upper_s` its 95 % quantile, and its limit ends it. No upper bound
is known for running jobs: the limit is taken for one, but at most `most_left` times the likely rest. Decides no
order. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy

from models.planning.cells import Cell, Need, home_of
from models.planning.forward import DEPTH, Course, Entry, Rolled, Until
from models.planning.ledger import of_limits
from models.planning.problem import SHORTEST_S, Coming, Pending, Problem
from models.planning.side_by_side import roll_all
from models.scheduling.room import Amounts, Floats

# Rollouts of long queues see events only this often, as Slurm's backfill does by default (bf_interval), so that a
# plan sees further ahead for the same work.
LONG_TASKS, GRID_S = 1_000, 30.0
# The standard normal's 95 % quantile.
UPPER_DEVIATIONS = 1.6449


class Doubt(NamedTuple):
    """How wrong run times may be.

    `alike` is the share of the variance that is common to all jobs of a user. `most_left` is the largest factor by
    which what is left of a running job may exceed the likely rest. Errors drawn for each job by itself average out
    over a queue; an error in the guess of a user's next job is common to all of them.
    """

    alike: float
    most_left: float


# Each job by itself: how plans compare orders.
BY_ITSELF = Doubt(alike=0.0, most_left=math.e)
# For intervals. What is left of a run spreads about as widely as an exponential, whose 95 % quantile is 4.3 times its
# median, or more widely where some runs are far longer than others (docs/decisions/0048).
IN_ALL = Doubt(alike=0.5, most_left=math.exp(1.9))


class Arrival(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that a forecast expects: when it comes (seconds), and how many of the waiting records are before it."""

    number: int
    cell: int
    need: Need
    run_s: float
    at_s: float
    behind: int


class Future(msgspec.Struct, frozen=True, kw_only=True):
    """One possible future: the run time of each waiting record, the ends of what runs in each cell, and arrivals.

    Events are seen at multiples of `grid_s` (seconds), 0: at once.
    """

    run_s: Floats
    ends_s: tuple[Floats, ...]
    coming: tuple[Coming, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    grid_s: float = 0.0


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """The first start of each waiting record (seconds, infinite: not seen), and the rollout of each cell."""

    first_s: Floats
    rolled: tuple[Rolled, ...]


def likely_future(problem: Problem, cells: Sequence[Cell], number: int = 0) -> Future:
    """Return the future in which everything runs as long as is likely; it has the sample of the forecast in turn."""
    coming = problem.coming[number % len(problem.coming)] if problem.coming else ()
    run_s = numpy.array([max(SHORTEST_S, job.likely_s) for job in problem.pending])
    ends_s = tuple(numpy.array([held.likely_left_s for held in cell.running]) for cell in cells)
    arrivals = arrivals_of(problem, cells, coming)
    return Future(run_s=run_s, ends_s=ends_s, coming=coming, arrivals=arrivals, grid_s=grid_of(problem))


def drawn_future(
    problem: Problem,
    cells: Sequence[Cell],
    number: int,
    draw: numpy.random.Generator,
    doubt: Doubt = BY_ITSELF,
) -> Future:
    """Return a future with drawn run times, and the sample of the forecast in turn."""
    likely = likely_future(problem, cells, number)
    upper_s = numpy.array([job.upper_s for job in problem.pending])
    common = _common(problem, draw) if doubt.alike else {}
    ends_s = []
    for cell, likely_s in zip(cells, likely.ends_s, strict=True):
        limits_s = numpy.array([held.limit_left_s for held in cell.running])
        longest_s = numpy.minimum(limits_s, doubt.most_left * likely_s)
        alike = numpy.array([common.get(held.user, 0.0) for held in cell.running])
        drawn_s = _drawn(likely_s, longest_s, draw, alike, doubt.alike)
        ends_s.append(numpy.minimum(drawn_s, limits_s))
    alike = numpy.array([common.get(job.user, 0.0) for job in problem.pending])
    run_s = _drawn(likely.run_s, upper_s, draw, alike, doubt.alike)
    return msgspec.structs.replace(likely, run_s=run_s, ends_s=tuple(ends_s))


def _common(problem: Problem, draw: numpy.random.Generator) -> dict[int, float]:
    """Return how far off the jobs of each user are together (standard deviations)."""
    users = sorted({job.user for job in problem.pending} | {held.user for held in problem.running})
    return dict(zip(users, draw.standard_normal(len(users)).tolist(), strict=True))


def grid_of(problem: Problem) -> float:
    """Return the grid on which a rollout of a queue sees events (seconds); 0: whenever something happens."""
    return GRID_S if sum(job.tasks for job in problem.pending) > LONG_TASKS else 0.0


def _drawn(
    median_s: Floats, upper_s: Floats, draw: numpy.random.Generator, alike: Floats, share: float
) -> Floats:
    """Return drawn times; `alike` is each job's common error (deviations), `share` its share of the variance."""
    off = math.sqrt(share) * alike + math.sqrt(1 - share) * draw.standard_normal(len(median_s))
    spread = numpy.log(numpy.maximum(upper_s, median_s) / median_s) / UPPER_DEVIATIONS
    drawn: Floats = numpy.maximum(SHORTEST_S, median_s * numpy.exp(spread * off))
    return drawn


def look_ahead(
    cells: Sequence[Cell],
    places: Floats,
    future: Future,
    untils: Sequence[Until],
    first_from_s: Floats | None = None,
) -> Outlook:
    """Return what a future brings if the waiting records have these places (0: first); one of `untils` per cell.

    From its time in `first_from_s` on (seconds; infinite: never), a record comes first.
    """
    courses = []
    for number, (cell, until) in enumerate(zip(cells, untils, strict=True)):
        turns_s = _soon(cell, first_from_s, until)
        coming = _coming(cell, places, [one for one in future.arrivals if one.cell == number])
        courses.append(
            Course(
                cell=cell,
                entries=_entries(cell, places, future, until, turns_s) + coming,
                ends_s=future.ends_s[number],
                until=until,
                first_from_s=turns_s,
                grid_s=future.grid_s,
            )
        )
    rolled = roll_all(courses)
    first_s = [math.inf] * len(places)
    for found in rolled:
        for member, start_s in zip(found.numbers, found.starts_s, strict=True):
            if member < len(first_s) and start_s < first_s[member]:
                first_s[member] = start_s
    return Outlook(first_s=numpy.array(first_s), rolled=tuple(rolled))


def _soon(cell: Cell, first_from_s: Floats | None, until: Until) -> dict[int, float]:
    """Return which records come first and from when on, of those whose moment lies within the rollout."""
    if first_from_s is None:
        return {}
    turns_s = first_from_s[cell.queue.numbers]
    soon = numpy.isfinite(turns_s) & (turns_s <= until.until_s)
    return dict(zip(cell.queue.numbers[soon].tolist(), turns_s[soon].tolist(), strict=True))


def _entries(
    cell: Cell, places: Floats, future: Future, until: Until, turns_s: Mapping[int, float]
) -> list[Entry]:
    """Return the waiting entries of a cell, as far back as a rollout could come to consider."""
    active = cell.queue.numbers
    own, most = places[active], until.most_starts + DEPTH + len(future.arrivals)
    limited = cell.queue.limited
    # Records at a limit are passed over; however many of them there are, the others are still considered.
    if most < numpy.count_nonzero(~limited):
        last = numpy.partition(own[~limited], most)[most]
        active = active[(own <= last) | limited | numpy.isin(active, list(turns_s))]
    return [
        Entry(at, cell.needs[at], place, run_s)
        for at, place, run_s in zip(
            active.tolist(), places[active].tolist(), future.run_s[active].tolist(), strict=True
        )
    ]


def _coming(cell: Cell, places: Floats, arrivals: Sequence[Arrival]) -> list[Entry]:
    """Return the arrivals of a cell, each behind as many waiting records as Slurm's own priorities put before it."""
    if not arrivals:
        return []
    in_order = numpy.sort(places[cell.queue.numbers]).tolist()
    return [
        Entry(
            one.number, one.need, in_order[one.behind - 1] + 0.5 if one.behind else -0.5, one.run_s, one.at_s
        )
        for one in arrivals
    ]


def arrivals_of(problem: Problem, cells: Sequence[Cell], coming: Sequence[Coming]) -> tuple[Arrival, ...]:
    """Return the expected jobs of a forecast that come where something waits and a machine can hold them."""
    waiting = [sorted(_rank(problem.pending[number]) for number in cell.active) for cell in cells]
    homes: dict[tuple[frozenset[int], Amounts], tuple[int, int] | None] = {}
    found = []
    for number, one in enumerate(coming):
        kind = (one.pools, one.demand)
        if kind not in homes:
            home = home_of(cells, one.pools)
            homes[kind] = home if home and _fits(cells[home[0]], home[1], one) else None
        place = homes[kind]
        if place is None:
            continue
        found.append(
            Arrival(
                number=len(problem.pending) + number,
                cell=place[0],
                need=Need(
                    one.demand,
                    1,
                    1,
                    place[1],
                    one.limit_s,
                    tier=one.tier,
                    dues=of_limits(one.dues, cells[place[0]].limits),
                ),
                run_s=max(SHORTEST_S, one.likely_s),
                at_s=one.at_s,
                behind=bisect_left(waiting[place[0]], (-one.tier, -one.priority + 1)),
            )
        )
    return tuple(found)


def _rank(job: Pending) -> tuple[int, int]:
    return -job.tier, -job.priority


def _fits(cell: Cell, group: int, one: Coming) -> bool:
    own = numpy.array([group in each for each in cell.only_for if each is not None] or [True])
    return bool(((cell.capacity >= numpy.array(one.demand)[:, None]).all(axis=0) & own).any())
