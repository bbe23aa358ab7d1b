"""How far above all that a family ever needed its next job may go. Pure.

There are two upper bounds, of which the lower counts, and a least one. All are on the logarithm of next need over the
highest so far; room is the logarithm of the request over that highest:

    streak   room · min(exp(-streak / STREAK_SCALE), MOST_OF_ROOM) ^ haste: the longer no job has surprised, the
             further below its request a family may go. The jobs of a burst that end first are its small ones; they
             surprise one after the other. Even so, the jobs that come next seldom need the last third of the room.
             In a family at rest that a later run surprised, runs count and not jobs (PastUse.quiet).
             A job that holds much saves much, and fails as one job like any other. So the haste is more than 1 for
             heavy families and less for light ones: in the same streak, they take different parts of the room.
    spread   s · √(df · (risk^(-2/df) - 1)): a Student-like tail, df = PRIOR_JOBS + jobs - 1. s² is the mean square by
             which jobs exceed the family's median, counted twice, as if the lower side were alike, with PRIOR_JOBS
             imaginary jobs that spread by PRIOR_SPREAD. Only upwards: small outliers say nothing about the top. The
             tail begins at the highest while slow jobs may still be missing; in a family at rest (PastUse.whole) it
             begins at the median, as for a sample. If there are many jobs, the highest say more themselves: the
             bound is then no more than a Pareto tail above them (Hill 1975). Of n + 1 similar jobs the next is the
             highest once in n + 1 times. With e, the mean excess of the highest quarter above the one below, the
             Pareto tail is e · ln(1 / ((n + 1) · risk)).

The next jobs of a family at rest are a new run, often of another input, and the jobs of one run say little of that.
So, unless a growth model says less, its memory is left no less than

    next run min(NEXT_RUN_LOG, NEXT_RUN_ROOM · room) ÷ runs without a surprise (PastUse.calm)

Once a job of the new run has ended, the family is no longer at rest. As long as no job needed more than all before
it, nothing has become less certain: what was left before that run (PastUse.before) is enough.

The constants were chosen on public traces of workflows (docs/decisions/0022); 30 % more or less of any one changes
little there.
"""

from __future__ import annotations

import math

import msgspec

from models.past.evidence import PastUse

STREAK_SCALE, MOST_OF_ROOM = 11.0, 0.7
# A family that holds 16 times as much as the site's mean job counts each quiet job twice, one with a sixteenth half.
HASTE_POWER, LEAST_HASTE, MOST_HASTE = 0.25, 0.5, 2.0
PRIOR_JOBS, PRIOR_SPREAD = 2.0, 0.03
# The share of the failures accepted by the site that the rule plans for, since it errs now and then.
PLANNED_SHARE = 0.2
LEAST_RISK, MOST_RISK = 1e-9, 0.5
# If nothing was asked, no room bounds the rise, and the bound of a single job at a tiny risk is too large for a
# float.
MOST_RISE_LOG = 20.0
# The next run of a family may need a fifth more (e^0.2) than the only one that is known. No more than a quarter of
# the room is left for that.
NEXT_RUN_LOG, NEXT_RUN_ROOM = 0.2, 0.25


class Stakes(msgspec.Struct, frozen=True, kw_only=True):
    """What a request and the weight of its family leave to the bounds.

    `room` is the logarithm of the request over the family's highest; infinite if the request does not ask for the
    dimension. `risk` is the share of the family's jobs that may fail, `haste` how fast it may use up its room.
    """

    room: float
    risk: float
    haste: float = 1.0


def risk_of(weight: float, room: float, most_failures: float) -> float:
    """Return the share of a family's jobs that may fail, if `most_failures` of all jobs may.

    Risk goes where it saves most: more to jobs that hold much (`weight`, in mean jobs of the site), and less to jobs
    whose request lies far above the family's highest (`room`, the logarithm of request over highest), since even a
    generous grant saves most of such a request.
    """
    risk = most_failures * PLANNED_SHARE * weight * math.exp(-max(room, 0.0))
    return min(max(risk, LEAST_RISK), MOST_RISK)


def haste_of(weight: float) -> float:
    """Return how fast a family may use up its room; 1 if its mean job holds as much as the site's (`weight`).

    Failures count by jobs, savings by what jobs hold. So few jobs fail for what is saved if the last of them saves as
    much in every family: a family goes further below its request, the more its jobs hold.
    """
    return min(max(math.pow(weight, HASTE_POWER), LEAST_HASTE), MOST_HASTE)


def rise_log(past: PastUse, stakes: Stakes) -> float:
    """Return the logarithm by which the next need may exceed the highest so far."""
    return _rise_log(told_by(past, stakes), stakes)


def told_by(past: PastUse, stakes: Stakes) -> PastUse:
    """Return the past whose bounds count: all that is known of a family, or what preceded the run that is under way."""
    if past.before is None:
        return past
    return min(past, past.before, key=lambda one: _rise_log(one, stakes))


def _rise_log(past: PastUse, stakes: Stakes) -> float:
    streak = streak_bound(past.quiet, stakes.room, stakes.haste)
    rise = min(streak, spread_bound(past, stakes.risk), MOST_RISE_LOG)
    return max(rise, next_run_bound(past, stakes.room))


def streak_bound(streak: int, room: float, haste: float = 1.0) -> float:
    """Return the part of the room that the family's surprises still ask for, as a logarithm; infinite as the room."""
    if math.isinf(room):
        return room  # after some 7,000 quiet jobs the part is 0 for a float, and no number if multiplied
    return max(room, 0.0) * math.pow(min(math.exp(-streak / STREAK_SCALE), MOST_OF_ROOM), haste)


def spread_bound(past: PastUse, risk: float) -> float:
    """Return how far the tail of the family's spread goes above its highest at a risk, as a logarithm."""
    freedom = PRIOR_JOBS + past.count - 1
    variance = (PRIOR_JOBS * PRIOR_SPREAD**2 + 2 * past.above_median) / freedom
    tail = math.sqrt(variance * freedom * (risk ** (-2 / freedom) - 1))
    if not past.whole:
        return tail
    from_median = max(0.0, tail - (past.highest_log - past.median_log))
    if past.top_excess is None:
        return from_median
    excess = max(past.top_excess, PRIOR_SPREAD)
    return min(from_median, excess * max(0.0, -math.log((past.count + 1) * risk)))


def next_run_bound(past: PastUse, room: float) -> float:
    """Return the logarithm by which a new run of a family at rest may exceed its highest; 0 for other families."""
    if not past.whole or not past.calm:
        return 0.0
    return min(NEXT_RUN_LOG, NEXT_RUN_ROOM * max(room, 0.0)) / past.calm
