"""A whole forecast: models tried on the past, one chosen per series and lead, intervals from its errors. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from accounting.errors import SeriesError
from models.forecast.backtest import backtest
from models.forecast.choice import Choice, choose, forecasts_of, margins
from models.forecast.methods import Method, forecast_all
from models.forecast.panel import FIT_SEASONS, Floats, Ints, Panel, Task

# The most origins at which models are tried, and how often they are fitted anew meanwhile: more would cost time and
# change little.
MOST_ORIGINS = 240
REFITS = 4


@dataclass(frozen=True)
class Forecast:
    """What comes after a panel: leads × series; `low` to `high` holds the value with the probability asked for."""

    methods: tuple[str, ...]
    choice: Choice
    value: Floats
    low: Floats
    high: Floats

    def method(self, lead: int, series: int) -> str:
        """Return the model that forecasts a series at the lead with this index (0: one step ahead)."""
        return self.methods[int(self.choice.methods[lead, series])]

    def weight(self, lead: int, series: int) -> float:
        """Return the weight of that model, the rest is the floor's; 1 for the floor itself."""
        return float(self.choice.weights[lead, series]) if self.choice.methods[lead, series] else 1.0


def forecast(
    panel: Panel,
    task: Task,
    methods: Sequence[Method],
    level: float,
    tell: Callable[[float], None] = lambda _: None,
) -> Forecast:
    """Forecast every series of a panel. SeriesError if too little is known, or a value is not a demand."""
    check(panel, task)
    steps = len(panel.values)
    origins = trial_origins(steps, task)
    test = backtest(panel, task, methods, origins, -(-(steps - int(origins[0])) // REFITS), tell)
    choice = choose(test, steps)
    latest = forecast_all(_needed(methods, choice), panel, panel, np.array([steps]), task)[:, 0]
    value = forecasts_of(choice, latest)
    low, high = margins(test, choice, steps, level)
    # An interval contains its forecast even if all errors of the past had one sign.
    return Forecast(
        methods=test.methods,
        choice=choice,
        value=value,
        low=np.maximum(value + np.minimum(low, 0.0), 0.0),
        high=value + np.maximum(high, 0.0),
    )


def _needed(methods: Sequence[Method], choice: Choice) -> Sequence[Method]:
    """Return all methods, of which only the floor and those chosen will be fitted."""
    chosen = {methods[number].name for number in {0, *np.unique(choice.methods).tolist()}}
    for method in methods:
        if method.name in chosen:
            chosen.update(method.mean_of)
    return [
        one if one.name in chosen else msgspec.structs.replace(one, fit=None, mean_of=()) for one in methods
    ]


def trial_origins(steps: int, task: Task) -> Ints:
    """Return the origins at which models are tried: every step, or every few, so that all hours of a day occur."""
    first = FIT_SEASONS * task.season
    every = -(-(steps - first) // MOST_ORIGINS)
    while math.gcd(every, task.season) > 1:
        every += 1
    return np.arange(steps - 1, first - 1, -every)[::-1].astype(np.int64)


def check(panel: Panel, task: Task) -> None:
    """Raise SeriesError, with what is there and what is needed, if a panel cannot be forecast."""
    if not panel.names or not panel.values.size:
        raise SeriesError("there is no demand to forecast; read more of the past, or choose another --by")
    values = panel.values
    if not np.isfinite(values).all() or (values < 0).any():
        step, series = (int(place[0]) for place in np.nonzero(~(np.isfinite(values) & (values >= 0))))
        raise SeriesError(
            f"{panel.names[series]} has no usable value at step {step}; correct that row or leave it out"
        )
    if len(values) < task.least_steps:
        each, known, needed = (
            span_text(count * panel.step_s) for count in (1, len(values), task.least_steps)
        )
        raise SeriesError(
            f"{len(values)} steps of {each} are known ({known}), but a forecast of {task.horizon} steps "
            f"needs {task.least_steps} ({needed}); read more of the past (`rightsizer ingest`, a longer "
            "CSV), or give a shorter --horizon or --step"
        )


def span_text(seconds: int) -> str:
    """Return a span of time in words: «3.3 days»."""
    for unit, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= (2 if name == "days" else 1) * unit:
            return f"{seconds / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{seconds} s"
