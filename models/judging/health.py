"""How a trained model fits its own rows: calibration on later jobs, what each feature is worth, drift. Pure.

A model's own offset covers the jobs that it was made from, the latest, whatever they do: counted on them, nothing
ever drifts. So the latest jobs are counted by week against a model that is made in the same way from the jobs before
them alone (`_weeks`); that model answers no submission. Everything is counted with the weights by which offsets are
made.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import xgboost

from accounting.frames import Flags, Floats, Ints
from models.demand.features import FEATURES
from models.judging.drift import (
    WEEK_S,
    Allowance,
    FeatureDrift,
    WeekCalibration,
    calibration_by_week,
    equal_jobs,
    feature_drift,
    independent_jobs,
)
from models.past.jobs import Learned
from models.run_time.importance import Importance, permutation_importances
from models.training.calibration import offsets_of
from models.training.matrix import Matrix
from models.training.quantile import QUANTILE, SEED, excess_of, fit_quantile, predict
from models.training.training import FITTED_SHARE, Fitted, Trained, fitted_rows, weights_of
from models.versions.artefact import Offset

# Shuffles of each feature, and on how many rows at most.
REPEATS, MOST_ROWS = 5, 2000
# The last fifth of the rows is counted by week, but no more than this many weeks: what changed before is known by
# then.
MOST_WEEKS = 4
# The trees for that are fitted to this many rows at most, drawn from all, so that a large store takes seconds on this
# machine.
MOST_FITTED = 50_000


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """The share of jobs that exceeded what only `nominal` should.

    The offsets are those of the earlier half of the calibrating jobs. It is counted on the later half, by weight:
    `jobs` is how many jobs of equal weight say as much.
    """

    nominal: float
    observed: float
    jobs: int


class Excesses(msgspec.Struct, frozen=True, kw_only=True):
    """By how much settled jobs exceeded what trees say (a logarithm, or a bound of it), with their weights and times.

    `users` has a number for the user of each job; jobs of unknown users each count as another user's.
    """

    excess: Floats
    bounded: Flags
    weights: Floats
    submit_s: Ints
    users: Ints


class GrowthHealth(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one growth model. `importance` is what shuffling a feature adds to the pinball loss.

    `weeks` are the latest ones, against a model of the jobs before them; empty if this model has no offset to serve
    with.
    """

    dimension: Learned
    rows: int
    calibrated_on: int
    apart: int
    calibration: tuple[Calibrated, ...]
    importance: tuple[Importance, ...]
    weeks: tuple[WeekCalibration, ...]


def drift_of(trained: Trained) -> dict[Learned, tuple[FeatureDrift, ...]]:
    """Return the drift of every dimension's features, over all rows."""
    return {
        dimension: feature_drift(FEATURES, matrix.inputs, matrix.submit_s, matrix.users)
        for dimension, matrix in trained.matrices.items()
    }


def health_of(trained: Trained, most_failures: float) -> tuple[GrowthHealth, ...]:
    """Return the health of every growth model; a dimension with too few rows has no model."""
    return tuple(
        _health(dimension, fitted, trained.matrices[dimension].without(fitted.known.apart), most_failures)
        for dimension, fitted in trained.fitted.items()
    )


def _health(dimension: Learned, fitted: Fitted, matrix: Matrix, most_failures: float) -> GrowthHealth:
    known = fitted.known
    start = fitted_rows(matrix)
    later, weights = matrix.part(slice(start, None)), weights_of(matrix)[start:]
    later, weights = later.part(later.settled), weights[later.settled]
    return GrowthHealth(
        dimension=dimension,
        rows=known.rows,
        calibrated_on=known.calibrated_on,
        apart=len(known.apart),
        calibration=calibration_of(excess_of(fitted.booster, later), later.bounded, weights),
        importance=_importance(fitted, later.part(~later.bounded)),
        weeks=() if known.offset(most_failures) is None else _weeks(matrix, most_failures),
    )


def _weeks(matrix: Matrix, most_failures: float) -> tuple[WeekCalibration, ...]:
    """Count the latest settled jobs by week against trees and an offset from the jobs before them.

    As in training, the earlier share of those is fitted, and the rest calibrates. If they are too few for any share
    of failures up to `most_failures`, the next larger share that they suffice for is counted; if there is none, no
    week is.
    """
    start, weights = watched_from(matrix.submit_s), weights_of(matrix)
    rows = fitted_rows(matrix.part(slice(start)))
    taken = drawn(rows)
    booster = fit_quantile(matrix.part(slice(rows)).part(taken), weights[:rows][taken])
    before = _excesses(booster, matrix.part(slice(rows, start)), weights[rows:start])
    latest = _excesses(booster, matrix.part(slice(start, None)), weights[start:])
    offset = _nearest(offsets_of(before.excess, before.bounded, before.weights), most_failures)
    if offset is None:
        return ()
    judged, exceeded = judged_by(before.excess, before.bounded, offset.log_growth)
    made_from = independent_jobs(exceeded[judged], before.weights[judged], before.users[judged])
    allowed = Allowance(nominal=offset.failures, made_from=made_from)
    judged, exceeded = judged_by(latest.excess, latest.bounded, offset.log_growth)
    return calibration_by_week(
        exceeded[judged], latest.submit_s[judged], latest.weights[judged], latest.users[judged], allowed
    )


def watched_from(submit_s: Ints) -> int:
    """Return the first row that is counted by week; rows are in the order of their submission (unix seconds)."""
    recent = int(np.searchsorted(submit_s, submit_s[-1] - MOST_WEEKS * WEEK_S, "right"))
    return max(round(len(submit_s) * FITTED_SHARE), recent)


def drawn(rows: int) -> Flags:
    """Return which of this many rows are fitted: all, or MOST_FITTED of them, drawn the same way every time."""
    taken = np.zeros(rows, np.bool_)
    lot = np.random.default_rng(SEED).permutation(rows) if rows > MOST_FITTED else np.arange(rows)
    taken[lot[:MOST_FITTED]] = True
    return taken


def _excesses(booster: xgboost.Booster, rows: Matrix, weights: Floats) -> Excesses:
    settled = rows.part(rows.settled)
    return Excesses(
        excess=excess_of(booster, settled),
        bounded=settled.bounded,
        weights=weights[rows.settled],
        submit_s=settled.submit_s,
        users=settled.users if len(settled.users) else np.arange(len(settled)),
    )


def _nearest(offsets: Sequence[Offset], most_failures: float) -> Offset | None:
    """Return the offset for the largest share up to `most_failures`, else for the smallest above it; None if none."""
    allowed = [offset for offset in offsets if offset.failures <= most_failures]
    return allowed[-1] if allowed else next(iter(offsets), None)


def judged_by(excess: Floats, bounded: Flags, offset: float | Floats) -> tuple[Flags, Flags]:
    """Return which jobs show whether they exceeded an offset, and which did; a bound below the offset shows nothing.

    The same holds for a use and what is granted (outcomes.py).
    """
    exceeded: Flags = np.where(bounded, excess >= offset, excess > offset)
    return ~bounded | exceeded, exceeded


def calibration_of(excess: Floats, bounded: Flags, weights: Floats) -> tuple[Calibrated, ...]:
    """Calibrate on the earlier half, count on the later; leave out shares for which the earlier half is too small."""
    half = len(excess) // 2
    found: list[Calibrated] = []
    for offset in offsets_of(excess[:half], bounded[:half], weights[:half]):
        judged, exceeded = judged_by(excess[half:], bounded[half:], offset.log_growth)
        counted = weights[half:][judged]
        if len(counted):
            found.append(
                Calibrated(
                    nominal=offset.failures,
                    observed=float(weights[half:][exceeded].sum() / counted.sum()),
                    jobs=round(equal_jobs(counted)),
                )
            )
    return tuple(found)


def _importance(fitted: Fitted, later: Matrix) -> tuple[Importance, ...]:
    latest = later.part(slice(-MOST_ROWS, None))
    if not len(latest):
        return ()

    def expected(rows: Floats) -> Floats:
        return predict(fitted.booster, rows.astype(np.float32)).astype(np.float64)

    inputs = latest.inputs.astype(np.float64)
    found = permutation_importances(expected, FEATURES, inputs, latest.targets, SEED, REPEATS, pinball)
    return tuple(sorted(found, key=lambda one: -one.mean))


def pinball(predicted: Floats, true: Floats) -> Floats:
    """Return the mean loss by which the growth models' quantile is fitted, for each row of predictions."""
    over = true - predicted
    loss: Floats = np.maximum(QUANTILE * over, (QUANTILE - 1) * over).mean(axis=1)
    return loss
