"""The plan: of several orders, each as far as the bounds allow it, the one that serves the site's objective best. Pure.

For slowdown and wait there is one standing order, taken unless it costs something. For the other objectives the best
order is taken; if none is better, nothing is changed. All orders are first rolled through one future, then the best
of them through all futures, with jobs that would be delayed too much put first. The work is bounded by a count of
simulated starts, never by a clock, so the same problem, bounds and seed give the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy

from models.planning.candidates import Candidate, glimpse, settle
from models.planning.cells import Cell, cells_of, slurm_order
from models.planning.checks import check, nothing_to_plan
from models.planning.futures import drawn_future, likely_future
from models.planning.orders import AS_IS, ORDERS, Columns, columns_of
from models.planning.problem import Bounds, Objective, Pending, Plan, Problem
from models.planning.prospects import Ahead, ahead_of, base_prospect
from models.planning.rollout import places_of
from models.planning.telling import told, unchanged
from models.scheduling.room import Floats

# The most starts of tasks that are simulated for a plan; one rollout of the queue as it is gets one SHARE_OF_ONE-th.
MOST_STARTS = 18_000
SHARE_OF_ONE = 27
FOR_INTERVALS = 2_000
IN_FORCE = "as planned before"
# Gains up to this come from rounding.
ALIKE = 1e-9
# The order that stands unless it costs something, and next to which no other is tried: a rollout does not know which
# jobs arrive before the next plan, nor to which job Slurm's own order gives the room that is free by then
# (docs/decisions/0038).
STANDING: dict[Objective, str] = {"slowdown": "aged shortest first", "wait": "aged shortest first"}
# What is tried first if not all orders can be tried.
FAVOURITES: dict[Objective, str] = {"utilisation": "largest first", "deadlines": "earliest deadline"}


class Race(msgspec.Struct, kw_only=True):
    """What has been tried, what was left out to save work, and the work so far (starts simulated)."""

    tried: list[Candidate]
    left_out: list[str]
    starts: int


def plan(problem: Problem, bounds: Bounds, seed: int = 1) -> Plan:
    """Return the best plan; ModelError if the problem makes no sense (checks.py)."""
    check(problem)
    cells = cells_of(problem)
    nothing = nothing_to_plan(problem, cells)
    if nothing:
        return unchanged(problem, nothing)
    rank = places_of(slurm_order(problem.pending))
    ahead = _ahead(problem, bounds, cells, rank, seed)
    as_is = Candidate(
        order=AS_IS,
        factors={number: 0 for cell in cells for number in cell.active},
        places=rank,
        prospect=base_prospect(ahead, len(ahead.futures)),
    )
    race = Race(tried=[as_is], left_out=[], starts=ahead.starts * len(ahead.futures))
    columns = columns_of(problem, rank, seed)
    wishes = _wishes(problem.pending, columns, bounds.objective)
    glimpses = _glimpse_all(ahead, wishes, race)
    best = _settle_best(ahead, wishes, glimpses, race)
    return told(ahead, as_is, best, race.tried, race.left_out, MOST_STARTS - race.starts, seed)


def _ahead(problem: Problem, bounds: Bounds, cells: Sequence[Cell], rank: Floats, seed: int) -> Ahead:
    """Return the queue as it is in the likely future and in others with drawn run times, each with a forecast sample.

    Expected starts are means over all of them: a single future has jobs in it that start early by luck.
    """
    draw = numpy.random.default_rng(seed)
    futures = [likely_future(problem, cells)]
    futures += [drawn_future(problem, cells, number, draw) for number in range(1, bounds.samples)]
    return ahead_of(problem, bounds, cells, futures, rank, MOST_STARTS // SHARE_OF_ONE)


def _wishes(pending: Sequence[Pending], columns: Columns, objective: Objective) -> dict[str, Floats]:
    """Return the wished keys of each order to try: first those in force, then those of the favourite."""
    wishes: dict[str, Floats] = {}
    if objective in STANDING:
        names = [STANDING[objective]]
    else:
        names = sorted(ORDERS, key=lambda name: name != FAVOURITES.get(objective))
        if any(job.factor for job in pending):
            wishes[IN_FORCE] = -numpy.array([float(job.priority + job.factor) for job in pending])
    for name in names:
        keys = ORDERS[name](columns)
        # Keys that are all equal mean Slurm's own order.
        if name != AS_IS and (keys != keys[0]).any():
            wishes[name] = keys
    return wishes


def _glimpse_all(ahead: Ahead, wishes: dict[str, Floats], race: Race) -> list[Candidate]:
    """Roll each order through one future, for at most half of the work; note those that are left out."""
    found = []
    for name, wished in wishes.items():
        if race.starts > MOST_STARTS // 2:
            race.left_out.append(name)
            continue
        one = glimpse(ahead, name, wished)
        race.starts += one.prospect.starts
        found.append(one)
    return found


def _settle_best(
    ahead: Ahead, wishes: dict[str, Floats], glimpses: Sequence[Candidate], race: Race
) -> Candidate:
    """Return the best allowed order of the promising ones; if none gains, the standing order or the queue as it is.

    Without a standing order, the order in force stays if it is any better than the queue as it is: going back would
    be a change for the worse.
    """
    as_is, bounds = race.tried[0], ahead.bounds
    stands = STANDING.get(bounds.objective, IN_FORCE)
    least = ALIKE if stands == IN_FORCE else -bounds.least_gain
    ranked = sorted(glimpses, key=lambda one: (one.order != stands, one.prospect.value))
    base = base_prospect(ahead, 1)
    best = as_is
    for one in ranked:
        promising = one.prospect.gain(base) > bounds.least_gain or one.order == stands
        if not promising or race.starts > MOST_STARTS - FOR_INTERVALS:
            race.tried.append(one)
            continue
        settled, starts = settle(ahead, one, wishes[one.order], 2 * (MOST_STARTS - race.starts) // 3)
        race.starts += starts
        race.tried.append(settled)
        needed = least if one.order == stands else bounds.least_gain
        moves = any(settled.factors.values())
        if moves and not settled.refused and settled.prospect.gain(best.prospect) > needed:
            best = settled
    return best
