"""Simple laws of run time over resources, for trees to start from. Pure.

To a job beyond all that they have seen, trees give the run time of the largest one. A law says how run time goes on,
and needs few jobs for it; the trees then learn what it gets wrong. No law is trusted far beyond what was seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import numpy.typing as npt

Floats = npt.NDArray[numpy.float64]
# Amounts (jobs × resources; NaN: not known) to the logarithm of run time in seconds, one for each job.
Law = Callable[[Floats], Floats]
FitLaw = Callable[[Floats, Floats], Law]

# Below this amount, in the unit of its column, a logarithm says nothing.
LEAST_AMOUNT = 1e-3
LEAST_SPREAD = 1e-9
# Ridge penalty for columns of spread one.
PENALTY = 0.1
# No answer is further than this factor beyond the shortest and the longest run that were seen.
BEYOND = 2.0


def power_law(amounts: Floats, run_s: Floats) -> Law:
    """Fit run time as a product of powers of the amounts: work over speed, whatever the units."""
    logs = _logs(amounts)
    columns = _standard(logs)
    target = numpy.log(run_s)
    weights = _ridge(columns(logs), target, numpy.ones(len(target)))
    return _bounded(lambda rows: _applied(columns(_logs(rows)), weights), run_s)


def affine_law(amounts: Floats, run_s: Floats) -> Law:
    """Fit run time as a fixed part plus a part per unit of each amount; each job counts by its relative error."""
    columns = _standard(amounts)
    weights = _ridge(columns(amounts), run_s, 1 / run_s)
    shortest_s = float(run_s.min()) / BEYOND

    def log_run_s(rows: Floats) -> Floats:
        answer: Floats = numpy.log(numpy.maximum(_applied(columns(rows), weights), shortest_s))
        return answer

    return _bounded(log_run_s, run_s)


def both_laws(amounts: Floats, run_s: Floats) -> Law:
    """Fit both laws and take their geometric mean: their errors are of different kinds."""
    power, affine = power_law(amounts, run_s), affine_law(amounts, run_s)
    return lambda rows: (power(rows) + affine(rows)) / 2


def median_law(_amounts: Floats, run_s: Floats) -> Law:
    """Predict the median for every job: if resources say nothing, anything else is worse."""
    median = math.log(float(numpy.median(run_s)))
    return lambda rows: numpy.full(len(rows), median)


def _logs(amounts: Floats) -> Floats:
    logs: Floats = numpy.log(numpy.maximum(amounts, LEAST_AMOUNT))
    return logs


def _standard(amounts: Floats) -> Callable[[Floats], Floats]:
    """Return what scales columns to mean 0 and spread 1; a column's unknown amounts count as its mean."""
    known = ~numpy.isnan(amounts)
    count = numpy.maximum(known.sum(axis=0), 1)
    mean = numpy.where(known, amounts, 0.0).sum(axis=0) / count
    spread = numpy.sqrt(numpy.where(known, (amounts - mean) ** 2, 0.0).sum(axis=0) / count) + LEAST_SPREAD
    return lambda rows: numpy.nan_to_num((rows - mean) / spread, nan=0.0)


def _ridge(columns: Floats, target: Floats, weight: Floats) -> Floats:
    """Return the intercept, which is not penalised, and the weights of weighted ridge regression."""
    rows: Floats = numpy.column_stack([numpy.ones(len(columns)), columns]) * weight[:, None]
    penalty = PENALTY * float(numpy.mean(weight**2)) * numpy.eye(rows.shape[1])
    penalty[0, 0] = 0.0
    solved = numpy.linalg.solve(rows.T @ rows + penalty, rows.T @ (target * weight))
    return numpy.asarray(solved, dtype=numpy.float64)


def _applied(columns: Floats, weights: Floats) -> Floats:
    applied: Floats = weights[0] + columns @ weights[1:]
    return applied


def _bounded(law: Law, run_s: Floats) -> Law:
    lowest = math.log(float(run_s.min()) / BEYOND)
    highest = math.log(float(run_s.max()) * BEYOND)
    return lambda rows: numpy.clip(law(rows), lowest, highest)
