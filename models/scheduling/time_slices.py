"""The length of the turns into which each demander's time is cut, so that waits are short and turns few. Pure.

From a patent on scheduling by GPU virtualisation (claim 6; docs/scheduling.md). With T_i the planned duration of
demander i, t_0 a slice and n the number of demanders:

    k_i = ⌈T_i / t_0⌉                                 turns
    t_i = Σ over rounds u of what is served between turns u − 1 and u of demander i      its wait
    t′  = Σ t_i / n                                   mean wait

Of the candidate slices, the one with the least Σ k_i + t′ is taken. It differs from the patent in three ways. The
patent's formulas of waits are pictures that our copy lacks, so they are inferred from the symbols they explain. A
turn that needs less than a slice ends early here, so waits count what others use, not what they could. A count cannot
be added to seconds, so each turn costs `turn_s` (the time to change the holder); at 1 s a turn, the sum is the
patent's number.

Waits are those behind one supplier, and assume that everything is there at the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy
import numpy.typing as npt

from accounting.errors import ScheduleError
from models.scheduling.checks import Floats, Order, above_0, amounts_of, order_of

Counts = npt.NDArray[numpy.int64]
MOST_TURNS = 1_000_000


class SliceCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one candidate slice costs: turns of all demanders, mean wait, and their sum in seconds."""

    slice_s: float
    turns: int
    mean_wait_s: float
    cost_s: float


def turns_of(durations_s: Sequence[float] | Floats, slice_s: float) -> Counts:
    """Return k_i, the turns of each demander: k_i · t_0 ≥ T_i > (k_i − 1) · t_0, and 0 if there is nothing to do."""
    durations = amounts_of("planned durations", durations_s)
    with numpy.errstate(over="ignore"):
        rounds = numpy.ceil(durations / above_0("the slice in seconds", slice_s))
        if rounds.sum() > MOST_TURNS:
            raise ScheduleError(
                f"slices of {slice_s:g} s make {rounds.sum():.3g} turns, more than {MOST_TURNS:,}; "
                f"give longer ones, such as {2 * durations.sum() / MOST_TURNS:.3g} s"
            )
    # A rounded quotient may lie on the other side of a whole number.
    rounds -= (rounds - 1) * slice_s >= durations
    rounds = numpy.maximum(rounds, 0)
    rounds += rounds * slice_s < durations
    return rounds.astype(numpy.int64)


def waits_of(durations_s: Sequence[float] | Floats, order: Sequence[int] | Order, slice_s: float) -> Floats:
    """Return t_i, the wait of each demander over all its rounds (seconds), without listing the rounds.

    Until its last turn, each demander before it has had k_i turns, and each one after it k_i − 1, as far as they
    needed them: Σ min(T_j, k_i · t_0) + Σ min(T_j, (k_i − 1) · t_0). O(n²) time, O(n) memory.
    """
    durations = amounts_of("planned durations", durations_s)
    turns = turns_of(durations, slice_s)
    ranked = order_of(order, len(durations))
    in_order = durations[ranked]
    waits_s = numpy.zeros(len(durations))
    for rank, demander in enumerate(ranked):
        if turns[demander]:
            before = numpy.minimum(in_order[:rank], turns[demander] * slice_s).sum()
            after = numpy.minimum(in_order[rank + 1 :], (turns[demander] - 1) * slice_s).sum()
            waits_s[demander] = before + after
    return waits_s


def cost_of(
    durations_s: Sequence[float] | Floats, order: Sequence[int] | Order, slice_s: float, turn_s: float = 1.0
) -> SliceCost:
    """Return what a slice costs; `turn_s` is what one more turn costs, in seconds of mean wait."""
    turns = int(turns_of(durations_s, slice_s).sum())
    waits_s = waits_of(durations_s, order, slice_s)
    mean_wait_s = float(waits_s.mean()) if len(waits_s) else 0.0
    return SliceCost(
        slice_s=slice_s,
        turns=turns,
        mean_wait_s=mean_wait_s,
        cost_s=turns * above_0("the cost of a turn in seconds", turn_s) + mean_wait_s,
    )


def choose_slice(
    durations_s: Sequence[float] | Floats,
    order: Sequence[int] | Order,
    slices_s: Sequence[float],
    turn_s: float = 1.0,
) -> SliceCost:
    """Return the candidate of least cost; of equal ones the longest slice, which changes holders least often."""
    if not slices_s:
        raise ScheduleError("there is no candidate slice; give at least one length in seconds")
    costs = [cost_of(durations_s, order, slice_s, turn_s) for slice_s in slices_s]
    return min(costs, key=lambda cost: (cost.cost_s, -cost.slice_s))
