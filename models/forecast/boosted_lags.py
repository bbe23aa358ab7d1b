"""Gradient-boosted trees over past values: one model for all series and leads, by XGBoost. Pure.

A row is an origin, a lead and a series. Its features are how far earlier values and running means lie from the last
value, in the unit of that series and lead (the mean absolute move of the series over the lead), and where in day and
week the target lies. The trees learn how far the target lies from the last value, by absolute error. So a few series
of a few weeks make enough rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xgboost

from models.forecast.panel import DAY_S, WEEK_STEPS, Floats, Ints, Panel, Predict, Task

SETTINGS: Mapping[str, str | int | float] = {
    "objective": "reg:absoluteerror",
    "tree_method": "hist",
    "max_depth": 5,
    "eta": 0.05,
    "base_score": 0.0,
    "min_child_weight": 30,
    "subsample": 0.7,
    "colsample_bytree": 0.7,
    "nthread": 1,
}
ROUNDS, PATIENCE = 300, 15
TRIAL_SHARE = 0.2
MOST_ROWS = 80_000
# The most leads to learn from: more of them would lie close together, and say the same.
MOST_LEADS = 24
_EPOCH_WEEKDAY = 4  # 1970-01-01 was a Thursday


@dataclass(frozen=True)
class _Rows:
    """Cells to forecast: the origin (steps known), lead and series of each."""

    origins: Ints
    leads: Ints
    series: Ints


def boosted_lags(past: Panel, task: Task) -> Predict:
    """Grow the trees on the known steps, in as many rounds as do best on the last fifth of them."""
    scale = _usual_moves(past.values, task.horizon)
    rows = _training_rows(past, task)
    now = past.values[rows.origins - 1, rows.series]
    target = (past.values[rows.origins + rows.leads - 1, rows.series] - now) / scale[
        rows.leads - 1, rows.series
    ]
    features = _features(past, rows, scale, task)
    cut = int(len(past.values) * (1 - TRIAL_SHARE))
    before, after = rows.origins + rows.leads <= cut, rows.origins >= cut
    settings = {**SETTINGS, "seed": task.seed}
    trial = xgboost.train(
        settings,
        xgboost.DMatrix(features[before], label=target[before]),
        ROUNDS,
        evals=[(xgboost.DMatrix(features[after], label=target[after]), "after")],
        early_stopping_rounds=PATIENCE,
        verbose_eval=False,
    )
    trees = xgboost.train(settings, xgboost.DMatrix(features, label=target), trial.best_iteration + 1)

    def predict(panel: Panel, origins: Ints) -> Floats:
        shape = (len(origins), task.horizon, panel.values.shape[1])
        at, lead, series = (places.ravel() for places in np.indices(shape))
        rows = _Rows(origins[at], lead + 1, series)
        moves = trees.inplace_predict(_features(panel, rows, scale, task)).astype(np.float64)
        answers: Floats = panel.values[rows.origins - 1, series] + moves * scale[lead, series]
        return answers.reshape(shape)

    return predict


def _usual_moves(values: Floats, horizon: int) -> Floats:
    """Return the mean absolute move of each series over each lead: leads × series, 1 if it never moved."""
    moves = np.ones((horizon, values.shape[1]))
    for lead in range(1, min(horizon, len(values) - 1) + 1):
        move = np.abs(values[lead:] - values[:-lead]).mean(axis=0)
        moves[lead - 1] = np.where(move > 0, move, 1.0)
    return moves


def _training_rows(past: Panel, task: Task) -> _Rows:
    """Return cells whose target is known; a random sample if there are more than needed."""
    steps, series = past.values.shape
    leads = np.unique(np.geomspace(1, task.horizon, MOST_LEADS).round().astype(np.int64))
    if task.horizon <= MOST_LEADS:
        leads = np.arange(1, task.horizon + 1)
    origins, lead, number = (
        places.ravel() for places in np.meshgrid(np.arange(1, steps), leads, np.arange(series), indexing="ij")
    )
    known = np.flatnonzero(origins + lead <= steps)
    if len(known) > MOST_ROWS:
        known = np.sort(np.random.default_rng(task.seed).choice(known, MOST_ROWS, replace=False))
    return _Rows(origins[known], lead[known], number[known])


def _features(panel: Panel, rows: _Rows, scale: Floats, task: Task) -> Floats:
    """Return what each row is forecast from: rows × features, NaN where the past is too short."""
    last, series, season = rows.origins - 1, rows.series, task.season
    unit, now = scale[rows.leads - 1, series], panel.values[last, series]
    sums = np.vstack([np.zeros((1, panel.values.shape[1])), panel.values.cumsum(axis=0)])

    def was(place: Ints) -> Floats:
        value = panel.values[np.maximum(place, 0), series]
        return np.where(place >= 0, (value - now) / unit, np.nan)

    def mean(steps: int) -> Floats:
        begin = rows.origins - steps
        total = sums[rows.origins, series] - sums[np.maximum(begin, 0), series]
        return np.where(begin >= 0, (total / steps - now) / unit, np.nan)

    lags = [was(last - lag) for lag in (1, 2, 3, season // 4, season // 2)]
    means = [mean(steps) for steps in (3, max(2, season // 4), season, 3 * season, WEEK_STEPS * season)]
    everything = (sums[rows.origins, series] / rows.origins - now) / unit
    back = season * -(-rows.leads // season)
    seasonal = [was(last + rows.leads - back - ago * season) for ago in (0, 1, 6)]
    target_s = panel.start_s + (rows.origins + rows.leads - 1) * panel.step_s
    turn = 2 * np.pi * (target_s % DAY_S) / DAY_S
    weekday = (target_s // DAY_S + _EPOCH_WEEKDAY) % 7
    when = [rows.leads, np.sin(turn), np.cos(turn), weekday, now / unit]
    return np.column_stack([*lags, *means, everything, *seasonal, *when]).astype(np.float64)
