"""Which of several ways to learn run times suits a type of jobs, judged on the jobs to learn from alone. Pure.

Each way learns from the earlier jobs and is judged on the next ones, several times over. The best few are averaged,
because with some dozens of jobs the very best is often so by luck. Boosted trees and their peer are chosen alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy

from models.run_time.importance import Fit, Floats, Predict

FOLDS = 3
# The share of the jobs that the first fold learns from.
FIRST_SHARE = 0.4
AVERAGED = 3


def mae_s(predicted_s: Floats, run_s: Floats) -> float:
    """Return the mean absolute error in seconds."""
    return float(numpy.abs(predicted_s - run_s).mean())


def wmape(predicted_s: Floats, run_s: Floats) -> float:
    """Return the sum of absolute errors over the sum of run times."""
    return float(numpy.abs(predicted_s - run_s).sum() / run_s.sum())


def best_ways(ways: Mapping[str, Fit], amounts: Floats, run_s: Floats) -> tuple[str, ...]:
    """Return the names of the best ways, the best first; rows are jobs in the order of time."""
    errors = {name: _error(fit, amounts, run_s) for name, fit in ways.items()}
    return tuple(sorted(errors, key=errors.__getitem__)[:AVERAGED])


def averaged(fits: Sequence[Fit]) -> Fit:
    """Return a way to learn that fits all of these and averages their run times."""

    def fit(amounts: Floats, run_s: Floats) -> Predict:
        predictors = [one(amounts, run_s) for one in fits]

        def predict(rows: Floats) -> Floats:
            mean: Floats = numpy.mean([predictor(rows) for predictor in predictors], axis=0)
            return mean

        return predict

    return fit


def _error(fit: Fit, amounts: Floats, run_s: Floats) -> float:
    errors = [
        numpy.abs(fit(amounts[:split], run_s[:split])(amounts[split:end]) - run_s[split:end]).sum()
        for split, end in _folds(len(run_s))
    ]
    return float(sum(errors))


def _folds(jobs: int) -> Iterator[tuple[int, int]]:
    edges = [int(jobs * (FIRST_SHARE + (1 - FIRST_SHARE) * number / FOLDS)) for number in range(FOLDS)] + [
        jobs
    ]
    yield from itertools.pairwise(edges)
