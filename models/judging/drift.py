"""How far the latest jobs differ from those before, and how well the growth models still cover them. Pure.

The figure for a feature is the population stability index over tenths of the earlier values; within a week, a user
weighs at most as much as in training. A few jobs move the index by chance alone. What chance gives is shown with it
and subtracted before it is put in words (Yurdakul and Naranjo 2020):

    (bins - 1)·(1/n + 1/m)

So is what weeks differ by anyway: jobs come in campaigns, and no week is a sample of all.

Calibration is counted by week, on jobs that neither the trees nor the offset they are counted against were made from,
with the weights by which that offset was made. An offset made from a few jobs is only as good as a few jobs allow,
and a campaign tells as much as one job: what that alone causes is no drift.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
import numpy
from numpy.typing import NDArray

from accounting.frames import Floats, Ints
from models.chance import at_least_above
from models.demand.features import OF_AGE
from models.training.weights import row_weights

Word = Literal["stable", "shifted", "drifted", "too few to tell"]
SHIFTED, DRIFTED = 0.1, 0.25
# For calibration: a week has shifted, or drifted, if it is this improbable by chance.
SHIFTED_CHANCE, DRIFTED_CHANCE = 0.05, 0.001
WEEK_S = 7 * 86400
BINS = 10
# With fewer rows on either side, a tenth holds too few.
LEAST_ROWS = 100
# The latest jobs are those of the last week, or of this share of a shorter past. This many periods before it are told
# apart.
LATEST_SHARE, MOST_PERIODS = 0.2, 12


class FeatureDrift(msgspec.Struct, frozen=True, kw_only=True):
    """The drift of one feature: its index, on how many rows before and latest, in a word.

    `by_chance` is what the index may be without any drift: what so few rows give, plus the most by which an earlier
    week differed beyond that.
    """

    feature: str
    psi: float
    by_chance: float
    before: int
    latest: int
    word: Word


class WeekCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """One week of jobs from `from_s` on: how many used more than the model allowed, if `nominal` of them may.

    `jobs` is how many independent jobs say as much as the week's `rows`, which have weights by user. `exceeded` is
    how many of those `jobs` exceeded, rounded; `share` is the share of the rows, by weight. `rows` and `share` are
    None in cards of earlier releases.
    """

    from_s: int
    jobs: int
    exceeded: int
    nominal: float
    word: Word
    rows: int | None = None
    share: float | None = None

    @property
    def observed(self) -> float:
        """The share that exceeded, by weight."""
        return self.exceeded / self.jobs if self.share is None else self.share


def periods_back(submit_s: Ints) -> Ints:
    """Return how many periods each job (unix seconds) lies before the latest ones, which are of period 0.

    A period is a week, or a fifth of a shorter past. Jobs older than the periods that are compared are of one period
    more.
    """
    last_s = int(submit_s.max())
    period_s = min(WEEK_S, max(1, int((last_s - submit_s.min()) * LATEST_SHARE)))
    back: Ints = numpy.minimum((last_s - submit_s) // period_s, MOST_PERIODS + 1)
    return back


def feature_drift(
    names: Sequence[str], inputs: NDArray[numpy.floating], submit_s: Ints, users: Ints | None = None
) -> tuple[FeatureDrift, ...]:
    """Compare the latest rows with those before, feature by feature, the most drifted first; rows may hold NaN.

    `users` has a number for the user of each row; without it, all rows weigh the same.
    """
    if not len(submit_s):
        return ()
    back = periods_back(submit_s)
    weights = numpy.ones(len(back)) if users is None or not len(users) else weights_by(back, users)
    found = (
        _drift_of(name, inputs[:, column].astype(numpy.float64), weights, back)
        for column, name in enumerate(names)
    )
    return tuple(sorted(found, key=lambda one: one.by_chance - one.psi))


def weights_by(back: Ints, users: Ints) -> Floats:
    """Return the weight of each row within its period, so that one user's campaign is no drift of all."""
    weights = numpy.empty(len(back))
    for period in numpy.unique(back).tolist():
        weights[back == period] = row_weights(users[back == period])
    return weights


def _drift_of(name: str, column: Floats, weights: Floats, back: Ints) -> FeatureDrift:
    is_before = back > 0
    edges = edges_of(column[is_before], weights[is_before])
    latest, *compared, older = tallies(column, weights, back, edges)
    before = numpy.sum(compared, axis=0) + older
    psi, chance = index_of(before, latest)
    # The period just before is left out: a drift that began in it must still show.
    usual = (index_of(numpy.maximum(before - one, 0), one) for one in compared[1:])
    rows = int(is_before.sum())
    few = min(rows, len(back) - rows)
    by_chance = chance + max((index - by_lot for index, by_lot in usual), default=0.0)
    return FeatureDrift(
        feature=name,
        psi=psi,
        by_chance=by_chance,
        before=rows,
        latest=len(back) - rows,
        word="too few to tell" if few < LEAST_ROWS else in_words(psi - by_chance),
    )


def in_words(psi: float) -> Word:
    """Return an index in a word: stable < 0.1 < shifted < 0.25 < drifted."""
    if psi < SHIFTED:
        return "stable"
    return "shifted" if psi < DRIFTED else "drifted"


def edges_of(values: Floats, weights: Floats) -> Floats:
    """Return the values at which tenths of the weight end; values that are not known (NaN) are left out."""
    is_known = ~numpy.isnan(values)
    known, heavy = values[is_known], weights[is_known]
    if not len(known):
        return known
    order = numpy.argsort(known)
    reached = numpy.cumsum(heavy[order])
    tenths = numpy.searchsorted(reached, reached[-1] * numpy.linspace(0, 1, BINS + 1)[1:-1])
    return numpy.unique(known[order][tenths])


def tallies(values: Floats, weights: Floats, back: Ints, edges: Floats) -> Floats:
    """Return the weight in each bin, by period: the latest first, and what is older than MOST_PERIODS last.

    NaN is a bin of its own. So is a value that many rows share, so that constants and counts need no care.
    """
    bins = 2 * len(edges) + 2
    place = back * bins + _codes(values, edges)
    tallied = numpy.bincount(place, weights, minlength=(MOST_PERIODS + 2) * bins)
    return tallied.astype(numpy.float64, copy=False).reshape(-1, bins)


def index_of(before: Floats, latest: Floats) -> tuple[float, float]:
    """Return the population stability index of weights in bins, and what chance alone gives; 0 for an empty side."""
    held = (before + latest) > 0
    if not before.any() or not latest.any():
        return 0.0, 0.0
    bins = int(held.sum())
    # Half a row is added to every bin: an empty one is rare, not impossible.
    first, second = ((side[held] + 0.5) / (side.sum() + 0.5 * bins) for side in (before, latest))
    chance = (bins - 1) * (1 / before.sum() + 1 / latest.sum())
    return float(((second - first) * numpy.log(second / first)).sum()), float(chance)


def _codes(values: Floats, edges: Floats) -> Ints:
    """Return the bin of each value: below, on or above each edge; the last bin is for NaN."""
    places = numpy.searchsorted(edges, values, "left") + numpy.searchsorted(edges, values, "right")
    return numpy.where(numpy.isnan(values), 2 * len(edges) + 1, places)


def equal_jobs(weights: Floats) -> float:
    """Return how many jobs of equal weight show a share as well as jobs of such weights (Kish 1965); 0 for none."""
    return float(weights.sum() ** 2 / (weights**2).sum()) if len(weights) else 0.0


def independent_jobs(exceeded: NDArray[numpy.bool_], weights: Floats, users: Ints) -> float:
    """Return how many independent jobs show the share that exceeded as well as these jobs; 0 for none.

    Jobs that a user runs in one campaign exceed together, or not at all. So the variance follows from how much users'
    shares differ (the sandwich of Liang and Zeger 1986, with a user's jobs as a cluster). If all jobs are alike, or
    are one user's, nothing shows it, and only weights count. `users` has a number for the user of each job.
    """
    equal = equal_jobs(weights)
    numbers, owners = numpy.unique(users, return_inverse=True)
    share = float(weights[exceeded].sum() / weights.sum()) if equal else 0.0
    if len(numbers) == 1 or not 0 < share < 1:
        return equal
    apart = numpy.bincount(owners, weights * (exceeded - share))
    variance = float((apart**2).sum()) / float(weights.sum()) ** 2
    return min(equal, share * (1 - share) / variance)


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs are counted against: an offset that the share `nominal` may exceed.

    `made_from` is the number of jobs that it was made from, counted as independent jobs of equal weight.
    """

    nominal: float
    made_from: float


def calibration_by_week(
    exceeded: NDArray[numpy.bool_], submit_s: Ints, weights: Floats, users: Ints, allowed: Allowance
) -> tuple[WeekCalibration, ...]:
    """Count by week the jobs that used more than an offset allowed: a flag, a time (unix seconds), a weight for each.

    The offset was made from other jobs. `users` has a number for the user of each job.
    """
    if not len(submit_s):
        return ()
    first = int(submit_s.min())
    weeks, week = numpy.unique((submit_s - first) // WEEK_S, return_inverse=True)
    return tuple(
        _week(first + number * WEEK_S, exceeded[is_in], weights[is_in], users[is_in], allowed)
        for place, number in enumerate(weeks.tolist())
        for is_in in [week == place]
    )


def _week(
    from_s: int, exceeded: NDArray[numpy.bool_], weights: Floats, users: Ints, allowed: Allowance
) -> WeekCalibration:
    independent = independent_jobs(exceeded, weights, users)
    jobs, share = max(1, round(independent)), float(weights[exceeded].sum() / weights.sum())
    failed = round(jobs * share)
    chance = at_least_above(failed, jobs, allowed.nominal, allowed.made_from)
    word: Word = "too few to tell" if equal_jobs(weights) < LEAST_ROWS else "stable"
    if chance < SHIFTED_CHANCE:
        word = "drifted" if chance < DRIFTED_CHANCE else "shifted"
    return WeekCalibration(
        from_s=from_s,
        jobs=jobs,
        exceeded=failed,
        nominal=allowed.nominal,
        word=word,
        rows=len(exceeded),
        share=share,
    )


def counted(features: Iterable[FeatureDrift], weeks: Sequence[WeekCalibration]) -> tuple[FeatureDrift, ...]:
    """Return those features of one resource whose drift deserves a look.

    A feature in OF_AGE drifts because families grow older; it counts only if the calibration has moved as well.
    """
    moved = any(week.word in ("shifted", "drifted") for week in weeks)
    return tuple(one for one in features if moved or one.feature not in OF_AGE)


def alarming(
    features: Iterable[FeatureDrift], weeks: Sequence[WeekCalibration]
) -> tuple[FeatureDrift | WeekCalibration, ...]:
    """Return what has drifted of one resource and deserves a look."""
    both: list[FeatureDrift | WeekCalibration] = [*counted(features, weeks), *weeks]
    return tuple(one for one in both if one.word == "drifted")
