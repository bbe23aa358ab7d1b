"""How a trained model stands to its own rows: calibration on later jobs, what each feature is worth, drift. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy

from models.demand.importance import Floats, Importance, permutation_importances
from models.demand.training import (
    CALIBRATED,
    QUANTILE,
    SEED,
    Fitted,
    Matrix,
    Trained,
    expected_growth,
    fitted_rows,
    offsets_of,
)
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
    later = [index for index in range(fitted_rows(matrix), len(matrix.targets)) if matrix.settled[index]]
    expected = expected_growth(fitted.booster, [matrix.inputs[index] for index in later])
    excess = [matrix.targets[index] - log for index, log in zip(later, expected, strict=True)]
    offset = known.offset(most_failures)
    nominal = max((failures for failures in CALIBRATED if failures <= most_failures), default=most_failures)
    return GrowthHealth(
        dimension=dimension,
        rows=known.rows,
        calibrated_on=known.calibrated_on,
        apart=len(known.apart),
        calibration=calibration_of(excess, [matrix.users[index] for index in later]),
        importance=_importance(fitted, matrix, later),
        weeks=()
        if offset is None
        else calibration_by_week(excess, [matrix.submit_s[index] for index in later], offset, nominal),
    )


def calibration_of(excess: Sequence[float], users: Sequence[str]) -> tuple[Calibrated, ...]:
    """Calibrate on the earlier half, count on the later; shares for which that half is too small are left out."""
    half = len(excess) // 2
    offsets = offsets_of(excess[:half], row_weights(users[:half]) if half else None)
    later = excess[half:]
    return tuple(
        Calibrated(
            nominal=offset.failures,
            observed=sum(value > offset.log_growth for value in later) / len(later),
            jobs=len(later),
        )
        for offset in offsets
    )


def _importance(fitted: Fitted, matrix: Matrix, later: Sequence[int]) -> tuple[Importance, ...]:
    latest = later[-MOST_ROWS:]
    if not latest:
        return ()
    inputs = numpy.asarray([matrix.inputs[index] for index in latest])
    targets = numpy.asarray([matrix.targets[index] for index in latest])

    def predict(rows: Floats) -> Floats:
        return numpy.asarray(expected_growth(fitted.booster, rows), dtype=numpy.float64)

    found = permutation_importances(predict, FEATURES, inputs, targets, SEED, REPEATS, pinball)
    return tuple(sorted(found, key=lambda one: -one.mean))


def pinball(predicted: Floats, true: Floats) -> Floats:
    """Return the mean loss by which the growth models' quantile is fitted, one for each row of predictions."""
    over = true - predicted
    loss: Floats = numpy.maximum(QUANTILE * over, (QUANTILE - 1) * over).mean(axis=1)
    return loss
