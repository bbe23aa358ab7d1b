"""The models to choose from, in one table. The first is the floor that another must beat to be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from models.forecast.boosted_lags import boosted_lags
from models.forecast.naive import last_value, seasonal_naive
from models.forecast.panel import FIT_SEASONS, Fit, Floats, Ints, Panel, Task
from models.forecast.principal_lstm import INSTALL, is_installed, least_steps, principal_lstm
from models.forecast.smoothing import smoothing


def two_seasons(task: Task) -> int:
    """Return how many steps most models need."""
    return FIT_SEASONS * task.season


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A model by name: what it fits, or the names of earlier models whose mean it is.

    `least_steps` is how many steps it needs, `missing` says what to install ('': nothing).
    """

    name: str
    fit: Fit | None = None
    mean_of: tuple[str, ...] = ()
    least_steps: Callable[[Task], int] = two_seasons
    missing: str = ""


def methods() -> Sequence[Method]:
    """Return all models, including those that cannot run here."""
    three = ("last value", "exponential smoothing", "boosted lags")
    return (
        Method(name="seasonal naive", fit=seasonal_naive),
        Method(name=three[0], fit=last_value),
        Method(name=three[1], fit=smoothing),
        Method(name=three[2], fit=boosted_lags, least_steps=lambda task: 3 * task.season + task.horizon),
        Method(
            name="PCA+LSTM",
            fit=principal_lstm,
            least_steps=least_steps,
            missing="" if is_installed() else INSTALL,
        ),
        Method(name="mean of three", mean_of=three),
    )


def forecast_all(methods: Sequence[Method], past: Panel, panel: Panel, origins: Ints, task: Task) -> Floats:
    """Fit every model on the past; return what each forecasts: methods × origins × leads × series, 0 or more.

    A model that needs more steps than the past has, or a library that is not installed, forecasts NaN.
    """
    places = {method.name: number for number, method in enumerate(methods)}
    forecasts = np.full((len(methods), len(origins), task.horizon, len(panel.names)), np.nan)
    for number, method in enumerate(methods):
        if method.mean_of:
            forecasts[number] = forecasts[[places[name] for name in method.mean_of]].mean(axis=0)
        elif method.fit and not method.missing and len(past.values) >= method.least_steps(task):
            forecasts[number] = np.maximum(method.fit(past, task)(panel, origins), 0.0)
    return forecasts
