"""The trees of a growth model: a high quantile of log growth, fitted by XGBoost.

An engine (`Fit`) decides where: `fit_quantile` on this machine, dask_engine.py on others. This module says what is
fitted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xgboost

from accounting.frames import Floats
from models.demand.features import FEATURES
from models.training.matrix import Inputs, Matrix

QUANTILE = 0.98
ROUNDS = 150
# With few rows, what a single tree makes of them is half chance: one more user's jobs moved single predictions of
# others by a tenth. So a round fits several trees, which count by their mean: as many as see this many rows together
# (docs/decisions/0023).
ROWS_A_ROUND, MOST_TREES = 320_000, 16
# After each of these rounds, bounds are raised to what the trees say by then (docs/decisions/0024).
RAISED_AFTER = range(20, ROUNDS, 10)
# On fewer rows, threads wait for each other, on a busy machine for minutes.
THREADED_ROWS = 100_000
SEED = 20260101
# From 3.4 on, XGBoost smooths the loss and steps towards the quantile; before, it put each leaf there. With the old
# rate, the trees then end far above it (docs/decisions/0055).
RELEASE = tuple(int(part) for part in xgboost.__version__.split(".")[:2])
ETA = 0.1 if RELEASE < (3, 4) else 0.2
SETTINGS = {
    "objective": "reg:quantileerror",
    "quantile_alpha": QUANTILE,
    "tree_method": "hist",
    "max_depth": 4,
    "eta": ETA,
    "min_child_weight": 30,
    "subsample": 0.8,
    "colsample_bynode": 0.6,
    "seed": SEED,
}

# An engine: makes trees of rows and the weight of each.
Fit = Callable[[Matrix, Floats], xgboost.Booster]


def fit_quantile(matrix: Matrix, weights: Floats | None = None) -> xgboost.Booster:
    """Fit the quantile of log growth by pinball loss; shallow trees, since the reference carries the scale.

    A bound counts as what the trees so far say of it, if that is more: then it pulls in no direction. To replace a
    censored value by the part of the distribution above it is due to Portnoy (2003); here it is replaced by the
    quantile.
    """
    rows = _dmatrix(matrix.inputs, matrix.targets, weights)
    booster = xgboost.Booster({**settings_of(matrix), "nthread": threads_for(len(matrix))}, [rows])
    for done in range(ROUNDS):
        if done in RAISED_AFTER and matrix.bounded.any():
            rows.set_label(raised(matrix, booster.predict(rows)))
        booster.update(rows, done)
    return booster


def settings_of(matrix: Matrix) -> dict[str, object]:
    """Return SETTINGS, how many trees make a round, and for rows with bounds, where the trees begin.

    They begin at the quantile of the rows that are no bounds. XGBoost would begin at the quantile of all targets. If
    that is a limit at which many jobs were cut off, no row lies above it, all pull alike, and no split is ever made.
    """
    settings = {**SETTINGS, "num_parallel_tree": trees_for(len(matrix))}
    if matrix.bounded.any() and not matrix.bounded.all():
        settings["base_score"] = float(np.quantile(matrix.targets[~matrix.bounded], QUANTILE))
    return settings


def trees_for(rows: int) -> int:
    """Return how many trees a round fits on this many rows."""
    return min(MOST_TREES, max(1, ROWS_A_ROUND // max(1, rows)))


def threads_for(rows: int) -> int:
    """Return how many threads fit this many rows; 0 is one for each core."""
    return 1 if rows < THREADED_ROWS else 0


def raised(matrix: Matrix, expected: Inputs) -> Floats:
    """Return the targets, with bounds at least as high as what is expected of their rows."""
    return np.where(matrix.bounded, np.maximum(matrix.targets, expected), matrix.targets)


def predict(booster: xgboost.Booster, inputs: Inputs) -> Inputs:
    """Return the log growth that a booster expects of each row; `inputs` may be empty."""
    expected: Inputs = booster.predict(_dmatrix(inputs)) if len(inputs) else np.zeros(0, np.float32)
    return expected


def _dmatrix(inputs: Inputs, targets: Floats | None = None, weights: Floats | None = None) -> xgboost.DMatrix:
    return xgboost.DMatrix(
        np.asarray(inputs, dtype=np.float32), label=targets, weight=weights, feature_names=list(FEATURES)
    )


def excess_of(booster: xgboost.Booster, matrix: Matrix) -> Floats:
    """Return by how much each row's growth exceeds what a booster expects; for a bound, a lower bound of that."""
    excess: Floats = matrix.targets - predict(booster, matrix.inputs)
    return excess
