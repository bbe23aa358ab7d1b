"""What each model would have forecast in the past: rolling origin, fitted only on what was known there. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from models.forecast.methods import Method, forecast_all
from models.forecast.panel import Floats, Ints, Panel, Task


@dataclass(frozen=True)
class Backtest:
    """Forecasts (methods × origins × leads × series) and what came (origins × leads × series); NaN: not known.

    The first method is the floor. `origins` are in ascending order.
    """

    methods: tuple[str, ...]
    origins: Ints
    forecasts: Floats
    came: Floats

    def residuals(self, known: int) -> Floats:
        """Return what came less what was forecast, NaN where it had not come when `known` steps were known."""
        leads = np.arange(1, self.came.shape[1] + 1)
        has_come = self.origins[:, None] + leads <= known
        return np.where(has_come[None, :, :, None], self.came - self.forecasts, np.nan)


def backtest(
    panel: Panel,
    task: Task,
    methods: Sequence[Method],
    origins: Ints,
    refit_every: int,
    tell: Callable[[float], None] = lambda _: None,
) -> Backtest:
    """Forecast at every origin, with models fitted anew every `refit_every` steps. `tell` takes the share done."""
    blocks, forecasts = _blocks(origins, refit_every), []
    for number, (begin, end) in enumerate(blocks, start=1):
        past, panel_then = panel.known(int(origins[begin])), panel.known(int(origins[end - 1]))
        forecasts.append(forecast_all(methods, past, panel_then, origins[begin:end], task))
        tell(number / len(blocks))
    return Backtest(
        methods=tuple(one.name for one in methods),
        origins=origins,
        forecasts=np.concatenate(forecasts, axis=1),
        came=_came(panel, origins, task.horizon),
    )


def _blocks(origins: Ints, refit_every: int) -> list[tuple[int, int]]:
    """Return the begin and end of each run of origins that share one fit, made at the first of them."""
    block = (origins - origins[0]) // refit_every
    begins = np.flatnonzero(np.diff(block, prepend=-1))
    return list(zip(begins.tolist(), [*begins[1:].tolist(), len(origins)], strict=True))


def _came(panel: Panel, origins: Ints, horizon: int) -> Floats:
    places = origins[:, None] + np.arange(horizon)
    steps = len(panel.values)
    values = panel.values[np.minimum(places, steps - 1)]
    return np.where((places < steps)[:, :, None], values, np.nan)
