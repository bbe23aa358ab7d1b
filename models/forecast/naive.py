"""Two simple models: the value a season ago, which is the floor, and the last value. Pure."""

from __future__ import annotations

import numpy as np

from models.forecast.panel import Floats, Ints, Panel, Predict, Task


def seasonal_naive(past: Panel, task: Task) -> Predict:  # noqa: ARG001 (nothing is fitted)
    """Return the value at the same place in the last known season: exact on a periodic series."""
    leads = np.arange(1, task.horizon + 1)
    back = task.season * -(-leads // task.season)

    def predict(panel: Panel, origins: Ints) -> Floats:
        values: Floats = panel.values[origins[:, None] - 1 + leads - back]
        return values

    return predict


def last_value(past: Panel, task: Task) -> Predict:  # noqa: ARG001 (nothing is fitted)
    """Return the last known value at every lead: hard to beat at short leads."""

    def predict(panel: Panel, origins: Ints) -> Floats:
        return np.repeat(panel.values[origins - 1][:, None], task.horizon, axis=1)

    return predict
