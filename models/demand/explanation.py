"""What a prediction rests on, as values: the steps of the chain, the growth model's reasons, past jobs. Pure.

It calls the very estimators that predict (chain.py), so its last step is the prediction. It shows no job of another
user, since a family has only one user. What all users share is the growth model and the site's mean job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from accounting.request import JobRequest
from models.demand.chain import (
    Growth,
    Sight,
    Untold,
    demand_stages,
    from_busy_gpus,
    is_asked_about,
    stakes_of,
    untold_of,
)
from models.demand.feature_words import WORDS
from models.demand.features import FEATURES, features
from models.demand.prediction import Predictor
from models.demand.slowed import slowing_in
from models.demand.tail import MOST_RISE_LOG, next_run_bound, spread_bound, streak_bound, told_by
from models.demand.too_few import enough_to_go_on
from models.past.evidence import PastUse
from models.past.jobs import LEARNED, Learned, PastJob, use_of
from models.past.kills import KILLED_BUMP

TOLD_FEATURES = 5
TOLD_JOBS = 3

StepName = Literal[
    "highest",
    "streak",
    "spread",
    "next run",
    "growth",
    "threads",
    "margin",
    "whole",
    "too few",
    "stopped",
    "shared",
    "slowed",
    "compared",
    "slowdown",
    "busy",
]
# Why the growth model was not asked: there is none, too few later jobs calibrate it, the family is not settled, or
# its user is unlike those that it learned from.
Silence = Literal["", "no model", "not calibrated", "not settled", "apart"]
# From the values of FEATURES to what each adds to the logarithm of growth, followed by the base.
Contributions = Callable[[Sequence[float]], tuple[float, ...]]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The upper bound after one estimator, in the dimension's unit; `counts`: the prediction goes through it.

    Of `streak` and `spread` the lower bound counts; `next run` counts instead if it is above that. The other steps
    that are not always there:

        growth, threads, whole   they lower the bound
        too few                  raised because a job ran out of time with fewer CPUs, all of them busy
        stopped                  raised because a job failed or waited with fewer
        shared                   raised because steps held that much at one time
        slowed                   raised because jobs with fewer CPUs ran longer
        compared                 raised to learn whether they do
        slowdown                 lowered because the site accepts that jobs are slowed

    `upper` is None if there is no bound because nothing was asked for.
    """

    name: StepName
    upper: float | None
    counts: bool


class Contribution(msgspec.Struct, frozen=True, kw_only=True):
    """What one feature adds to the logarithm of growth; `value` is as `phrase` means it, None if not known."""

    feature: str
    phrase: str
    value: float | None
    log_growth: float


class GrowthGrounds(msgspec.Struct, frozen=True, kw_only=True):
    """How a growth model came to its answer: base, contributions and `others` add up to `log_growth`.

    `offset` is what calibration adds to that.
    """

    base: float
    contributions: tuple[Contribution, ...]
    others: float
    log_growth: float
    offset: float


class RestsOn(msgspec.Struct, frozen=True, kw_only=True):
    """A past job: its number (None: not known), when it ended (unix seconds), and what it `used`.

    It counts as `needed`, which is more than it used if it was killed for memory. `at_least` says that `used` is only
    a lower bound of its need.
    """

    which: Literal["highest", "newest"]
    job_id: int | None
    end_s: int
    used: float
    needed: float
    at_least: bool


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """What one dimension of a prediction rests on.

    `jobs` show it, `streak` of them since the last surprise. `runs` counts the runs since the last that surprised, if
    runs count here and not jobs (PastUse.quiet). `before` says that the bounds are those from before the run that is
    under way, which has needed no more so far (PastUse.before). `enough` is False if there are fewer jobs than the
    site wants; `untold` says why the jobs show nothing of memory. In both cases the steps lead nowhere, and the
    request stands.
    """

    dimension: Learned | Literal["gpus"]
    basis: str
    enough: bool
    untold: Untold
    jobs: int
    streak: int | None
    runs: int | None
    before: bool
    steps: tuple[Step, ...]
    silence: Silence
    growth: GrowthGrounds | None
    rests_on: tuple[RestsOn, ...]


def explain(
    predictor: Predictor, request: JobRequest, contributions: Mapping[Learned, Contributions]
) -> tuple[Explained, ...]:
    """Explain the prediction for a request; a dimension that no past job shows is left out."""
    sight = predictor.sight(request)
    if sight is None:
        return ()
    dimensions = (
        explain_dimension(predictor, sight, dimension, contributions.get(dimension)) for dimension in LEARNED
    )
    return tuple(one for one in (*dimensions, explain_gpus(predictor, sight)) if one is not None)


def explain_dimension(
    predictor: Predictor, sight: Sight, dimension: Learned, contributions: Contributions | None
) -> Explained | None:
    """Explain any dimension except GPUs; None if no past job shows it."""
    past, settings, growth = (
        sight.evidence.use(dimension),
        predictor.settings,
        predictor.growth.get(dimension),
    )
    if past is None:
        return None
    silence = silence_of(growth, past, sight.request.user)
    grounds = None
    if growth is not None and not silence and contributions is not None:
        row = features(sight.request, sight.evidence, sight.user_habit, dimension)
        grounds = grounds_of(row, contributions(row), growth.offset or 0.0)
    told = told_by(past, stakes_of(sight, past, dimension, settings.most_failures))
    return Explained(
        dimension=dimension,
        basis=sight.evidence.words,
        enough=past.complete >= settings.min_evidence,
        untold=untold_of(sight.evidence, settings.most_slowdown) if dimension == "memory" else "",
        jobs=past.count,
        streak=told.streak,
        runs=told.runs if told.quiet == told.runs else None,
        before=told is not past,
        steps=steps_of(predictor, sight, dimension, told),
        silence=silence,
        growth=grounds,
        rests_on=rests_on(sight.evidence.jobs, dimension, max(past.needed)),
    )


def steps_of(predictor: Predictor, sight: Sight, dimension: Learned, past: PastUse) -> tuple[Step, ...]:
    """Return the chain's steps by the past whose bounds count; the last is the prediction, or the grant if lower."""
    settings = predictor.settings
    stages = demand_stages(
        dimension,
        predictor.growth.get(dimension),
        settings.margin(dimension),
        settings.most_failures,
        settings.most_slowdown,
    )
    told = {name: estimate.upper for name, stage in stages.items() if (estimate := stage(sight)) is not None}
    highest = told["history"]
    stakes = stakes_of(sight, past, dimension, settings.most_failures)
    streak = streak_bound(past.quiet, stakes.room, stakes.haste)
    # Bounded as in the tail: for a single job at a tiny risk the bound is too large for a float.
    spread = min(spread_bound(past, stakes.risk), MOST_RISE_LOG)
    next_run = next_run_bound(past, stakes.room)
    raised = next_run > min(streak, spread)
    steps = [
        Step(name="highest", upper=highest, counts=True),
        Step(
            name="streak",
            upper=None if math.isinf(streak) else highest * math.exp(streak),
            counts=streak < spread and not raised,
        ),
        Step(name="spread", upper=highest * math.exp(spread), counts=spread <= streak and not raised),
    ]
    if raised:
        steps.append(Step(name="next run", upper=highest * math.exp(next_run), counts=True))
    if told["growth"] < told["tail"]:
        steps.append(Step(name="growth", upper=told["growth"], counts=True))
    if told["threads"] < told["growth"]:
        steps.append(Step(name="threads", upper=told["threads"], counts=True))
    steps.append(Step(name="margin", upper=told["margin"], counts=True))
    name: StepName
    if told["whole"] != told["margin"]:
        stopped = told["whole"] == enough_to_go_on(sight.evidence.jobs)
        name = "whole" if told["whole"] < told["margin"] else "stopped" if stopped else "too few"
        steps.append(Step(name=name, upper=told["whole"], counts=True))
    if told["shared"] > told["whole"]:
        steps.append(Step(name="shared", upper=told["shared"], counts=True))
    if told["slowed"] > told["shared"]:
        slows = slowing_in(sight.evidence, settings.most_slowdown)
        name = "slowed" if told["slowed"] == 2 * slows else "compared"
        steps.append(Step(name=name, upper=told["slowed"], counts=True))
    if dimension == "cores":
        fewest = predictor.fewest_cpus(sight, stages["slowed"](sight))
        if fewest is not None and fewest < told["slowed"]:
            steps.append(Step(name="slowdown", upper=fewest, counts=True))
    return tuple(steps)


def silence_of(growth: Growth | None, past: PastUse, user: str) -> Silence:
    """Return why the growth model is not asked about a user's job; '' if it is."""
    if growth is None:
        return "no model"
    if growth.offset is None:
        return "not calibrated"
    if user in growth.apart:
        return "apart"
    return "" if is_asked_about(past) else "not settled"


def grounds_of(row: Sequence[float], added: Sequence[float], offset: float) -> GrowthGrounds:
    """Return the features that add most, whichever their sign, and the sum of the others."""
    *by_feature, base = added
    named = [
        Contribution(feature=name, phrase=WORDS[name].phrase, value=WORDS[name].value(value), log_growth=log)
        for name, value, log in zip(FEATURES, row, by_feature, strict=True)
        if log
    ]
    told = sorted(named, key=lambda one: -abs(one.log_growth))[:TOLD_FEATURES]
    return GrowthGrounds(
        base=base,
        contributions=tuple(told),
        others=sum(by_feature) - sum(one.log_growth for one in told),
        log_growth=sum(added),
        offset=offset,
    )


def rests_on(
    jobs: Sequence[PastJob], dimension: Learned | Literal["gpus"], most: float
) -> tuple[RestsOn, ...]:
    """Return the job that needed `most`, and the newest jobs that show a dimension.

    A job that needed more than `most` used more than is asked for now, and does not count as the highest.
    """
    known = [
        (job, float(used))
        for job in jobs
        if (used := job.gpus if dimension == "gpus" else use_of(job, dimension)) is not None
    ]
    if not known:
        return ()
    told = [_rests_on_job(job, used, dimension) for job, used in known]
    counted = [one for one in told if one.needed <= most]
    highest = msgspec.structs.replace(max(counted, key=lambda one: one.needed), which="highest")
    return (highest, *sorted(told, key=lambda one: -one.end_s)[:TOLD_JOBS])


def _rests_on_job(job: PastJob, used: float, dimension: Learned | Literal["gpus"]) -> RestsOn:
    killed = dimension == "memory" and job.mem_at_least
    return RestsOn(
        which="newest",
        job_id=job.job_id or None,
        end_s=job.end_s,
        used=used,
        needed=used * KILLED_BUMP if killed else used,
        at_least=killed or not job.complete,
    )


def explain_gpus(predictor: Predictor, sight: Sight) -> Explained | None:
    """Explain GPUs; None if no past job was metered."""
    past, estimate = sight.evidence.gpus, from_busy_gpus(sight)
    if past is None or estimate is None:
        return None
    steps = [Step(name="busy", upper=past.most, counts=True)]
    if estimate.upper > past.most:
        steps.append(Step(name="stopped", upper=estimate.upper, counts=True))
    return Explained(
        dimension="gpus",
        basis=sight.evidence.words,
        enough=estimate.jobs >= predictor.settings.enough_metered,
        untold="",
        jobs=estimate.jobs,
        streak=None,
        runs=None,
        before=False,
        steps=tuple(steps),
        silence="",
        growth=None,
        rests_on=rests_on(sight.evidence.jobs, "gpus", math.inf),
    )
