"""How well a rollout serves what the site wants: one number for each objective, less is better. Pure.

Each task of an array counts as a job. Energy is what machines draw while idle. The work itself is assumed to draw the
same in any order, and all idle machines to draw alike, so energy is measured by the idle share, like utilisation.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy

from models.planning.problem import Objective
from models.scheduling.room import Floats
from models.simulation.results import bounded_slowdowns


class Starts(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that start: seconds from now, `weight` (how many), their `share` of all machines, how far was looked."""

    waited_s: Floats
    start_s: Floats
    run_s: Floats
    start_by_s: Floats
    weight: Floats
    share: Floats
    until_s: Floats


def at_once(starts: Starts) -> Starts:
    """Return the same tasks as if all started now, or when they arrive."""
    return msgspec.structs.replace(starts, start_s=numpy.maximum(0.0, -starts.waited_s))


def mean_slowdown(starts: Starts) -> float:
    """Return the mean bounded slowdown."""
    stayed_s = starts.waited_s + starts.start_s + starts.run_s
    return _mean(bounded_slowdowns(stayed_s, starts.run_s), starts.weight)


def mean_wait(starts: Starts) -> float:
    """Return the mean wait from submission (seconds)."""
    return _mean(starts.waited_s + starts.start_s, starts.weight)


def idle(starts: Starts) -> float:
    """Return the share of the work that could be done by `until_s` but is not."""
    used_s = numpy.clip(starts.until_s - starts.start_s, 0.0, starts.run_s)
    wanted = float((starts.weight * starts.share * numpy.minimum(starts.run_s, starts.until_s)).sum())
    used = float((starts.weight * starts.share * used_s).sum())
    return 1.0 - used / wanted if wanted else 0.0


def missed(starts: Starts) -> float:
    """Return the share of tasks that Slurm gives up because they could not end by their deadline."""
    return _mean((starts.start_s > starts.start_by_s).astype(numpy.float64), starts.weight)


def _mean(values: Floats, weight: Floats) -> float:
    whole = float(weight.sum())
    return float((values * weight).sum()) / whole if whole else 0.0


OBJECTIVES: dict[Objective, Callable[[Starts], float]] = {
    "slowdown": mean_slowdown,
    "wait": mean_wait,
    "utilisation": idle,
    "deadlines": missed,
    "energy": idle,
}
