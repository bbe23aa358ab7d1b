"""The whole of a prediction, in one place: what each estimator adds, and in which order.

    history  → the most that any comparable job of the family used
    growth   → times what the quantile model expects the next one to exceed that by, never below it
    margin   → plus the site's margin, wider while few jobs have been seen
    evidence → nothing at all, where fewer jobs were seen than the site wants

Each estimator has the same shape: `Sight -> Estimate | None`. None is an answer: the request stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from accounting.request import JobRequest
from models.evidence import Evidence, Learned
from models.features import features
from models.history import Habit

# Margin shrinks as jobs / n: five jobs widen it by 10 %, fifty by 1 %.
SMALL_SAMPLE_MARGIN = 0.5

GrowthModel = Callable[[Sequence[float]], float]


class Sight(msgspec.Struct, frozen=True):
    """All that an estimator may see: the request, its family's comparable jobs, and its cohorts' habits."""

    request: JobRequest
    evidence: Evidence
    habits: tuple[Habit, ...]


class Estimate(msgspec.Struct, frozen=True):
    """What a job will need: `likely` (median of the past) and `upper`, which almost no job like it should exceed.

    Units are those of the dimension: MiB, cores per task, seconds, GPUs. `jobs` is how many past jobs it rests on.
    """

    likely: float
    upper: float
    jobs: int


Estimator = Callable[[Sight], Estimate | None]


def demand_chain(dimension: Learned, growth: GrowthModel | None, margin: float, enough: int) -> Estimator:
    """Return the chain for memory, cores or wall time; without a growth model history alone speaks."""
    estimator = from_history(dimension)
    if growth is not None:
        estimator = with_growth(estimator, dimension, growth)
    return with_evidence(with_margin(estimator, margin), enough)


def gpu_chain(enough: int) -> Estimator:
    """Return the chain for GPUs: the most that were ever busy, once enough metered jobs say so."""
    return with_evidence(from_busy_gpus, enough)


def from_history(dimension: Learned) -> Estimator:
    """Estimate by the family's maximum; jobs that were killed for memory count for more than they show."""

    def estimate(sight: Sight) -> Estimate | None:
        past = sight.evidence.use(dimension)
        if past is None:
            return None
        return Estimate(sorted(past.needed)[past.count // 2], max(past.needed), past.complete)

    return estimate


def from_busy_gpus(sight: Sight) -> Estimate | None:
    """Estimate by the most GPUs that a metered job of the family kept busy; one that used none still gets one."""
    metered = [job for job in sight.evidence.jobs if job.gpus is not None]
    # What was cut short shows a lower bound: it may raise the estimate, but is no evidence that more is not needed.
    busy = sorted(job.gpus or 0 for job in metered)
    if not busy:
        return None
    return Estimate(busy[len(busy) // 2], max(1, *busy), sum(job.complete for job in metered))


def with_growth(inner: Estimator, dimension: Learned, growth: GrowthModel) -> Estimator:
    """Raise the upper bound by the quantile model's logarithm of next use over the family's maximum."""

    def estimate(sight: Sight) -> Estimate | None:
        base = inner(sight)
        if base is None:
            return None
        log_growth = growth(features(sight.request, sight.evidence, sight.habits, dimension))
        # What has been used once can be used again: the model may only add.
        return msgspec.structs.replace(base, upper=base.upper * math.exp(max(0.0, log_growth)))

    return estimate


def with_margin(inner: Estimator, margin: float) -> Estimator:
    """Widen the upper bound by `margin` (0.15 is 15 %), and by more while few jobs have been seen."""

    def estimate(sight: Sight) -> Estimate | None:
        base = inner(sight)
        if base is None:
            return None
        widened = 1 + margin + SMALL_SAMPLE_MARGIN / max(1, base.jobs)
        return msgspec.structs.replace(base, upper=base.upper * widened)

    return estimate


def with_evidence(inner: Estimator, enough: int) -> Estimator:
    """Say nothing on fewer than `enough` jobs."""

    def estimate(sight: Sight) -> Estimate | None:
        base = inner(sight)
        return base if base is not None and base.jobs >= enough else None

    return estimate
