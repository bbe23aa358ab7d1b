"""What each model would have forecast in the past: rolling origin, fitted on what was known there alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from models.forecast.methods import Method
from models.forecast.panel import Floats, Ints, Panel, Task


@dataclass(frozen=True)
class Backtest:
    """Forecasts (methods × origins × leads × series) and what came (origins × leads × series); NaN = not known.

    The first method is the floor. `origins` are in ascending order.
    """

    methods: tuple[str, ...]
    origins: Ints
    forecasts: Floats
    came: Floats

    def residuals(self, known: int) -> Floats:
        """Return what came less what was forecast, where it had come by the time so many steps were known."""
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
    """Forecast at every origin, with models that are fitted anew every so many steps. `tell` takes the share done.

    A model that needs more steps than are known at an origin, or a library that is not there, forecasts NaN there.
    """
    blocks = _blocks(origins, refit_every)
    forecasts = np.full((len(methods), len(origins), task.horizon, len(panel.names)), np.nan)
    done = 0
    for number, method in enumerate(methods):
        for begin, end in blocks:
            first = int(origins[begin])
            if not method.missing and first >= method.least_steps(task):
                predict = method.fit(panel.known(first), task)
                found = predict(panel.known(int(origins[end - 1])), origins[begin:end])
                forecasts[number, begin:end] = np.maximum(found, 0.0)
            done += 1
            tell(done / (len(methods) * len(blocks)))
    return Backtest(tuple(one.name for one in methods), origins, forecasts, _came(panel, origins, task.horizon))


def _blocks(origins: Ints, refit_every: int) -> list[tuple[int, int]]:
    """Return the begin and end of each run of origins that are forecast by one fit, made at the first of them."""
    block = (origins - origins[0]) // refit_every
    begins = np.flatnonzero(np.diff(block, prepend=-1))
    return list(zip(begins.tolist(), [*begins[1:].tolist(), len(origins)], strict=True))


def _came(panel: Panel, origins: Ints, horizon: int) -> Floats:
    places = origins[:, None] + np.arange(horizon)
    steps = len(panel.values)
    values = panel.values[np.minimum(places, steps - 1)]
    return np.where((places < steps)[:, :, None], values, np.nan)
