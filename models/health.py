"""How a trained model stands to its own rows: calibration on later jobs, what each feature is worth, drift. Pure."""

from __future__ import annotations

import msgspec
import numpy as np

from accounting.frames import Floats, Ints
from models.demand.calibration import CALIBRATED, offsets_of
from models.demand.importance import Importance, permutation_importances
from models.demand.matrix import Flags, Matrix
from models.demand.quantile import QUANTILE, SEED, excess_of, predict
from models.demand.training import Fitted, Trained, fitted_rows
from models.demand.weights import row_weights
from models.drift import FeatureDrift, WeekCalibration, calibration_by_week, feature_drift
from models.evidence import Learned
from models.features import FEATURES

# Shuffles of each feature, on so many rows at most.
REPEATS, MOST_ROWS = 5, 2000


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """The share of jobs that exceeded what only `nominal` should.

    The offsets are those of the earlier half of the calibrating jobs, and it is counted on the later half.
    """

    nominal: float
    observed: float
    jobs: int


class GrowthHealth(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one growth model. `importance` is what shuffling a feature adds to the pinball loss."""

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
        dimension: feature_drift(FEATURES, matrix.inputs, matrix.submit_s)
        for dimension, matrix in trained.matrices.items()
    }


def health_of(trained: Trained, most_failures: float) -> tuple[GrowthHealth, ...]:
    """Return how every growth model stands; none where there were too few rows to fit one."""
    return tuple(
        _health(dimension, fitted, trained.matrices[dimension].without(fitted.known.apart), most_failures)
        for dimension, fitted in trained.fitted.items()
    )


def _health(dimension: Learned, fitted: Fitted, matrix: Matrix, most_failures: float) -> GrowthHealth:
    known = fitted.known
    later = matrix.part(slice(fitted_rows(matrix), None))
    later = later.part(later.settled)
    excess = excess_of(fitted.booster, later)
    offset = known.offset(most_failures)
    nominal = max((failures for failures in CALIBRATED if failures <= most_failures), default=most_failures)
    return GrowthHealth(
        dimension=dimension,
        rows=known.rows,
        calibrated_on=known.calibrated_on,
        apart=len(known.apart),
        calibration=calibration_of(excess, later.bounded, later.users),
        importance=_importance(fitted, later.part(~later.bounded)),
        weeks=() if offset is None else _weeks(excess, later, offset, nominal),
    )


def _weeks(excess: Floats, later: Matrix, offset: float, nominal: float) -> tuple[WeekCalibration, ...]:
    judged, exceeded = judged_by(excess, later.bounded, offset)
    return calibration_by_week(exceeded[judged], later.submit_s[judged], nominal)


def judged_by(excess: Floats, bounded: Flags, offset: float) -> tuple[Flags, Flags]:
    """Return which jobs tell whether they exceeded an offset, and which did; a bound below it tells nothing."""
    exceeded: Flags = np.where(bounded, excess >= offset, excess > offset)
    return ~bounded | exceeded, exceeded


def calibration_of(excess: Floats, bounded: Flags, users: Ints) -> tuple[Calibrated, ...]:
    """Calibrate on the earlier half, count on the later; shares for which that half is too small are left out."""
    half = len(excess) // 2
    weights = row_weights(users[:half]) if len(users) else None
    found: list[Calibrated] = []
    for offset in offsets_of(excess[:half], bounded[:half], weights):
        judged, exceeded = judged_by(excess[half:], bounded[half:], offset.log_growth)
        jobs = int(judged.sum())
        if jobs:
            found.append(
                Calibrated(nominal=offset.failures, observed=float(exceeded.sum()) / jobs, jobs=jobs)
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
    """Return the mean loss by which the growth models' quantile is fitted, one for each row of predictions."""
    over = true - predicted
    loss: Floats = np.maximum(QUANTILE * over, (QUANTILE - 1) * over).mean(axis=1)
    return loss
