"""The whole of a prediction in one place: what each estimator adds, and in which order.

    history  → the most that any comparable job of the family needed
    tail     → raised by what the family's own surprises and spread leave open (tail.py)
    growth   → for a settled family, lowered to the most that the trained quantile model expects, calibrated on later
               jobs; never below the most that was needed
    threads  → cores only: one, for a family that kept one core busy and no more (threads.py)
    margin   → plus the site's margin
    whole    → cores only: rounded down to a whole number that is hardly exceeded; above what was too few (too_few.py)
    shared   → cores and memory: not below what steps of one job held at one time (shared_out.py)
    slowed   → cores only, for programs whose cores are busy by turns: twice the CPUs that slowed the family's jobs;
               now and then twice the CPUs of this prediction, to learn whether those would slow them (slowed.py)
    evidence → no estimate if fewer jobs were seen than the site wants. Memory has none either if jobs were killed for
               memory and none since has shown what is enough, or were killed for what Slurm does not see; or if jobs
               failed one after the other with less memory (failing.py), or run longer with less; or, now and then, to
               learn whether they do (slowed.py)

The whole chain, and each beginning of it, is an estimator: `Sight -> Estimate | None`. None is an answer: the request
stands. From `tail` to `slowed`, each line is a function from one upper bound to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Literal

import msgspec

from accounting.request import JobRequest
from models.demand.features import asked_of, features
from models.demand.shared_out import shared_out
from models.demand.slowed import Doubt, doubt_of_memory, unslowed_cpus
from models.demand.tail import Stakes, haste_of, rise_log, risk_of
from models.demand.threads import runs_one_thread, without_excess
from models.demand.too_few import gpus_to_go_on, too_few
from models.past.evidence import Evidence, PastUse
from models.past.failing import failing
from models.past.history import Habit
from models.past.jobs import Learned, was_cut
from models.past.kills import Kills

# From this many jobs, this many of them since the last surprise, a trained model knows a family better than its own
# tail does.
SETTLED_JOBS, SETTLED_STREAK = 20, 8

# The dimensions whose estimates a submission waits for; growth models may lower them.
SIZED: tuple[Learned, ...] = ("memory", "cores")

Stage = Literal["history", "tail", "growth", "threads", "margin", "whole", "shared", "slowed"]
GrowthModel = Callable[[Sequence[float]], float]
# Why there is no estimate of memory although enough jobs are known; '' if there is no such reason.
Untold = Kills | Literal["failing"] | Doubt


class Sight(msgspec.Struct, frozen=True):
    """All that an estimator may see: the request, its family's comparable jobs, and its user's habit."""

    request: JobRequest
    evidence: Evidence
    user_habit: Habit


class Estimate(msgspec.Struct, frozen=True):
    """What a job will need: `likely` (median of the past) and `upper`, which almost no job like it should exceed.

    Units are those of the dimension: MiB, cores per task, seconds, GPUs, MiB of one GPU. `jobs` is the number of past
    jobs that the estimate rests on.
    """

    likely: float
    upper: float
    jobs: int


Estimator = Callable[[Sight], Estimate | None]
# From a sight, what its jobs used of the dimension, and the upper bound so far, to the next upper bound.
Bound = Callable[[Sight, PastUse, float], float]


class Growth(msgspec.Struct, frozen=True):
    """A trained growth model: its quantile of log(next need / highest so far), and what calibration adds to it.

    `offset` is None if too few later jobs were seen to calibrate it: the model is then not asked. Nor is it asked
    about the users in `apart`, who are unlike those it learned from.
    """

    predict: GrowthModel
    offset: float | None
    apart: frozenset[str] = frozenset()


def demand_chain(
    dimension: Learned,
    growth: Growth | None,
    margin: float,
    enough: int,
    most_failures: float,
    most_slowdown: float = 0.0,
) -> Estimator:
    """Return the chain of any dimension except GPUs; without a growth model, only the family's own past counts."""
    last = demand_stages(dimension, growth, margin, most_failures, most_slowdown)["slowed"]
    told = with_evidence(last, enough)
    if dimension == "memory":
        told = unless_untold(told, most_slowdown)
    return once(told, dimension, has_growth=growth is not None)


def demand_stages(
    dimension: Learned,
    growth: Growth | None,
    margin: float,
    most_failures: float,
    most_slowdown: float = 0.0,
) -> dict[Stage, Estimator]:
    """Return the chain up to each of its estimators, in order; each stage includes those before it."""
    bounds: dict[Stage, Bound | None] = {
        "history": None,
        "tail": with_tail(dimension, most_failures),
        "growth": None,
        "threads": with_threads if dimension == "cores" else None,
        "margin": lambda _sight, _past, upper: upper * (1 + margin),
        "whole": with_whole if dimension == "cores" else None,
        "shared": with_shared_out(dimension),
        "slowed": with_slowed(most_slowdown) if dimension == "cores" else None,
    }
    if growth is not None and growth.offset is not None:
        bounds["growth"] = with_growth(dimension, growth.predict, growth.offset, growth.apart)
    stages: dict[Stage, Estimator] = {}
    applied: tuple[Bound, ...] = ()
    for name, bound in bounds.items():
        applied = applied if bound is None else (*applied, bound)
        stages[name] = from_history(dimension, applied)
    return stages


def gpu_chain(enough: int) -> Estimator:
    """Return the chain for GPUs: the most that were ever busy, once enough metered jobs have confirmed that number.

    If jobs could not go on with fewer, it is all that those had asked for (too_few.py).
    """
    return with_evidence(from_busy_gpus, enough)


def from_history(dimension: Learned, bounds: Sequence[Bound]) -> Estimator:
    """Estimate by the family's maximum, with these bounds applied to it one after the other.

    A job that was killed for memory counts for more than it shows.
    """

    def estimate(sight: Sight) -> Estimate | None:
        past = sight.evidence.use(dimension)
        if past is None:
            return None
        upper = past.highest
        for bound in bounds:
            upper = bound(sight, past, upper)
        return Estimate(past.likely, upper, past.complete)

    return estimate


def from_busy_gpus(sight: Sight) -> Estimate | None:
    """Estimate by the most GPUs that a metered job of the family kept busy, but at least one."""
    past = sight.evidence.gpus
    if past is None:
        return None
    evidence = sight.evidence
    stopped = evidence.once(gpus_to_go_on, lambda: gpus_to_go_on(evidence.jobs))
    return Estimate(past.likely, max(past.most, stopped), past.shown)


def with_tail(dimension: Learned, most_failures: float) -> Bound:
    """Raise the upper bound by what the family's past leaves open (tail.py); `most_failures` of all jobs may fail."""

    def bound(sight: Sight, past: PastUse, upper: float) -> float:
        return upper * math.exp(rise_log(past, stakes_of(sight, past, dimension, most_failures)))

    return bound


def stakes_of(sight: Sight, past: PastUse, dimension: Learned, most_failures: float) -> Stakes:
    """Return what the request leaves above the family's highest, and how boldly the family may use it."""
    asked, weight = asked_of(sight.request, dimension), sight.evidence.weight(dimension)
    room = math.inf if asked is None else math.log(asked) - past.highest_log
    known_room = 0.0 if asked is None else room
    # What is not granted saves nothing.
    haste = haste_of(weight) if dimension in SIZED else 1.0
    return Stakes(room=room, risk=risk_of(weight, known_room, most_failures), haste=haste)


def with_growth(dimension: Learned, growth: GrowthModel, offset: float, apart: frozenset[str]) -> Bound:
    """Lower the upper bound of a settled family to the most that the calibrated growth model expects."""

    def bound(sight: Sight, past: PastUse, upper: float) -> float:
        if not is_asked_about(past) or sight.request.user in apart:
            return upper
        log_growth = growth(features(sight.request, sight.evidence, sight.user_habit, dimension))
        # What was used once can be used again: the model may only add to it.
        return min(upper, math.exp(past.highest_log + max(0.0, log_growth + offset)))

    return bound


def is_settled(past: PastUse) -> bool:
    """Return whether a family has shown enough for a model of other families to be asked about it too."""
    return past.count >= SETTLED_JOBS and past.streak >= SETTLED_STREAK


def is_asked_about(past: PastUse) -> bool:
    """Return whether the model is asked: for settled families, unless runs surprise, of which it knows nothing."""
    return is_settled(past) and past.quiet >= SETTLED_STREAK


def with_threads(sight: Sight, past: PastUse, upper: float) -> float:
    """Lower the upper bound of cores to one if the family runs a single thread (threads.py)."""
    return 1.0 if upper > 1 and runs_one_thread(past, sight.evidence.jobs) else upper


def with_whole(sight: Sight, past: PastUse, upper: float) -> float:
    """Round the upper bound of cores down if it hardly exceeds a whole number; keep it above what was too few."""
    return max(without_excess(upper, past, sight.evidence.jobs), too_few(sight.evidence.jobs))


def with_shared_out(dimension: Learned) -> Bound:
    """Raise the upper bound to what steps of one of the family's jobs held at one time (shared_out.py)."""
    return lambda sight, _past, upper: max(upper, shared_out(sight.evidence, dimension))


def with_slowed(most_slowdown: float) -> Bound:
    """Raise the upper bound of cores if it slows jobs by more than `most_slowdown`, or nobody can tell (slowed.py)."""
    return lambda sight, _past, upper: max(upper, unslowed_cpus(sight.evidence, upper, most_slowdown))


def with_evidence(inner: Estimator, enough: int) -> Estimator:
    """Give no estimate if it rests on fewer than `enough` jobs."""

    def estimate(sight: Sight) -> Estimate | None:
        base = inner(sight)
        return base if base is not None and base.jobs >= enough else None

    return estimate


def unless_untold(inner: Estimator, most_slowdown: float) -> Estimator:
    """Give no estimate of memory if what jobs were seen to use says nothing of their need (`untold_of`).

    Workflow engines, and people, submit a killed job again, or with more memory until it is enough, and may give up
    after a few attempts. What Slurm does not see is in none of its figures.
    """

    def estimate(sight: Sight) -> Estimate | None:
        return None if untold_of(sight.evidence, most_slowdown) else inner(sight)

    return estimate


def untold_of(evidence: Evidence, most_slowdown: float) -> Untold:
    """Return why there is no estimate of memory, '' if there is no such reason.

    Jobs were killed (PastUse.kills), failed one after the other with less of it (failing.py), or run longer with less
    (slowed.py).
    """
    past = evidence.use("memory")
    if past is None:
        return ""
    if past.kills:
        return past.kills
    if any(map(was_cut, evidence.once(failing, lambda: failing(evidence.jobs)))):
        return "failing"
    return doubt_of_memory(evidence, most_slowdown)


def once(inner: Estimator, dimension: Learned, *, has_growth: bool) -> Estimator:
    """Compute an estimate once for all requests of the same family that the chain cannot tell apart."""

    def estimate(sight: Sight) -> Estimate | None:
        seen = (inner, *seen_of(sight, dimension, has_growth=has_growth))
        return sight.evidence.once(seen, lambda: inner(sight))

    return estimate


def seen_of(sight: Sight, dimension: Learned, *, has_growth: bool) -> tuple[Hashable, ...]:
    """Return all that the chain of a dimension sees of a sight except its evidence; a growth model sees the most."""
    request, past = sight.request, sight.evidence.use(dimension)
    asked = asked_of(request, dimension)
    if past is None or not has_growth or not is_asked_about(past):
        return (asked,)
    return (
        asked,
        request.user,
        request.num_tasks,
        request.cpus,
        request.gpus,
        request.wall_s,
        sight.user_habit,
    )
