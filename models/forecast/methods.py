"""Which models there are to choose among: one table. The first is the floor that another must beat to be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from models.forecast.boosted_lags import boosted_lags
from models.forecast.naive import last_value, seasonal_naive
from models.forecast.panel import FIT_SEASONS, Fit, Task
from models.forecast.principal_lstm import INSTALL, is_installed, least_steps, principal_lstm
from models.forecast.smoothing import smoothing


def two_seasons(task: Task) -> int:
    """Return what most models need."""
    return FIT_SEASONS * task.season


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A model by name; `least_steps` are what it needs, `missing` says what to install ('': nothing)."""

    name: str
    fit: Fit
    least_steps: Callable[[Task], int] = two_seasons
    missing: str = ""


def methods() -> Sequence[Method]:
    """Return all models, those that cannot run here too."""
    return (
        Method(name="seasonal naive", fit=seasonal_naive),
        Method(name="last value", fit=last_value),
        Method(name="exponential smoothing", fit=smoothing),
        Method(name="boosted lags", fit=boosted_lags, least_steps=lambda task: 3 * task.season + task.horizon),
        Method(
            name="PCA+LSTM",
            fit=principal_lstm,
            least_steps=least_steps,
            missing="" if is_installed() else INSTALL,
        ),
    )
