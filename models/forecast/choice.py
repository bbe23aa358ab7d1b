"""How much each model counts in the forecast of a series, and how far that may be off: by errors in the backtest. Pure.

Each series decides at each lead: who is best an hour ahead is seldom best a day ahead, and what a day ahead beats
seasonal naive is not what beats it a few hours before. The error is the mean absolute error, as a ratio to that of
seasonal naive at the same origins: it has no unit, and unlike a percentage it bears demand that is zero for days.
Whoever does not beat seasonal naive there is not used. Who does counts by how sure that is: a lead that may be chance
moves the forecast little, and a weighted mean of forecasts errs no more than they do in that mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from models.forecast.backtest import Backtest
from models.forecast.panel import LEAST_ORIGINS, Floats

# Who counts for less is left out, and need not be fitted.
LEAST_WEIGHT = 0.01
# Odds of e to the power of this are as good as certain.
_CERTAIN = 50.0


@dataclass(frozen=True)
class Choice:
    """For each lead and series: how much each method counts, the errors of all, and that of what they say together.

    `weights` (methods × leads × series) add up to 1. `ratios` (the same shape) are errors over that of the floor, NaN
    where a method was not tried often enough; `chosen_ratios` (leads × series) is that of the weighted mean.
    """

    weights: Floats
    ratios: Floats
    chosen_ratios: Floats


def choose(test: Backtest, known: int) -> Choice:
    """Choose by what had come when so many steps were known."""
    residuals = test.residuals(known)
    errors = np.abs(residuals)
    weights = _weights(errors, _independent_share(test))
    together = np.abs(_weighed(weights[:, None], residuals))
    return Choice(weights, _ratios(errors), _ratios(np.stack([errors[0], together]))[1])


def _weights(errors: Floats, share: Floats) -> Floats:
    """Return how much each method counts (methods × leads × series) by errors of methods × origins × leads × series.

    Of n gains on the floor with mean m > 0 and variance v, (1 + m²/v)^(n/2) is how many times likelier they are if the
    lead is real than if there is none (the likelihood ratio behind Student's t). What it exceeds 1 by is a method's
    weight; the floor has 1 for each method that was tried, so that without evidence it is alone. Origins count as the
    `share` (leads) of one that is independent.
    """
    mean, variance, tried = _gains(errors)
    is_ahead = (mean > 0) & (tried >= LEAST_ORIGINS)
    with np.errstate(divide="ignore"):
        odds = np.log1p(np.divide(mean**2, variance, where=is_ahead, out=np.zeros_like(mean)))
    weights: Floats = np.expm1(np.minimum(tried * share[:, None] / 2 * odds, _CERTAIN))
    weights[0] = np.maximum((tried[1:] >= LEAST_ORIGINS).sum(axis=0), 1)
    weights = np.where(weights >= LEAST_WEIGHT * weights.sum(axis=0), weights, 0.0)
    return weights / weights.sum(axis=0)


def _gains(errors: Floats) -> tuple[Floats, Floats, Floats]:
    """Return mean and variance of what each method errs less than the floor, and of how many origins."""
    gains = errors[:1] - errors
    told = ~np.isnan(gains)
    tried = told.sum(axis=1).astype(np.float64)
    mean = np.where(told, gains, 0.0).sum(axis=1) / np.maximum(tried, 1)
    away = np.where(told, gains - mean[:, None], 0.0)
    return mean, (away**2).sum(axis=1) / np.maximum(tried, 1), tried


def _ratios(errors: Floats) -> Floats:
    """Return mean errors over those of the floor at the same origins; 1 for the floor, NaN where too few were tried."""
    told = ~np.isnan(errors + errors[:1])
    ours, floor = (np.where(told, one, 0.0).sum(axis=1) for one in (errors, errors[:1]))
    # A floor without an error cannot be beaten.
    ratios = np.where(floor > 0, ours / np.where(floor > 0, floor, 1.0), np.where(ours > 0, np.inf, 1.0))
    ratios = np.where(told.sum(axis=1) >= LEAST_ORIGINS, ratios, np.nan)
    ratios[0] = 1.0
    return ratios


def forecasts_of(choice: Choice, forecasts: Floats) -> Floats:
    """Return what is forecast (leads × series) of what all methods say (methods × leads × series)."""
    return _weighed(choice.weights, forecasts)


def _weighed(weights: Floats, figures: Floats) -> Floats:
    """Return the weighted mean over methods; NaN where one that counts says nothing."""
    mean: Floats = np.where(weights > 0, weights * figures, 0.0).sum(axis=0)
    return mean


def margins(test: Backtest, choice: Choice, known: int, level: float) -> tuple[Floats, Floats]:
    """Return how far below and above its forecast a value lies with chance `level`: two of leads × series.

    They are quantiles of the residuals of the weighted mean at that lead, rounded outwards as split conformal prediction
    has it (Lei and others, 2018): of n residuals the ⌈(n + 1)·q⌉-th, or the largest where there is none. n are those that
    count as independent: errors a day ahead last for a day, and hundreds of them may tell of a dozen days.
    """
    residuals = _weighed(choice.weights[:, None], test.residuals(known))
    low, high = np.zeros(residuals.shape[1:]), np.zeros(residuals.shape[1:])
    share = _independent_share(test)
    for lead, series in np.ndindex(*low.shape):
        found = residuals[:, lead, series]
        found = np.sort(found[~np.isnan(found)])
        low[lead, series], high[lead, series] = _ends(found, float(share[lead]), level)
    return low, high


def _independent_share(test: Backtest) -> Floats:
    """Return as how many of an origin each counts, lead by lead: forecasts that overlap err much the same."""
    every = int(test.origins[1] - test.origins[0]) if len(test.origins) > 1 else 1
    share: Floats = np.minimum(1.0, every / np.arange(1, test.came.shape[1] + 1))
    return share


def _ends(residuals: Floats, share: float, level: float) -> tuple[float, float]:
    """Return the two ends of the middle `level` of sorted residuals, of which each counts as so much of one."""
    count = len(residuals)
    if not count:
        return 0.0, 0.0
    place = min(count, math.ceil((count + 1 / share) * (1 + level) / 2)) - 1
    return float(residuals[count - 1 - place]), float(residuals[place])
