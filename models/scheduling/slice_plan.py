"""Which order and which slice are used, and why: the patent's method put together. Pure.

From a patent on scheduling by GPU virtualisation (claims 1 and 9; docs/scheduling.md). The plan is the first order
that the heap gives, with the slice of least turns and mean wait, if they serve all that is planned. If supply does
not meet demand, other orders (heaps of other random orders) with each slice are tried, too. The one with the least
blocking, and among those the one with the least variance of unused slices, is the algorithm that is used.

If no candidate is least in both, blocking counts first; the patent asks for both at once. Remaining ties are decided
by turns and mean wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy

from accounting.errors import ScheduleError
from models.scheduling.checks import Floats, Order
from models.scheduling.heap_order import heap_preorder
from models.scheduling.performance import Performance, measure
from models.scheduling.round_robin import ScheduleRecord, serve, supplier_sequence
from models.scheduling.time_slices import SliceCost, choose_slice, cost_of

# Shares that differ by less are equal: sums in another order are rounded differently.
SAME_SHARE = 1e-9


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to plan with: suppliers, the window, the slices to try, and how many orders to try."""

    suppliers: int
    window_s: float
    slices_s: tuple[float, ...]
    orders: int = 8
    turn_s: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what no plan can be made with."""
        if self.suppliers < 1 or self.orders < 1 or not self.slices_s or not self.window_s > 0:
            raise ScheduleError("give at least one supplier, one order and one slice, and a window above 0 s")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One order and slice, what they cost, and how well their record serves."""

    order: tuple[int, ...]
    cost: SliceCost
    performance: Performance


class SlicePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The candidate to use, its record, the reason in words, and all that were tried, the slice of least cost first."""

    chosen: Candidate
    record: ScheduleRecord
    reason: str
    tried: tuple[Candidate, ...]


def plan(
    volumes: Sequence[float] | Floats,
    durations_s: Sequence[float] | Floats,
    supply: Supply,
    generator: numpy.random.Generator,
) -> SlicePlan:
    """Return the plan for these volumes (any unit) and how long one supplier needs for each (seconds)."""
    orders = [heap_preorder(volumes, generator) for _ in range(supply.orders)]
    sequence = supplier_sequence(supply.suppliers, generator)

    def record_of(order: Sequence[int] | Order, cost: SliceCost) -> ScheduleRecord:
        return serve(durations_s, order, cost.slice_s, sequence, supply.window_s)

    def candidate(order: Order, cost: SliceCost) -> Candidate:
        performance = measure(volumes, durations_s, record_of(order, cost))
        return Candidate(order=tuple(order.tolist()), cost=cost, performance=performance)

    first = candidate(orders[0], choose_slice(durations_s, orders[0], supply.slices_s, supply.turn_s))
    if first.performance.meets_demand:
        reason = (
            "it serves all that is planned; of the candidate slices it has the least turns and mean wait "
            f"({first.cost.turns} turns, {first.cost.mean_wait_s:.0f} s)"
        )
        return SlicePlan(
            chosen=first, record=record_of(first.order, first.cost), reason=reason, tried=(first,)
        )
    others = [
        candidate(order, cost_of(durations_s, order, slice_s, supply.turn_s))
        for order in orders
        for slice_s in supply.slices_s
        if order is not orders[0] or slice_s != first.cost.slice_s
    ]
    tried = (first, *others)
    chosen = best_of(tried)
    # Served once more, since the records of all candidates together may be large.
    record = record_of(chosen.order, chosen.cost)
    return SlicePlan(chosen=chosen, record=record, reason=_reason(chosen, tried), tried=tried)


def best_of(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate of least blocking, then least variance, then least turns and mean wait, then the first."""
    least = min(one.performance.blocking_rate for one in candidates)
    least_blocking = [one for one in candidates if one.performance.blocking_rate <= least + SAME_SHARE]
    return min(least_blocking, key=lambda one: (one.performance.unused_variance, one.cost.cost_s))


def _reason(chosen: Candidate, tried: Sequence[Candidate]) -> str:
    """Say why this one: what it is least in, among how many, and what was given up for it."""
    performance = chosen.performance
    blocking = [one.performance.blocking_rate for one in tried]
    least_variance = min(one.performance.unused_variance for one in tried)
    told = (
        f"the slice of least turns and mean wait would block {blocking[0]:.1%} of the planned volume; of {len(tried)} "
        f"candidates this one blocks least ({performance.blocking_rate:.1%}; the most is {max(blocking):.1%})"
    )
    equals = sum(rate <= performance.blocking_rate + SAME_SHARE for rate in blocking)
    if equals > 1:
        told += f", and of the {equals} that block as little it has the least variance of unused slices"
    told += f"; its variance is {performance.unused_variance:.2f}"
    if performance.unused_variance > least_variance + SAME_SHARE:
        return f"{told}, where one that blocks more has {least_variance:.2f}"
    return f"{told}, the least of all"
