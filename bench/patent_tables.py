"""The tables of `python -m bench.patent_waits` that need only the plans: maps, candidates, choices. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy

from bench.patent_loads import DAY_S, Day
from models.scheduling.checks import Floats
from models.scheduling.slice_plan import SAME_SHARE, Candidate, SlicePlan

SERVES_ALL = "it serves all that is planned, with the least turns and mean wait"
LEAST_BLOCKING = "it blocks less than any other candidate"
LEAST_VARIANCE = "none blocks less; of those that block as little it has the least variance"
REASONS = (SERVES_ALL, LEAST_BLOCKING, LEAST_VARIANCE)
SLICES_S = (60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A planned day: durations planned from the days before, and the real ones on a single supplier."""

    day: Day
    planned_s: Floats
    by_volume_s: Floats
    own_mean_s: Floats
    real_s: Floats
    plan: SlicePlan


def map_rows(days: list[Planned]) -> list[dict[str, object]]:
    """Return the errors of planned durations: by the map, by a mean per GPU requested, by each consumer's own mean."""
    real_s = numpy.concatenate([planned.real_s for planned in days])
    ways = {
        "map of volumes to durations": numpy.concatenate([planned.planned_s for planned in days]),
        "mean duration × volume": numpy.concatenate([planned.by_volume_s for planned in days]),
        "consumer's own mean, no volume": numpy.concatenate([planned.own_mean_s for planned in days]),
    }
    return [
        {
            "way": name,
            "days": len(days),
            "durations": len(real_s),
            "WMAPE": round(float(numpy.abs(planned_s - real_s).sum() / real_s.sum()), 3),
            "planned / real, all": round(float(planned_s.sum() / real_s.sum()), 2),
        }
        for name, planned_s in ways.items()
    ]


def candidate_rows(days: list[Planned]) -> list[dict[str, object]]:
    """Return a row per slice over the days with several candidates, for all heaps together."""
    short = [planned.plan for planned in days if len(planned.plan.tried) > 1]
    rows: list[dict[str, object]] = []
    for slice_s in SLICES_S:
        tried = [one for each in short for one in each.tried if one.cost.slice_s == slice_s]
        if not tried:
            continue
        blocking = numpy.array([one.performance.blocking_rate for one in tried])
        rows.append(
            {
                "slice (s)": int(slice_s),
                "candidates": len(tried),
                "blocking %": round(100 * blocking.mean(), 2),
                "least %": round(100 * blocking.min(), 2),
                "most %": round(100 * blocking.max(), 2),
                "variance": round(float(numpy.mean([one.performance.unused_variance for one in tried])), 3),
                "turns + mean wait (s)": round(float(numpy.mean([one.cost.cost_s for one in tried]))),
                "days of least sum": sum(each.tried[0].cost.slice_s == slice_s for each in short),
                "days chosen": sum(each.chosen.cost.slice_s == slice_s for each in short),
            }
        )
    return rows


def each_rows(days: list[Planned]) -> list[dict[str, object]]:
    """Return a row for each candidate of each day."""
    return [
        {
            "day": planned.day.name,
            "order": " ".join(planned.day.consumers[demander] for demander in one.order),
            "slice (s)": int(one.cost.slice_s),
            "blocking %": round(100 * one.performance.blocking_rate, 3),
            "variance": round(one.performance.unused_variance, 3),
            "turns": one.cost.turns,
            "mean wait (s)": round(one.cost.mean_wait_s),
            "chosen": "yes" if one is planned.plan.chosen else "",
        }
        for planned in days
        for one in planned.plan.tried
    ]


def choice_rows(days: list[Planned]) -> list[dict[str, object]]:
    """Return a row per day: the slice of least sum, the slice that is used, and why."""
    return [
        {
            "day": planned.day.name,
            "planned / supply": round(float(planned.planned_s.sum()) / DAY_S, 2),
            "least sum (s)": int(planned.plan.tried[0].cost.slice_s),
            "used (s)": int(planned.plan.chosen.cost.slice_s),
            "why": planned.plan.reason,
        }
        for planned in days
    ]


def reason_rows(days: list[Planned]) -> list[dict[str, object]]:
    """Return a row per reason: on how many days it decided, for which slices, and what that gained."""
    rows: list[dict[str, object]] = []
    for why in REASONS:
        plans = [planned.plan for planned in days if reason_of(planned.plan) == why]
        if not plans:
            continue
        slices = Counter(int(one.chosen.cost.slice_s) for one in plans)
        first, used = (
            [each.performance for each in one] for one in zip(*map(_first_and_used, plans), strict=True)
        )
        rows.append(
            {
                "why it is used": why,
                "days": len(plans),
                "slices (s)": ", ".join(f"{slice_s:,} on {slices[slice_s]}" for slice_s in sorted(slices)),
                "blocking %": _mean_percent(one.blocking_rate for one in used),
                "of least sum %": _mean_percent(one.blocking_rate for one in first),
                "variance": round(float(numpy.mean([one.unused_variance for one in used])), 3),
                "of least sum": round(float(numpy.mean([one.unused_variance for one in first])), 3),
            }
        )
    return rows


def reason_of(plan: SlicePlan) -> str:
    """Return the one of the REASONS that decided."""
    if len(plan.tried) == 1:
        return SERVES_ALL
    least = plan.chosen.performance.blocking_rate + SAME_SHARE
    equals = sum(one.performance.blocking_rate <= least for one in plan.tried)
    return LEAST_VARIANCE if equals > 1 else LEAST_BLOCKING


def _first_and_used(plan: SlicePlan) -> tuple[Candidate, Candidate]:
    return plan.tried[0], plan.chosen


def _mean_percent(shares: Iterable[float]) -> float:
    return round(100 * float(numpy.mean(list(shares))), 2)
