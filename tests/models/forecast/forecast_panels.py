"""Panels to forecast: drawn, periodic, and with another future."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.forecast.panel import Panel

T0 = 1_699_920_000  # a midnight, UTC
HOUR_S = 3600


def panel(values: npt.ArrayLike) -> Panel:
    """A panel of one series (a list of values), or of several (steps × series)."""
    columns = np.array(values, np.float64)
    columns = columns.reshape(len(columns), -1)
    return Panel(tuple(f"s{number}" for number in range(columns.shape[1])), columns, T0, HOUR_S)


def drawn(steps: int, series: int = 2, seed: int = 0, season: int = 24) -> Panel:
    """Demand with a daily swing, and noise that lasts for some hours."""
    draw = np.random.default_rng(seed)
    noise = np.zeros((steps, series))
    for step in range(1, steps):
        noise[step] = 0.8 * noise[step - 1] + draw.normal(size=series)
    swing = 10 * np.sin(2 * np.pi * np.arange(steps) / season)
    return panel(np.maximum(30 + swing[:, None] * np.arange(1, series + 1) / series + 2 * noise, 0))


def with_another_future(known: Panel, steps: int, seed: int) -> Panel:
    """The same values up to a step, and random ones after it."""
    values = known.values.copy()
    values[steps:] = np.random.default_rng(seed).uniform(0, 1000, values[steps:].shape)
    return Panel(known.names, values, known.start_s, known.step_s)
