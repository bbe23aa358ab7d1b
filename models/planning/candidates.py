"""From a wished order to one that may be used: its factors, the order that they really make, and what it brings. Pure.

No more jobs are moved than may change at once; the rest stay in Slurm's own order. Jobs that would start too late are
put first, and the order is tried again, for as long as the work for a plan allows; if jobs are still too late then,
the order is refused.
"""

from __future__ import annotations

import math
from itertools import count

import msgspec
import numpy

from accounting.units import counted
from models.planning.factors import factors_of, order_of
from models.planning.problem import Pending
from models.planning.prospects import Ahead, Prospect, prospect_of, value_of
from models.planning.within_bounds import arranged
from models.scheduling.room import Floats

# A job that may not be moved starts no later than without us, apart from rounding.
KEPT_SLACK_S = 1.0
# The least step (seconds) by which the turn of a late job is brought forward, and how often that is repeated before
# fewer jobs are moved.
LEAST_STEP_S, TURNS_OF_ALL = 600.0, 5
NOT_CLOSELY = "not looked at closely"


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An order as it would come out: the factor of each record, what it brings, and why it may not be used, or ''."""

    order: str
    factors: dict[int, int]
    places: Floats
    prospect: Prospect
    refused: str = ""


class Arranged(msgspec.Struct, frozen=True, kw_only=True):
    """An order within the bounds and the factors that make it; `refused` names the bound that they break, or ''."""

    factors: dict[int, int]
    places: Floats
    refused: str = ""


def glimpse(ahead: Ahead, name: str, wished: Floats) -> Candidate:
    """Return an order as far as the bounds allow it, rolled through the first future only.

    Neither delays nor factors are checked yet, so the candidate may not be used.
    """
    wished = first_of(ahead, wished, ahead.bounds.most_changes)
    places: Floats = numpy.full(len(wished), math.inf)
    for cell in ahead.cells:
        order = arranged(
            ahead.problem.pending, cell.in_line, wished, ahead.urgent, ahead.bounds.most_inversion
        )
        places[order] = numpy.arange(len(order))
    prospect = value_of(ahead, places)
    return Candidate(order=name, factors={}, places=places, prospect=prospect, refused=NOT_CLOSELY)


def settle(ahead: Ahead, seen: Candidate, wished: Floats, most_starts: int) -> tuple[Candidate, int]:
    """Return an order that keeps the bound on delays, or is refused, and how many starts were simulated for it.

    Delays are means over all futures. `seen` is what `glimpse` returned for this order. In each turn, jobs that would
    start too late come first from an earlier moment on; after some turns, fewer jobs are moved as well. It ends when
    `most_starts` are spent or no job is moved any more.
    """
    urgent, sooner_s = set(ahead.urgent), dict[int, float]()
    spent, moved, step_s = 0, ahead.bounds.most_changes, max(LEAST_STEP_S, ahead.bounds.most_delay_s)
    keys = first_of(ahead, wished, moved)
    for turn in count():
        found = arrange(ahead, keys, urgent)
        if found.refused:
            break
        prospect = prospect_of(ahead, found.places, urgent, sooner_s)
        spent += prospect.starts
        late = too_late(ahead, prospect)
        if not late or spent >= most_starts or not moved:
            return _candidate(seen.order, found, prospect, _told(ahead, late) if late else ""), spent
        urgent |= _before_kept(ahead, late)
        for number in late:
            sooner_s[number] = sooner_s.get(number, 0.0) + step_s
        if turn >= TURNS_OF_ALL:
            moved = min(moved, len(keys)) // 2
            keys = first_of(ahead, wished, moved)
    return msgspec.structs.replace(seen, refused=found.refused), spent


def _candidate(name: str, found: Arranged, prospect: Prospect, refused: str) -> Candidate:
    return Candidate(
        order=name, factors=found.factors, places=found.places, prospect=prospect, refused=refused
    )


def arrange(ahead: Ahead, wished: Floats, urgent: set[int]) -> Arranged:
    """Return what bounds and factors leave of the wished keys."""
    pending, bounds = ahead.problem.pending, ahead.bounds
    places: Floats = numpy.full(len(pending), math.inf)
    factors: dict[int, int] = {}
    refused = ""
    for cell in ahead.cells:
        members = list(cell.in_line)
        order = arranged(pending, members, wished, urgent, bounds.most_inversion)
        factors |= factors_of(pending, order, bounds.most_factor)
        result = order_of(pending, members, factors)
        places[result] = numpy.arange(len(members))
        if result == order:
            continue
        # Factors that were cut to the bound make another order, which has to differ from Slurm's own and keep the
        # bounds, too.
        if result == members or arranged(pending, members, places, urgent, bounds.most_inversion) != result:
            refused = _out_of_reach(order, factors, bounds.most_factor)
    changes = sum(factor != pending[number].factor for number, factor in factors.items())
    if not refused and changes > bounds.most_changes:
        refused = f"it would change {changes} jobs at once"
    return Arranged(factors=factors, places=places, refused=refused)


def _out_of_reach(order: list[int], factors: dict[int, int], most_factor: int) -> str:
    if any(abs(factors[number]) >= most_factor for number in order):
        return f"it would need SiteFactors beyond ±{most_factor}"
    return (
        "it would need priorities that Slurm does not have: jobs that keep their place are near its lowest "
        "priority"
    )


def first_of(ahead: Ahead, wished: Floats, most: int) -> Floats:
    """Keep the wished keys of only the first `most` records; the rest stay in Slurm's order of places.

    Records that a limit keeps from starting now are kept last.
    """
    keys: Floats = numpy.full(len(wished), math.inf)
    order = numpy.lexsort((ahead.places, wished, ahead.at_limits))[:most]
    keys[order] = wished[order]
    return keys


def too_late(ahead: Ahead, prospect: Prospect) -> list[int]:
    """Return the records that start later than they may, in the mean of the futures.

    A record that is as late in Slurm's own order may stay so.
    """
    base_s = numpy.mean([outlook.first_s for outlook in ahead.base[: len(prospect.first_s)]], axis=0)
    kept = numpy.array([bool(job.kept) for job in ahead.problem.pending])
    allowed_s = numpy.where(kept, base_s + KEPT_SLACK_S, numpy.maximum(base_s, ahead.latest_s))
    late = numpy.isfinite(base_s) & (prospect.start_s > allowed_s)
    found: list[int] = late.nonzero()[0].tolist()
    return found


def _before_kept(ahead: Ahead, late: list[int]) -> set[int]:
    """Return the late records that may not be moved and all before them; these then stay in Slurm's order."""
    found: set[int] = set()
    fixed = {number for number in late if ahead.problem.pending[number].kept}
    for cell in ahead.cells:
        last = max((at for at, number in enumerate(cell.active) if number in fixed), default=-1)
        found |= set(cell.active[: last + 1])
    return found


def _told(ahead: Ahead, late: list[int]) -> str:
    pending: tuple[Pending, ...] = ahead.problem.pending
    fixed = sum(bool(pending[number].kept) for number in late)
    if fixed:
        return f"it would delay {counted(fixed, 'job')} whose place the advisor may not change"
    return (
        f"it would start {counted(len(late), 'job')} later than the site's bound and the longest wait allow"
    )
