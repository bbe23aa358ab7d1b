"""How far the latest jobs differ from those before, and how well the growth models still cover them. Pure.

The figure for a feature is the population stability index over tenths of the earlier values. So few jobs move it by
chance alone: what chance gives, (bins - 1)·(1/n + 1/m), stands beside it and is taken off before it is put in words
(Yurdakul and Naranjo 2020). Calibration is counted by week, on jobs that neither the trees nor the offset they are
counted against were made from, and in the weights by which that offset was made. A few jobs place an offset no better
than a few can: what that alone brings about is no drift.
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

Word = Literal["stable", "shifted", "drifted", "too few to tell"]
SHIFTED, DRIFTED = 0.1, 0.25
# Of calibration: as improbable by chance.
SHIFTED_CHANCE, DRIFTED_CHANCE = 0.05, 0.001
WEEK_S = 7 * 86400
BINS = 10
# With fewer rows on either side a tenth holds too few.
LEAST_ROWS = 100
# The latest share, where what is known spans less than two weeks.
LATEST_SHARE = 0.2


class FeatureDrift(msgspec.Struct, frozen=True, kw_only=True):
    """One feature: its index, what chance gives it, on how many rows before and latest, in a word."""

    feature: str
    psi: float
    by_chance: float
    before: int
    latest: int
    word: Word


class WeekCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """One week of jobs from `from_s` on: how many used more than the model allowed, where `nominal` of them may.

    `jobs` is how many equal ones say as much as the week's `rows`, which weigh by whose they are; `exceeded` is how
    many of those. `rows` is None in cards of earlier releases, which counted every row as one.
    """

    from_s: int
    jobs: int
    exceeded: int
    nominal: float
    word: Word
    rows: int | None = None

    @property
    def error(self) -> float:
        """The share that exceeded, less the nominal one."""
        return self.exceeded / self.jobs - self.nominal


def latest_from(submit_s: Ints) -> int:
    """Return from when on jobs are the latest: the last week, or the last fifth where all is less than two weeks."""
    ordered = numpy.sort(submit_s)
    if ordered[-1] - ordered[0] >= 2 * WEEK_S:
        return int(ordered[-1]) - WEEK_S
    return int(ordered[min(len(ordered) - 1, int(len(ordered) * (1 - LATEST_SHARE)))])


def feature_drift(
    names: Sequence[str], inputs: NDArray[numpy.floating], submit_s: Ints
) -> tuple[FeatureDrift, ...]:
    """Compare the latest rows with those before, feature by feature, the most drifted first; rows may hold NaN."""
    if not len(submit_s):
        return ()
    is_latest = submit_s >= latest_from(submit_s)
    columns = (inputs[:, column].astype(numpy.float64) for column in range(len(names)))
    found = (
        _drift_of(name, column[~is_latest], column[is_latest])
        for name, column in zip(names, columns, strict=True)
    )
    return tuple(sorted(found, key=lambda one: (one.word == "too few to tell", one.by_chance - one.psi)))


def _drift_of(name: str, before: Floats, latest: Floats) -> FeatureDrift:
    psi, bins = stability(before, latest)
    few = min(len(before), len(latest))
    by_chance = (bins - 1) * (1 / len(before) + 1 / len(latest)) if few else 0.0
    return FeatureDrift(
        feature=name,
        psi=psi,
        by_chance=by_chance,
        before=len(before),
        latest=len(latest),
        word="too few to tell" if few < LEAST_ROWS else in_words(psi - by_chance),
    )


def in_words(psi: float) -> Word:
    """Return an index in a word: stable < 0.1 < shifted < 0.25 < drifted."""
    if psi < SHIFTED:
        return "stable"
    return "shifted" if psi < DRIFTED else "drifted"


def stability(before: Floats, latest: Floats) -> tuple[float, int]:
    """Return the population stability index and the number of bins that hold anything; 0 where a side is empty.

    NaN is a bin of its own. A value that many rows share is one too, so that constants and counts need no care.
    """
    if not len(before) or not len(latest):
        return 0.0, 1
    known = before[~numpy.isnan(before)]
    edges = numpy.unique(numpy.quantile(known, numpy.linspace(0, 1, BINS + 1)[1:-1])) if len(known) else known
    codes = 2 * len(edges) + 2
    first, second = (numpy.bincount(_codes(side, edges), minlength=codes) for side in (before, latest))
    held = (first + second) > 0
    bins = int(held.sum())
    # Half a row in every bin: an empty one is rare, not impossible.
    shares = [(side[held] + 0.5) / (side.sum() + 0.5 * bins) for side in (first, second)]
    return float(((shares[1] - shares[0]) * numpy.log(shares[1] / shares[0])).sum()), bins


def _codes(values: Floats, edges: Floats) -> Ints:
    """Return the bin of each value: below, on or above each edge; the last one is NaN's."""
    places = numpy.searchsorted(edges, values, "left") + numpy.searchsorted(edges, values, "right")
    return numpy.where(numpy.isnan(values), 2 * len(edges) + 1, places)


def equal_jobs(weights: Floats) -> float:
    """Return how many jobs of one weight tell a share as well as jobs of such weights do (Kish 1965); 0 for none."""
    return float(weights.sum() ** 2 / (weights**2).sum()) if len(weights) else 0.0


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs are counted against: an offset that the share `nominal` may exceed, made from so many equal jobs."""

    nominal: float
    made_from: float


def calibration_by_week(
    exceeded: NDArray[numpy.bool_], submit_s: Ints, weights: Floats, allowed: Allowance
) -> tuple[WeekCalibration, ...]:
    """Count by week the jobs that used more than an offset allowed: a flag, a time (unix seconds), a weight for each.

    They are jobs that the offset was not made from.
    """
    if not len(submit_s):
        return ()
    first = int(submit_s.min())
    weeks, week = numpy.unique((submit_s - first) // WEEK_S, return_inverse=True)
    return tuple(
        _week(first + number * WEEK_S, exceeded[week == place], weights[week == place], allowed)
        for place, number in enumerate(weeks.tolist())
    )


def _week(
    from_s: int, exceeded: NDArray[numpy.bool_], weights: Floats, allowed: Allowance
) -> WeekCalibration:
    equal = equal_jobs(weights)
    jobs, failed = round(equal), round(equal * float(weights[exceeded].sum() / weights.sum()))
    chance = at_least_above(failed, jobs, allowed.nominal, allowed.made_from)
    word: Word = "too few to tell" if jobs < LEAST_ROWS else "stable"
    if chance < SHIFTED_CHANCE:
        word = "drifted" if chance < DRIFTED_CHANCE else "shifted"
    return WeekCalibration(
        from_s=from_s, jobs=jobs, exceeded=failed, nominal=allowed.nominal, word=word, rows=len(exceeded)
    )


def alarming(
    features: Iterable[FeatureDrift], weeks: Sequence[WeekCalibration]
) -> tuple[FeatureDrift | WeekCalibration, ...]:
    """Return what of one resource has drifted so that somebody should look.

    A feature of OF_AGE does so by the age of families alone; it counts only where the calibration has moved as well.
    """
    moved = any(week.word in ("shifted", "drifted") for week in weeks)
    counted = (one for one in features if moved or one.feature not in OF_AGE)
    both: list[FeatureDrift | WeekCalibration] = [*counted, *weeks]
    return tuple(one for one in both if one.word == "drifted")
