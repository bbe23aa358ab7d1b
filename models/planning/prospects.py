"""What an order would bring: the queue rolled forward through some futures, and its value. Pure.

A rollout of the queue as it is sets how far ahead to look: to the horizon, or until as many tasks have started as the
work for a plan allows. Other orders are looked at as far, and then on until all tasks that had started in that
rollout have started, at most for as long as the bound on delays. Plans are made again and again, so a rollout does
what the next plans would do: a job that is three quarters of that bound behind its start without us comes first from
then on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy

from models.planning.cells import Cell, at_limits
from models.planning.forward import Rolled, Until
from models.planning.futures import Future, Outlook, look_ahead
from models.planning.grounds import Ground, grounds_of, starts_of
from models.planning.objectives import OBJECTIVES, at_once
from models.planning.problem import Bounds, Problem
from models.planning.tail import tail_s
from models.planning.within_bounds import urgent_ones
from models.scheduling.room import Floats, Mask

# A rollout of another order may start this many times as many tasks as that of the queue as it is.
MORE_STARTS = 3
# A job that is behind by this share of the bound on delays comes first.
PATIENCE = 0.75
# So does a job that would have started without us, once it has waited this share of the longest wait there.
RIPE = 0.95
# A job may be delayed by no more than this share of the time before Slurm gives it up: expected starts are means.
DEADLINE_SHARE = 0.5
# A wait of less than this share of the bound on delays, and than this many seconds, is never too long, however short
# all others were.
GRACE, MOST_GRACE_S = 0.5, 2 * 3600.0


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as it would start without us, in each of some futures; `rest_s` has the estimates behind each rollout.

    `places` are Slurm's own. `latest_s` is by when each record has to start, `turns_s` from when on it comes first in
    each future (infinite: never); `urgent` records come first now. Those `at_limits` could not start now.
    """

    problem: Problem
    bounds: Bounds
    cells: tuple[Cell, ...]
    futures: tuple[Future, ...]
    untils: tuple[Until, ...]
    base: tuple[Outlook, ...]
    rest_s: tuple[Floats, ...]
    grounds: tuple[Ground, ...]
    places: Floats
    latest_s: Floats
    turns_s: tuple[Floats, ...]
    urgent: frozenset[int]
    at_limits: Mask

    @property
    def starts(self) -> int:
        """How many tasks start without us in the first future, as far as it is looked at."""
        return sum(len(rolled.numbers) for rolled in self.base[0].rolled)


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """What an order brings in some of the futures.

    `first_s` has the simulated first starts of records, one row per future; infinite: none. `start_s` is the mean of
    them, or of estimates if not all were simulated; infinite beyond the horizon. `sunk` is what the value would be if
    all started now, which no order can change.
    """

    first_s: Floats
    start_s: Floats
    value: float
    sunk: float
    starts: int

    def gain(self, other: Prospect) -> float:
        """Return how much better this is than another of the same futures: a share of what is not sunk there."""
        return (other.value - self.value) / (other.value - other.sunk) if other.value > other.sunk else 0.0


def ahead_of(
    problem: Problem,
    bounds: Bounds,
    cells: Sequence[Cell],
    futures: Sequence[Future],
    places: Floats,
    most_starts: int,
) -> Ahead:
    """Return what happens without us: `places` are Slurm's own, `most_starts` is for all cells of a future together."""
    untils = untils_of(problem, cells, bounds.horizon_s, most_starts)
    base = [look_ahead(cells, places, future, untils) for future in futures]
    rest_s = [
        rest_of(cells, future, outlook, outlook, places, None)
        for future, outlook in zip(futures, base, strict=True)
    ]
    grounds = grounds_of(problem, cells, futures, base)
    start_s = _prospect(bounds, grounds, base, rest_s).start_s
    latest_s, turn_s = due_of(problem, bounds, start_s)
    return Ahead(
        problem=problem,
        bounds=bounds,
        cells=tuple(cells),
        futures=tuple(futures),
        untils=tuple(untils),
        base=tuple(base),
        rest_s=tuple(rest_s),
        grounds=tuple(grounds),
        places=places,
        latest_s=latest_s,
        turns_s=tuple(
            _turns_s(problem, bounds, numpy.minimum(outlook.first_s, own_s))
            for outlook, own_s in zip(base, rest_s, strict=True)
        ),
        urgent=_urgent(problem, bounds, cells, turn_s),
        at_limits=at_limits(cells, len(problem.pending)),
    )


def _urgent(problem: Problem, bounds: Bounds, cells: Sequence[Cell], turn_s: Floats) -> frozenset[int]:
    """Return the records that have waited too long already, or are late by what would be without us."""
    turns_s = turn_s.tolist()
    return frozenset().union(*(urgent_ones(problem.pending, cell.active, bounds, turns_s) for cell in cells))


def _turns_s(problem: Problem, bounds: Bounds, start_s: Floats) -> Floats:
    """Return from when on each record comes first, as later plans would have it; infinite: never."""
    turn_s = due_of(problem, bounds, start_s)[1]
    found: Floats = numpy.where(numpy.isfinite(turn_s), numpy.maximum(0.0, turn_s), math.inf)
    return found


def due_of(problem: Problem, bounds: Bounds, base_s: Floats) -> tuple[Floats, Floats]:
    """Return by when each record has to start, and from when on it comes first (seconds from now).

    A record may start later than without us by no more than the bound on delays. One that would have started without
    us comes first before it has waited as long as the longest wait without us. The start and the longest wait without
    us are the problem's; if it does not know them, `base_s`, the expected starts of the queue as it is, stands in.
    """
    most_delay_s = bounds.most_delay_s
    unmoved_s = numpy.array([job.unmoved_start_s for job in problem.pending])
    waited_s = numpy.array([job.waited_s for job in problem.pending])
    start_s = numpy.where(numpy.isfinite(unmoved_s), unmoved_s, base_s)
    wait_s = (start_s + waited_s)[numpy.isfinite(start_s)]
    grace_s = min(GRACE * most_delay_s, MOST_GRACE_S)
    longest_s = max(problem.longest_wait_s or wait_s.max(initial=0.0), grace_s)
    ripe_s = numpy.maximum(start_s, RIPE * longest_s - waited_s)
    delay_s = _bearable_s(problem, most_delay_s, start_s)
    latest_s: Floats = start_s + delay_s
    turn_s: Floats = numpy.minimum(start_s + PATIENCE * delay_s, ripe_s)
    return latest_s, turn_s


def _bearable_s(problem: Problem, most_delay_s: float, start_s: Floats) -> Floats:
    """Return by how much each record may be delayed (seconds) without Slurm giving it up for its deadline."""
    start_by_s = numpy.array([job.start_by_s for job in problem.pending])
    found: Floats = numpy.full(len(start_s), most_delay_s)
    known = numpy.isfinite(start_by_s) & numpy.isfinite(start_s)
    left_s = numpy.maximum(0.0, start_by_s[known] - start_s[known])
    found[known] = numpy.minimum(most_delay_s, DEADLINE_SHARE * left_s)
    return found


def rest_of(
    cells: Sequence[Cell],
    future: Future,
    outlook: Outlook,
    base: Outlook,
    places: Floats,
    turns_s: Floats | None,
) -> Floats:
    """Return when records that had not started by the end of the `base` rollout would, by the estimate of tail.py.

    One value per record; infinite for those whose tasks had all started.
    """
    found: Floats = numpy.full(len(places), math.inf)
    for cell, rolled, seen in zip(cells, outlook.rolled, base.rolled, strict=True):
        numbers, starts_s = numpy.array(rolled.numbers, dtype=numpy.int64), numpy.array(rolled.starts_s)
        began = numbers[(starts_s <= seen.until_s) & (numbers < len(places))]
        active = cell.queue.numbers
        left = cell.queue.tasks - numpy.bincount(began, minlength=len(places))[active]
        waits = left > 0
        waiting = active[waits]
        work_s = left[waits] * cell.queue.share[waits] * future.run_s[waiting]
        found[waiting] = tail_s(
            work_s, places[waiting], None if turns_s is None else turns_s[waiting], seen.until_s
        )
    return found


def untils_of(problem: Problem, cells: Sequence[Cell], horizon_s: float, most_starts: int) -> list[Until]:
    """Return how far each cell is looked at if there may be this many starts in all."""
    waiting = [sum(problem.pending[number].tasks for number in cell.active) for cell in cells]
    return [
        Until(until_s=horizon_s, most_starts=max(1, most_starts * tasks // max(1, sum(waiting))))
        for tasks in waiting
    ]


def base_prospect(ahead: Ahead, futures: int) -> Prospect:
    """Return what the queue as it is brings in the first futures."""
    return _prospect(ahead.bounds, ahead.grounds, ahead.base[:futures], ahead.rest_s[:futures])


def value_of(ahead: Ahead, places: Floats) -> Prospect:
    """Return what an order brings in the first future, looked at only as far as its value is judged."""
    untils = [
        Until(until_s=rolled.until_s, most_starts=MORE_STARTS * until.most_starts)
        for rolled, until in zip(ahead.base[0].rolled, ahead.untils, strict=True)
    ]
    return _rolled(ahead, places, [untils], ahead.urgent, {})


def prospect_of(
    ahead: Ahead, places: Floats, urgent: Collection[int], sooner_s: Mapping[int, float]
) -> Prospect:
    """Return what an order brings in all futures; `places` has the place of each record (less is first).

    It looks on until all that starts without us has started. `urgent` records come first now; others do as their
    turns come, some of them by `sooner_s` seconds sooner.
    """
    untils = [[_until(ahead, at, rolled) for at, rolled in enumerate(base.rolled)] for base in ahead.base]
    return _rolled(ahead, places, untils, urgent, sooner_s)


def _rolled(
    ahead: Ahead,
    places: Floats,
    untils: Sequence[Sequence[Until]],
    urgent: Collection[int],
    sooner_s: Mapping[int, float],
) -> Prospect:
    """Return what an order brings in the first futures: one for each list in `untils`, which has an entry per cell."""
    outlooks, rests_s = [], []
    for number, until in enumerate(untils):
        future, base = ahead.futures[number], ahead.base[number]
        turns_s = ahead.turns_s[number].copy()
        turns_s[list(urgent)] = 0.0
        for late, step_s in sooner_s.items():
            turns_s[late] = max(0.0, turns_s[late] - step_s)
        outlook = look_ahead(ahead.cells, places, future, until, turns_s)
        outlooks.append(outlook)
        rests_s.append(rest_of(ahead.cells, future, outlook, base, places, turns_s))
    return _prospect(ahead.bounds, ahead.grounds, outlooks, rests_s)


def _until(ahead: Ahead, cell: int, rolled: Rolled) -> Until:
    records = len(ahead.problem.pending)
    return Until(
        until_s=rolled.until_s + ahead.bounds.most_delay_s,
        enough_s=rolled.until_s,
        must=frozenset(number for number in rolled.numbers if number < records),
        most_starts=MORE_STARTS * ahead.untils[cell].most_starts,
    )


def _prospect(
    bounds: Bounds, grounds: Sequence[Ground], outlooks: Sequence[Outlook], rests_s: Sequence[Floats]
) -> Prospect:
    measure = OBJECTIVES[bounds.objective]
    starts = [
        starts_of(ground, outlook, rest_s, bounds.horizon_s)
        for ground, outlook, rest_s in zip(grounds, outlooks, rests_s, strict=False)
    ]
    values = [measure(each) for each in starts]
    sunk = [measure(at_once(each)) for each in starts]
    first_s = numpy.array([outlook.first_s for outlook in outlooks])
    later_s = numpy.array(rests_s)
    start_s = numpy.minimum(first_s, numpy.where(later_s <= bounds.horizon_s, later_s, math.inf))
    return Prospect(
        first_s=first_s,
        start_s=start_s.mean(axis=0),
        value=sum(values) / len(values),
        sunk=sum(sunk) / len(sunk),
        starts=sum(len(rolled.numbers) for outlook in outlooks for rolled in outlook.rolled),
    )
