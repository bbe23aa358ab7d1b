"""Which model forecasts a series, and how far it may be off: both by its errors in the backtest. Pure.

Each series chooses at each band of leads: who is best an hour ahead is seldom best a day ahead. The error is the mean
absolute error, as a ratio to that of seasonal naive at the same origins: it has no unit, and unlike a percentage it
bears demand that is zero for days. Whoever does not beat seasonal naive there, by a standard error at least, is not
used; of the others the one whose gain less its standard error is largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from models.forecast.backtest import Backtest
from models.forecast.panel import LEAST_ORIGINS, Floats, Ints, bands


@dataclass(frozen=True)
class Choice:
    """For each lead and series: the place of the chosen method, and its error over that of the floor.

    `ratios` (methods × leads × series) are those of all methods; NaN where it was not tried often enough.
    """

    methods: Ints
    ratios: Floats

    @property
    def chosen_ratios(self) -> Floats:
        """The error of what was chosen over that of the floor: leads × series."""
        return _taken(self.ratios, self)


def choose(test: Backtest, known: int) -> Choice:
    """Choose by what had come when so many steps were known."""
    errors = np.abs(test.residuals(known))
    every = int(test.origins[1] - test.origins[0]) if len(test.origins) > 1 else 1
    band = bands(errors.shape[2])
    judged = [
        _judge(errors[:, :, band == one], int(np.flatnonzero(band == one)[-1]) + 1, every)
        for one in range(band[-1] + 1)
    ]
    methods, ratios = (np.stack(parts, axis=-2)[..., band, :] for parts in zip(*judged, strict=True))
    return Choice(methods, ratios)


def _judge(errors: Floats, lead: int, every: int) -> tuple[Ints, Floats]:
    """Return who is chosen in a band up to a lead (series), and all ratios (methods × series).

    `errors` are methods × origins × leads × series, the origins so many steps apart. Errors of forecasts that overlap
    are much the same, so that so many origins count as one each lead.
    """
    told = ~np.isnan(errors + errors[:1])
    counts = told.sum(axis=2)
    means = np.where(told, errors, 0.0).sum(axis=2) / np.maximum(counts, 1)
    floors = np.where(told, errors[:1], 0.0).sum(axis=2) / np.maximum(counts, 1)
    tried = (counts > 0).sum(axis=1)
    ours, floor = (one.sum(axis=1) / np.maximum(tried, 1) for one in (means, floors))
    # A floor without an error cannot be beaten.
    ratios = np.where(floor > 0, ours / np.where(floor > 0, floor, 1.0), np.where(ours > 0, np.inf, 1.0))
    gain = np.where(counts > 0, means - floors - (ours - floor)[:, None], 0.0)
    independent = np.maximum(tried * min(1.0, every / lead), 1.0)
    doubt = np.sqrt((gain**2).sum(axis=1) / np.maximum(tried, 1) / independent)
    enough = tried >= LEAST_ORIGINS
    enough[0] = True
    worth = np.where(enough, ours - floor + doubt, np.inf)
    worth[0] = 0.0
    ratios[0] = 1.0
    return worth.argmin(axis=0), np.where(enough, ratios, np.nan)


def forecasts_of(choice: Choice, forecasts: Floats) -> Floats:
    """Return the chosen method's forecasts (leads × series) of those of all (methods × leads × series)."""
    return _taken(forecasts, choice)


def _taken(figures: Floats, choice: Choice) -> Floats:
    taken: Floats = np.take_along_axis(figures, choice.methods[None], axis=0)[0]
    return taken


def margins(test: Backtest, choice: Choice, known: int, level: float) -> tuple[Floats, Floats]:
    """Return how far below and above its forecast a value lies with chance `level`: two of leads × series.

    They are quantiles of the chosen method's own residuals in that band of leads, rounded outwards as split conformal
    prediction has it (Lei and others, 2018): of n residuals the ⌈(n + 1)·q⌉-th, or the largest where there is none.
    """
    residuals = test.residuals(known)
    band = bands(residuals.shape[2])
    low, high = np.zeros(choice.methods.shape), np.zeros(choice.methods.shape)
    for lead, series in np.ndindex(*choice.methods.shape):
        together = band == band[lead]
        if lead and band[lead - 1] == band[lead]:
            low[lead, series], high[lead, series] = low[lead - 1, series], high[lead - 1, series]
            continue
        found = residuals[choice.methods[lead, series]][:, together, series].ravel()
        low[lead, series], high[lead, series] = _ends(np.sort(found[~np.isnan(found)]), level)
    return low, high


def _ends(residuals: Floats, level: float) -> tuple[float, float]:
    """Return the two ends of the middle `level` of sorted residuals."""
    count = len(residuals)
    if not count:
        return 0.0, 0.0
    place = min(count, math.ceil((count + 1) * (1 + level) / 2)) - 1
    return float(residuals[count - 1 - place]), float(residuals[place])
