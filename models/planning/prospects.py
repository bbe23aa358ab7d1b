"""What an order would bring: the queue rolled forward through some futures, and its value. Pure.

The queue as it is says how far ahead is looked: to the horizon, or until enough has started for the work that a plan
may be. Others are looked at as far, and on until all that started then has started, at most by the delay that the site
bears. Plans are made again and again, so a rollout does what the next ones would: who is half of that delay behind its
start without us comes first from then on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy

from models.planning.cells import Cell
from models.planning.forward import Rolled, Until
from models.planning.futures import Future, Outlook, look_ahead
from models.planning.objectives import OBJECTIVES, Starts
from models.planning.problem import Bounds, Problem
from models.planning.tail import tail_s
from models.scheduling.room import Floats

# How many times as many tasks as may without us may start in a rollout.
MORE_STARTS = 3
# Who is behind by this share of the delay that the site bears comes first.
PATIENCE = 0.5
# So does whose wait is about to be the longest, by the rest of this share: a large job that is first takes its time.
RIPE = 0.9
# Even who waits longest may wait so much longer, as a share: expected starts are no better known than that.
LEAST_SPARE = 0.05
# A wait of less than this share of the delay that the site bears is never too long, however short all others were.
GRACE = 0.5


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as it would start without us, in each of some futures; `rest_s` has the estimates behind each rollout.

    `share` is each task's of all machines, `places` are Slurm's own, `latest_s` is by when each has to start, and from
    `turn_s` on it comes first.
    """

    problem: Problem
    bounds: Bounds
    cells: tuple[Cell, ...]
    futures: tuple[Future, ...]
    untils: tuple[Until, ...]
    base: tuple[Outlook, ...]
    rest_s: tuple[dict[int, float], ...]
    share: Floats
    places: Floats
    latest_s: Floats
    turn_s: Floats

    @property
    def starts(self) -> int:
        """How many tasks start without us in the first future, as far as it is looked at."""
        return sum(len(rolled.numbers) for rolled in self.base[0].rolled)


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """What an order brings in some of the futures: simulated first starts of records, one row a future, infinite: none.

    `start_s` is the mean of them, or of estimates where not all were simulated; infinite beyond the horizon.
    """

    first_s: Floats
    start_s: Floats
    value: float
    starts: int


def ahead_of(
    problem: Problem,
    bounds: Bounds,
    cells: Sequence[Cell],
    futures: Sequence[Future],
    places: Floats,
    most_starts: int,
) -> Ahead:
    """Return what happens without us: `places` are Slurm's own, `most_starts` for all cells of a future together."""
    untils = untils_of(problem, cells, bounds.horizon_s, most_starts)
    total = [max(1, sum(machine.amounts[row] for machine in problem.machines)) for row in range(3)]
    share = [max(a / w for a, w in zip(job.demand, total, strict=True)) for job in problem.pending]
    base = tuple(look_ahead(cells, places, future, untils) for future in futures)
    ahead = Ahead(
        problem=problem,
        bounds=bounds,
        cells=tuple(cells),
        futures=tuple(futures),
        untils=tuple(untils),
        base=base,
        rest_s=tuple(
            rest_of(cells, future, outlook, outlook, places, None)
            for future, outlook in zip(futures, base, strict=True)
        ),
        share=numpy.array(share),
        places=places,
        latest_s=places,
        turn_s=places,
    )
    latest_s, turn_s = due_of(ahead, base_prospect(ahead, len(ahead.futures)).start_s)
    return msgspec.structs.replace(ahead, latest_s=latest_s, turn_s=turn_s)


def due_of(ahead: Ahead, base_s: Floats) -> tuple[Floats, Floats]:
    """Return by when each record has to start, and from when on it comes first (seconds from now).

    Not later than without us by more than the site bears, and nobody is to wait longer than the longest would without
    us. What would be without us is told by the problem, else by what is expected of the queue as it is, `base_s`.
    """
    problem, most_delay_s = ahead.problem, ahead.bounds.most_delay_s
    unmoved_s = numpy.array([job.unmoved_start_s for job in problem.pending])
    waited_s = numpy.array([job.waited_s for job in problem.pending])
    start_s = numpy.where(numpy.isfinite(unmoved_s), unmoved_s, base_s)
    wait_s = (start_s + waited_s)[numpy.isfinite(start_s)]
    longest_s = max(problem.longest_wait_s or wait_s.max(initial=0.0), GRACE * most_delay_s)
    too_long_s = numpy.maximum(start_s, longest_s - waited_s)
    spare_s = numpy.maximum(longest_s - waited_s - start_s, LEAST_SPARE * longest_s)
    latest_s: Floats = start_s + numpy.minimum(most_delay_s, spare_s)
    turn_s: Floats = numpy.minimum(start_s + PATIENCE * most_delay_s, too_long_s - (1 - RIPE) * longest_s)
    return latest_s, turn_s


def rest_of(
    cells: Sequence[Cell],
    future: Future,
    outlook: Outlook,
    base: Outlook,
    places: Floats,
    turns_s: dict[int, float] | None,
) -> dict[int, float]:
    """Return when what did not start until the queue as it is was looked at would, by the estimate of tail.py."""
    found: dict[int, float] = {}
    runs_s, place_of = future.run_s.tolist(), places.tolist()
    for cell, rolled, seen in zip(cells, outlook.rolled, base.rolled, strict=True):
        left = {number: float(cell.needs[number].tasks) for number in cell.active}
        for number, start_s in zip(rolled.numbers, rolled.starts_s, strict=True):
            if number in left and start_s <= seen.until_s:
                left[number] -= 1
        waiting = {number: tasks for number, tasks in left.items() if tasks > 0}
        found |= tail_s(cell, waiting, runs_s, place_of, turns_s, seen.until_s)
    return found


def untils_of(problem: Problem, cells: Sequence[Cell], horizon_s: float, most_starts: int) -> list[Until]:
    """Return how far each cell is looked at, where that many starts may be in all."""
    waiting = [sum(problem.pending[number].tasks for number in cell.active) for cell in cells]
    return [
        Until(until_s=horizon_s, most_starts=max(1, most_starts * tasks // max(1, sum(waiting))))
        for tasks in waiting
    ]


def base_prospect(ahead: Ahead, futures: int) -> Prospect:
    """Return what the queue as it is brings in the first futures."""
    return _prospect(ahead, ahead.base[:futures], ahead.rest_s[:futures])


def prospect_of(
    ahead: Ahead, places: Floats, futures: int, urgent: Collection[int], sooner_s: Mapping[int, float]
) -> Prospect:
    """Return what an order brings in the first futures; `places` has the place of each record (less is first).

    Who is `urgent` comes first now; so others will by and by, some of them so many seconds sooner.
    """
    outlooks, rests_s = [], []
    for number, (future, base) in enumerate(zip(ahead.futures[:futures], ahead.base, strict=False)):
        untils = [_until(ahead, at, rolled) for at, rolled in enumerate(base.rolled)]
        turns_s = turns_of(ahead, number) | dict.fromkeys(urgent, 0.0)
        for late, step_s in sooner_s.items():
            turns_s[late] = max(0.0, turns_s.get(late, math.inf) - step_s)
        outlook = look_ahead(ahead.cells, places, future, untils, turns_s)
        outlooks.append(outlook)
        rests_s.append(rest_of(ahead.cells, future, outlook, base, places, turns_s))
    return _prospect(ahead, outlooks, rests_s)


def turns_of(ahead: Ahead, future: int) -> dict[int, float]:
    """Return from when on each record comes first in a future, as plans to come would have it."""
    start_s = ahead.base[future].first_s.copy()
    for number, rest_s in ahead.rest_s[future].items():
        start_s[number] = min(start_s[number], rest_s)
    turn_s = due_of(ahead, start_s)[1]
    known = numpy.isfinite(turn_s).nonzero()[0]
    return dict(zip(known.tolist(), numpy.maximum(0.0, turn_s[known]).tolist(), strict=True))


def _until(ahead: Ahead, cell: int, rolled: Rolled) -> Until:
    records = len(ahead.problem.pending)
    return Until(
        until_s=rolled.until_s + ahead.bounds.most_delay_s,
        enough_s=rolled.until_s,
        must=frozenset(number for number in rolled.numbers if number < records),
        most_starts=MORE_STARTS * ahead.untils[cell].most_starts,
    )


def _prospect(ahead: Ahead, outlooks: Sequence[Outlook], rests_s: Sequence[dict[int, float]]) -> Prospect:
    measure = OBJECTIVES[ahead.bounds.objective]
    values = [
        measure(starts_of(ahead, number, outlook, rest_s))
        for number, (outlook, rest_s) in enumerate(zip(outlooks, rests_s, strict=True))
    ]
    first_s = numpy.array([outlook.first_s for outlook in outlooks])
    start_s = first_s.copy()
    for row, rest_s in zip(start_s, rests_s, strict=True):
        for number, at_s in rest_s.items():
            row[number] = min(row[number], at_s if at_s <= ahead.bounds.horizon_s else math.inf)
    return Prospect(
        first_s=first_s,
        start_s=start_s.mean(axis=0),
        value=sum(values) / len(values),
        starts=sum(len(rolled.numbers) for outlook in outlooks for rolled in outlook.rolled),
    )


def starts_of(ahead: Ahead, number: int, outlook: Outlook, rest_s: dict[int, float]) -> Starts:
    """Return the starts of an outlook on a future, simulated as far as the queue as it is was, then estimated.

    What does not start within the horizon counts as starting at its end; what a forecast expects counts from its
    arrival on.
    """
    future, base = ahead.futures[number], ahead.base[number]
    pending, coming = ahead.problem.pending, future.coming
    jobs = len(pending)
    left = numpy.array([job.tasks for job in pending] + [1] * len(coming), dtype=numpy.float64)
    until_s = _untils(ahead, future, base)
    rows = numpy.array([number for rolled in outlook.rolled for number in rolled.numbers], dtype=numpy.int64)
    start_s = numpy.array(
        [at_s for rolled in outlook.rolled for at_s in rolled.starts_s], dtype=numpy.float64
    )
    seen = start_s <= until_s[rows]
    rows, start_s = rows[seen], start_s[seen]
    left -= numpy.bincount(rows, minlength=len(left))
    rest = ((left > 0) & (until_s >= 0)).nonzero()[0]
    later_s = until_s.copy()
    later_s[list(rest_s)] = list(rest_s.values())
    later_s = numpy.clip(later_s, until_s, numpy.maximum(until_s, ahead.bounds.horizon_s))
    every = numpy.concatenate([rows, rest])
    waited_s = numpy.array([job.waited_s for job in pending] + [-one.at_s for one in coming])
    run_s = numpy.concatenate([future.run_s, numpy.array([one.likely_s for one in coming])])
    deadline_s = numpy.array([job.deadline_s for job in pending] + [numpy.inf] * len(coming))
    share = numpy.concatenate([ahead.share, numpy.zeros(len(left) - jobs)])
    return Starts(
        waited_s=waited_s[every],
        start_s=numpy.concatenate([start_s, later_s[rest]]),
        run_s=run_s[every],
        deadline_s=deadline_s[every],
        weight=numpy.concatenate([numpy.ones(len(rows)), left[rest]]),
        share=share[every],
        until_s=until_s[every],
    )


def _untils(ahead: Ahead, future: Future, base: Outlook) -> Floats:
    """Return until when each record is looked at (seconds); -1: it does not count."""
    jobs, coming = len(ahead.problem.pending), future.coming
    until_s: Floats = numpy.full(jobs + len(coming), -1.0)
    for cell, seen in zip(ahead.cells, base.rolled, strict=True):
        until_s[list(cell.active)] = seen.until_s
        for number, one in enumerate(coming):
            if one.pools in cell.groups and one.at_s < seen.until_s:
                until_s[jobs + number] = seen.until_s
    return until_s
