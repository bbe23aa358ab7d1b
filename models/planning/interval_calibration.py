"""How far starts lie from where they were foreseen, learned from earlier plans, so that intervals hold. Pure.

A rollout does not know that a later plan moves a job, which jobs come later and go first, or that all its guesses for
one user are off together. The outcomes of earlier plans tell how much that is. Each start that was foreseen and came
has a score, log((start − now + a minute) / (foreseen − now + a minute)); an interval reaches from a low to a high
quantile of the scores of starts that were foreseen as far ahead. The two levels are adapted independently, so that
what was promised holds whatever the site does: adaptive conformal inference (Gibbs, Candès, NeurIPS 2021), which
needs no exchangeability. While few starts are known, most of the rollout's own interval is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy
import numpy.typing as npt

from models.planning.problem import Plan
from models.planning.rollout import LOW, StartSpan
from models.scheduling.room import Floats, Ints

Flags = npt.NDArray[numpy.bool_]

DAY_S = 86_400.0
LOOKED_BACK_S = 28 * DAY_S
# An outcome this old counts half.
HALF_LIFE_S = 14 * DAY_S
# How far ahead a start is foreseen (its lead): below ten minutes, an hour, six hours, and more.
LEADS_S = (600.0, 3600.0, 21_600.0)
# The advisor's own period, and Slurm's, is about a minute: even a job that could start at once is not foreseen more
# closely.
GRAIN_S = 60.0
# Fewer starts than this tell nothing. AS_MUCH starts, each from another plan, weigh as much as what they are blended
# with: those of all leads as much as the rollout's own interval, those of one lead as much as those of all leads.
LEAST_STARTS, AS_MUCH = 5, 10.0
# How much a level moves for one start of its own lead, and which share of that for starts of other leads; the least
# and the largest level.
STEP, BESIDE = 0.02, 0.3
LEAST_LEVEL, MOST_LEVEL = 0.02, 0.25
# No end of an interval is further than a hundred times (or a hundredth) of what is foreseen, nor nearer than a
# quarter of what the rollout says (in logarithms).
MOST_LOG = math.log(100.0)
LEAST_SHARE = 0.25


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """Starts that were foreseen, one row each (unix seconds).

    `told_s` is when the forecast was made, `foreseen_s` the start that it named, `low_s` and `high_s` the interval
    (NaN: none was given), `started_s` the real start (NaN: the job still waits, so its start is censored).
    """

    told_s: Floats
    foreseen_s: Floats
    low_s: Floats
    high_s: Floats
    started_s: Floats


class Reach(NamedTuple):
    """How far an interval reaches to both sides of a foreseen start, as logarithms of at least 0.

    `trust` is the weight of that against the rollout's own interval, 0 to 1.
    """

    low_log: float
    high_log: float
    trust: float


class Scores(NamedTuple):
    """Outcomes of starts, one row each: the score, whether it came (else at least that), its weight, and that aged."""

    log: Floats
    came: Flags
    counts: Floats
    aged: Floats

    def of(self, which: Flags) -> Scores:
        """Return some of the rows."""
        return Scores(self.log[which], self.came[which], self.counts[which], self.aged[which])


# One for each lead, all with the same trust; none: intervals stay as rollouts give them.
Calibration = tuple[Reach, ...]
UNCALIBRATED: Calibration = ()


def learned(outcomes: Outcomes, now_s: float) -> Calibration:
    """Return what earlier plans teach about intervals; rows that make no sense, or lie in the future, are ignored."""
    known = _sound(outcomes, now_s)
    if numpy.isfinite(known.started_s).sum() < LEAST_STARTS:
        return UNCALIBRATED
    leads = leads_of(known.foreseen_s - known.told_s)
    weights = _weights(known.told_s, leads)
    scores = Scores(
        log=scores_of(known, now_s),
        came=numpy.isfinite(known.started_s),
        counts=weights,
        aged=weights * numpy.exp2((known.told_s - now_s) / HALF_LIFE_S),
    )
    levels = _levels(known, leads, weights, now_s)
    return tuple(_reach(scores, leads == lead, levels[lead]) for lead in range(len(LEADS_S) + 1))


def is_settled(calibration: Calibration) -> bool:
    """Return whether what was learned weighs at least as much as the rollout's own interval."""
    return bool(calibration) and calibration[0].trust >= 0.5


def leads_of(ahead_s: Floats) -> Ints:
    """Return the lead of each start, as a position in LEADS_S."""
    found: Ints = numpy.searchsorted(LEADS_S, ahead_s, side="right")
    return found


def scores_of(outcomes: Outcomes, now_s: float) -> Floats:
    """Return how much longer than foreseen each start took so far, as logarithms; below 0: it came sooner."""
    until_s = numpy.where(numpy.isfinite(outcomes.started_s), outcomes.started_s, now_s)
    came_s = numpy.maximum(0.0, until_s - outcomes.told_s)
    ahead_s = numpy.maximum(0.0, outcomes.foreseen_s - outcomes.told_s)
    found: Floats = numpy.clip(
        numpy.log(came_s + GRAIN_S) - numpy.log(ahead_s + GRAIN_S), -MOST_LOG, MOST_LOG
    )
    return found


def _sound(outcomes: Outcomes, now_s: float) -> Outcomes:
    """Return the rows that can be true, in the order of their starts."""
    told_s = outcomes.told_s
    until_s = numpy.where(numpy.isnan(outcomes.started_s), now_s, outcomes.started_s)
    # Slurm reports whole seconds. NaN is never true.
    which = (
        (told_s >= now_s - LOOKED_BACK_S)
        & (told_s <= now_s)
        & (until_s <= now_s)
        & (until_s > told_s - 1)
        & numpy.isfinite(outcomes.foreseen_s)
    ).nonzero()[0]
    which = which[numpy.argsort(until_s[which], kind="stable")]
    return Outcomes(**{name: getattr(outcomes, name)[which] for name in Outcomes.__struct_fields__})


def _weights(told_s: Floats, leads: Ints) -> Floats:
    """Return the weight of each start: those of one plan and lead weigh the root of their number, as they err alike."""
    _, which, counts = numpy.unique(
        numpy.stack([told_s, leads]), axis=1, return_inverse=True, return_counts=True
    )
    found: Floats = 1.0 / numpy.sqrt(counts[which.ravel()])
    return found


def _levels(known: Outcomes, leads: Ints, weights: Floats, now_s: float) -> list[list[float]]:
    """Return, by lead, the shares of starts that intervals are to leave out below and above.

    Each start missed on one side lowers that side's level; each that was not raises it a little. A job that waits
    beyond its interval is missed before it has started.
    """
    levels = [[LOW, LOW] for _ in range(len(LEADS_S) + 1)]
    waits = numpy.isnan(known.started_s)
    late = numpy.where(waits, now_s, known.started_s) > known.high_s
    told = numpy.isfinite(known.low_s) & (~waits | late)
    missed = numpy.stack([known.started_s < numpy.floor(known.low_s), late], axis=1)
    rows = zip(leads[told].tolist(), weights[told].tolist(), missed[told].tolist(), strict=True)
    for lead, weight, misses in rows:
        for other, pair in enumerate(levels):
            step = STEP * weight * (1.0 if other == lead else BESIDE)
            for side, miss in enumerate(misses):
                pair[side] = min(MOST_LEVEL, max(LEAST_LEVEL, pair[side] + step * (LOW - miss)))
    return levels


def _reach(scores: Scores, own: Flags, levels: Sequence[float]) -> Reach:
    """Return the quantiles of a lead: from its `own` starts as far as there are enough, else from all."""
    low, high = _quantiles(scores, levels)
    if (own & scores.came).sum() >= LEAST_STARTS:
        share = _trust(scores.of(own))
        own_low, own_high = _quantiles(scores.of(own), levels)
        low, high = (1 - share) * low + share * own_low, (1 - share) * high + share * own_high
    return Reach(low, high, _trust(scores))


def _trust(scores: Scores) -> float:
    """Return the weight of starts against what they are blended with, 0 to 1."""
    starts = float(scores.counts[scores.came].sum())
    return starts / (starts + AS_MUCH)


def _quantiles(scores: Scores, levels: Sequence[float]) -> tuple[float, float]:
    """Return how far below and above 0 (at least 0) all but these shares of the scores lie (Kaplan, Meier 1958)."""
    order = numpy.argsort(scores.log, kind="stable")
    at_risk = numpy.cumsum(scores.aged[order][::-1])[::-1]
    left = numpy.cumprod(1 - numpy.where(scores.came[order], scores.aged[order] / at_risk, 0.0))
    last = len(order) - 1
    low, high = (
        float(scores.log[order[min(last, int(numpy.searchsorted(-left, -level)))]])
        for level in (1 - levels[0], levels[1])
    )
    return max(0.0, -low), max(0.0, high)


def calibrated(
    calibration: Calibration, start_s: Floats, low_s: Floats, high_s: Floats
) -> tuple[Floats, Floats]:
    """Return intervals (seconds from now), calibrated by the outcomes of earlier ones; the start lies within.

    What is beyond the horizon (infinite) stays there.
    """
    if not calibration or not len(start_s):
        return low_s, high_s
    seen = numpy.isfinite(start_s)
    ahead_s = numpy.where(seen, numpy.maximum(0.0, start_s), 0.0)
    middle = numpy.log(ahead_s + GRAIN_S)
    ends = numpy.where(numpy.isfinite(high_s), numpy.maximum(high_s, ahead_s), ahead_s)
    table = numpy.array(calibration)[leads_of(ahead_s)]
    below = _blended(middle - numpy.log(numpy.clip(low_s, 0.0, ahead_s) + GRAIN_S), table[:, 0], table[:, 2])
    above = _blended(numpy.log(ends + GRAIN_S) - middle, table[:, 1], table[:, 2])
    low = numpy.clip(numpy.exp(middle - below) - GRAIN_S, 0.0, ahead_s)
    high = numpy.maximum(numpy.exp(middle + above) - GRAIN_S, ahead_s)
    return numpy.where(seen, low, low_s), numpy.where(seen & numpy.isfinite(high_s), high, high_s)


def _blended(own: Floats, learned_log: Floats, trust: Floats) -> Floats:
    """Return how far one end reaches (logarithms): the rollout's own and the learned reach, blended within bounds."""
    own = numpy.minimum(own, MOST_LOG)
    found: Floats = numpy.maximum(LEAST_SHARE * own, (1 - trust) * own + trust * learned_log)
    return found


def calibrated_plan(plan: Plan, calibration: Calibration) -> Plan:
    """Return a plan with its intervals calibrated; nothing else of it changes."""
    if not calibration or not plan.jobs:
        return plan
    columns = numpy.array([(job.start_s, job.low_s, job.high_s) for job in plan.jobs]).T
    low_s, high_s = calibrated(calibration, *columns)
    jobs = tuple(
        msgspec.structs.replace(job, low_s=low, high_s=high)
        for job, low, high in zip(plan.jobs, low_s.tolist(), high_s.tolist(), strict=True)
    )
    return msgspec.structs.replace(plan, jobs=jobs)


def calibrated_span(span: StartSpan, calibration: Calibration) -> StartSpan:
    """Return the start of one job with its interval calibrated."""
    low_s, high_s = calibrated(
        calibration, *(numpy.array([end_s]) for end_s in (span.start_s, span.low_s, span.high_s))
    )
    return msgspec.structs.replace(span, low_s=float(low_s[0]), high_s=float(high_s[0]))
