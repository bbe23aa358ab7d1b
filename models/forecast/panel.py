"""Series of demand on one clock, what is asked of a forecast, and the one shape of every model. Pure.

A model is a function `Fit`: from the known steps and a task to a `Predict`. That takes a panel and origins; an origin
is the number of steps known there, and a forecast may use only those. Tests hold every model to it: changing what
lies after an origin changes no forecast made at it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DAY_S = 86_400
WEEK_STEPS = 7
# A season is known once it has been seen twice.
FIT_SEASONS = 2
# The longest lead must have been tried from this many origins: fewer say nothing about the ends of an interval.
LEAST_ORIGINS = 24


@dataclass(frozen=True)
class Panel:
    """Demand of several series (columns) at the same steps (rows).

    `values` are means over each step; the first step begins at `start_s` (unix seconds), and each lasts `step_s`.
    """

    names: tuple[str, ...]
    values: Floats
    start_s: int
    step_s: int

    def known(self, steps: int) -> Panel:
        """Return the first `steps` steps."""
        return replace(self, values=self.values[:steps])

    def latest(self, steps: int) -> Panel:
        """Return the last `steps` steps."""
        left_out = max(0, len(self.values) - steps)
        start_s = self.start_s + left_out * self.step_s
        return replace(self, values=self.values[left_out:], start_s=start_s)

    @property
    def end_s(self) -> int:
        """When the last step ends, in unix seconds."""
        return self.start_s + len(self.values) * self.step_s


@dataclass(frozen=True)
class Task:
    """What is asked: `horizon` steps ahead, of series with `season` steps a season; `seed` is for what is drawn."""

    horizon: int
    season: int
    seed: int = 0

    @property
    def least_steps(self) -> int:
        """How many steps must be known: two seasons to fit on, and then every lead, tried from enough origins."""
        return FIT_SEASONS * self.season + self.horizon + LEAST_ORIGINS - 1


# (panel, origins) → forecasts, origins × horizon × series: [i, k] is of step origins[i] + k.
Predict = Callable[[Panel, Ints], Floats]
Fit = Callable[[Panel, Task], Predict]


def season_steps(step_s: int) -> int:
    """Return how many steps a season has: a day's, or a week's if a step is a day or more."""
    return max(2, round(DAY_S / step_s)) if step_s < DAY_S else WEEK_STEPS


def bands(horizon: int) -> Ints:
    """Return the band of each lead from 1 on (0, 1, 1, 2, 2, 2, 2, 3, …): leads whose errors are taken together.

    Errors change with the logarithm of the lead, so each band is twice as wide as the one before.
    """
    return np.array([lead.bit_length() - 1 for lead in range(1, horizon + 1)], np.int64)
