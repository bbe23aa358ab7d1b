"""Which model forecasts a series, its weight, and how far it may be off: decided by its errors in the backtest. Pure.

Each series chooses at each lead: the best model an hour ahead is seldom the best a day ahead, and a model that beats
seasonal naive some hours ahead need not beat it a day ahead. The measure is the mean absolute error as a ratio to
that of seasonal naive at the same origins: it has no unit, and unlike a percentage it allows demand that is zero for
days. A model that does not beat seasonal naive there is not used; of the others, the one whose gain less its standard
error is largest is chosen. It is averaged with seasonal naive, and its weight is how certain it is that its gain is
real: a gain that may be chance moves the forecast little, and a weighted mean of two forecasts errs no more than the
same mean of their errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from models.forecast.backtest import Backtest
from models.forecast.panel import LEAST_ORIGINS, Floats, Ints, bands

# A model with less weight would not move the forecast enough to be worth fitting.
LEAST_WEIGHT = 0.1
# How long a far miss lasts, in leads: in a random walk, there is one independent miss of a 90 % interval per 0.54
# leads, and one independent error per lead.
_MISS_LEADS = 0.5
# The deviations of a gain that never varies, and the logarithm of odds that are beyond doubt.
_MOST_DEVIATIONS, _BEYOND_DOUBT = 1e6, 100.0


@dataclass(frozen=True)
class Choice:
    """For each lead and series: the number of the chosen method and its weight; the rest is the floor's.

    `ratios` (methods × leads × series) are the errors of all methods over those of the floor; NaN if tried too
    seldom. `chosen_ratios` (leads × series) are those of the weighted mean of the chosen method and the floor.
    """

    methods: Ints
    weights: Floats
    ratios: Floats
    chosen_ratios: Floats


def choose(test: Backtest, known: int) -> Choice:
    """Choose by what had come when `known` steps were known."""
    residuals = test.residuals(known)
    errors = np.abs(residuals)
    methods, weights = _chosen(errors, _independent_share(test))
    together = np.abs(_together(methods, weights, residuals))
    return Choice(methods, weights, _ratios(errors), _ratios(np.stack([errors[0], together]))[1])


def _chosen(errors: Floats, share: Floats) -> tuple[Ints, Floats]:
    """Return the chosen methods and their weights (leads × series) from errors (methods × origins × leads × series).

    For n gains on the floor with mean m > 0 and variance v, (1 + m²/v)^(n/2) is how many times likelier they are if
    the gain is real than if there is none (the likelihood ratio behind Student's t). The excess of this over 1,
    summed over all methods and divided by the number of methods tried, gives the odds on the chosen one: the best of
    many methods is ahead by chance, too. Each origin counts as a `share` (leads) of an independent one.
    """
    mean, deviation, tried = _gains(errors)
    independent = np.maximum(tried * share[:, None], 1.0)
    enough = tried >= LEAST_ORIGINS
    is_ahead = enough & (mean > 0)
    deviations = np.zeros_like(mean)
    np.divide(mean, np.maximum(deviation, mean / _MOST_DEVIATIONS), where=is_ahead, out=deviations)
    evidence = np.minimum(independent / 2 * np.log1p(deviations**2), _BEYOND_DOUBT)
    odds = np.expm1(evidence).sum(axis=0) / np.maximum(enough[1:].sum(axis=0), 1)
    weights = odds / (1 + odds)
    worth = np.where(is_ahead, mean - deviation / np.sqrt(independent), -np.inf)
    used = weights >= LEAST_WEIGHT
    return np.where(used, worth.argmax(axis=0), 0), np.where(used, weights, 0.0)


def _gains(errors: Floats) -> tuple[Floats, Floats, Floats]:
    """Return by how much each method errs less than the floor: mean, standard deviation, and number of origins."""
    gains = errors[:1] - errors
    told = ~np.isnan(gains)
    tried = told.sum(axis=1).astype(np.float64)
    mean = np.where(told, gains, 0.0).sum(axis=1) / np.maximum(tried, 1)
    away = np.where(told, gains - mean[:, None], 0.0)
    return mean, np.sqrt((away**2).sum(axis=1) / np.maximum(tried, 1)), tried


def _ratios(errors: Floats) -> Floats:
    """Return mean errors over those of the floor at the same origins; 1 for the floor, NaN if tried too seldom."""
    told = ~np.isnan(errors + errors[:1])
    ours, floor = (np.where(told, one, 0.0).sum(axis=1) for one in (errors, errors[:1]))
    # A floor without an error cannot be beaten.
    ratios = np.where(floor > 0, ours / np.where(floor > 0, floor, 1.0), np.where(ours > 0, np.inf, 1.0))
    ratios = np.where(told.sum(axis=1) >= LEAST_ORIGINS, ratios, np.nan)
    ratios[0] = 1.0
    return ratios


def forecasts_of(choice: Choice, forecasts: Floats) -> Floats:
    """Return the forecast (leads × series), given those of all methods (methods × leads × series)."""
    return _together(choice.methods, choice.weights, forecasts)


def _together(methods: Ints, weights: Floats, figures: Floats) -> Floats:
    """Return the weighted mean of the figures of chosen method and floor: … × leads × series, from all methods'."""
    ours = np.take_along_axis(figures, methods[(None,) * (figures.ndim - 2)], axis=0)[0]
    together: Floats = weights * ours + (1 - weights) * figures[0]
    return together


def margins(test: Backtest, choice: Choice, known: int, level: float) -> tuple[Floats, Floats]:
    """Return how far below and above its forecast a value lies with probability `level`: two arrays, leads × series.

    These are quantiles of the residuals of the chosen mean in each band of leads, rounded outwards as in split
    conformal prediction (Lei and others, 2018): of n residuals the ⌈(n + 1)·q⌉-th, or the largest if there is none. n
    is the number of independent residuals: a miss a day ahead lasts for hours, so thousands may say no more than a
    few dozen.
    """
    residuals = _together(choice.methods, choice.weights, test.residuals(known))
    band, share = bands(residuals.shape[1]), _independent_share(test, _MISS_LEADS)
    low, high = np.zeros(residuals.shape[1:]), np.zeros(residuals.shape[1:])
    for one, series in np.ndindex(int(band[-1]) + 1, residuals.shape[2]):
        of_band = band == one
        found = residuals[:, of_band, series].ravel()
        each = float(share[of_band][-1]) / of_band.sum()
        ends = _ends(np.sort(found[~np.isnan(found)]), each, level)
        low[of_band, series], high[of_band, series] = ends
    return low, high


def _independent_share(test: Backtest, lasts_leads: float = 1.0) -> Floats:
    """Return as what share of an independent origin each one counts, by lead: forecasts that overlap err alike."""
    every = int(test.origins[1] - test.origins[0]) if len(test.origins) > 1 else 1
    share: Floats = np.minimum(1.0, every / (lasts_leads * np.arange(1, test.came.shape[1] + 1)))
    return share


def _ends(residuals: Floats, share: float, level: float) -> tuple[float, float]:
    """Return the two ends of the middle `level` of sorted residuals, each of which counts as a `share` of one."""
    count = len(residuals)
    if not count:
        return 0.0, 0.0
    place = min(count, math.ceil((count + 1 / share) * (1 + level) / 2)) - 1
    return float(residuals[count - 1 - place]), float(residuals[place])
