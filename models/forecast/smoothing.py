"""Exponential smoothing: level, damped trend and additive season, in error-correction form. Pure.

The recursion is that of Holt (1957) and Winters (1960), as Hyndman, Koehler, Ord and Snyder write it (Forecasting
with Exponential Smoothing, 2008, ETS(A,Ad,A)): with e the error of the forecast one step ahead, the level moves by
α·e, the trend by α·β·e, the season by γ·(1 − α)·e. All settings of a grid run at once, and each series takes, for
each band of leads, the one whose forecasts erred least there: the best setting one step ahead follows the last value
too closely to be the best a day ahead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from models.forecast.panel import Floats, Ints, Panel, Predict, Task, bands

ALPHAS = (0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0)
# Strength of the trend, and how much of it is left one step later.
TRENDS = ((0.0, 1.0), (0.1, 0.9))
GAMMAS = (0.0, 0.1, 0.3)
_GRID = np.array([(a, b, phi, g) for a, (b, phi), g in itertools.product(ALPHAS, TRENDS, GAMMAS)])


@dataclass(frozen=True)
class State:
    """After some steps: level and trend (settings × series), and the season (places × settings × series)."""

    level: Floats
    trend: Floats
    season: Floats

    def forecast(self, steps: int, horizon: int) -> Floats:
        """Return what follows `steps` known steps: leads × settings × series."""
        leads = np.arange(1, horizon + 1)
        damping = np.cumsum(_GRID[:, 2] ** leads[:, None], axis=0)
        places = (steps + leads - 1) % len(self.season)
        forecasts: Floats = self.level + damping[:, :, None] * self.trend + self.season[places]
        return forecasts


def smoothing(past: Panel, task: Task) -> Predict:
    """Choose a setting for each lead and series by what it would have forecast in the past."""
    chosen = _settings(past.values, task)
    leads, series = np.arange(task.horizon)[:, None], np.arange(len(past.names))[None]

    def predict(panel: Panel, origins: Ints) -> Floats:
        wanted = set(origins.tolist())
        found = {
            steps: state.forecast(steps, task.horizon)[leads, chosen, series]
            for steps, state in states(panel.values[: max(wanted)], task.season)
            if steps in wanted
        }
        return np.array([found[origin] for origin in origins.tolist()])

    return predict


def states(values: Floats, season: int) -> Iterator[tuple[int, State]]:
    """Yield the number of steps and the state after each of them, from the end of the first season on."""
    alpha, beta, phi, gamma = (column[:, None] for column in _GRID.T)
    shape = (len(_GRID), values.shape[1])
    level = np.broadcast_to(values[:season].mean(axis=0), shape)
    trend, seasons = np.zeros(shape), np.zeros((season, *shape))
    for step, value in enumerate(values):
        place = step % season
        moved = level + phi * trend
        error = value - moved - seasons[place]
        level, trend = moved + alpha * error, phi * trend + alpha * beta * error
        seasons[place] += gamma * (1 - alpha) * error
        if step + 1 >= season:
            yield step + 1, State(level, trend, seasons)


def _settings(values: Floats, task: Task) -> Ints:
    """Return the best setting for each lead (of its band) and series: leads × series."""
    errors = np.zeros((task.horizon, len(_GRID), values.shape[1]))
    for steps, state in states(values, task.season):
        came = values[steps : steps + task.horizon]
        if len(came):
            errors[: len(came)] += np.abs(state.forecast(steps, task.horizon)[: len(came)] - came[:, None])
    band = bands(task.horizon)
    of_band = np.array([errors[band == one].sum(axis=0).argmin(axis=0) for one in range(band[-1] + 1)])
    return of_band[band]
