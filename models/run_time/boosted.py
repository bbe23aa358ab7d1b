"""Boosted trees over run time that start from a law (laws.py), which is XGBoost's base margin.

With some dozens of jobs per type, the law carries the scale, and the trees, kept small, learn what it gets wrong.
Each way to learn is one row of WAYS; search.py chooses those that suit a type, on the jobs to learn from.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy
import xgboost

from models.run_time.importance import Fit, Floats, Predict
from models.run_time.laws import FitLaw, Law, affine_law, both_laws, median_law, power_law

Setting = str | int | float

# `exact` splits between two values; `hist` splits at one of them, which with few jobs costs a third of the accuracy.
SMALL: Mapping[str, Setting] = {"max_depth": 3, "eta": 0.05, "min_child_weight": 3, "subsample": 0.8}
BOOSTED: Mapping[str, Setting] = {**SMALL, "objective": "reg:squarederror", "tree_method": "exact"}
# Fits the median of what the law leaves, as the mean absolute error asks for; this objective has no `exact`.
ABSOLUTE: Mapping[str, Setting] = {**SMALL, "objective": "reg:absoluteerror", "tree_method": "hist"}
# A few stumps at most, each over many jobs: for types whose resources say little.
CAUTIOUS: Mapping[str, Setting] = {**ABSOLUTE, "max_depth": 1, "min_child_weight": 10}
# Many deep trees in one round, each on a part of the jobs: XGBoost's own forest.
FOREST: Mapping[str, Setting] = {
    "objective": "reg:squarederror",
    "tree_method": "exact",
    "max_depth": 12,
    "eta": 1.0,
    "min_child_weight": 1,
    "subsample": 0.632,
    "reg_lambda": 0,
    "num_parallel_tree": 150,
}
# Fits that differ only in their seed, averaged.
SEEDS = 3


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way to learn: the law to start from (None: the mean), how trees grow, and `log`: from log run time."""

    law: FitLaw | None
    settings: Mapping[str, Setting]
    rounds: int
    seeds: int = SEEDS
    log: bool = True


WAYS: Mapping[str, Way] = {
    f"{name} law, {trees}": Way(law=law, settings=settings, rounds=rounds, seeds=seeds)
    for name, law in (("power", power_law), ("affine", affine_law), ("both", both_laws))
    for trees, settings, rounds, seeds in (
        ("boosted", BOOSTED, 100, SEEDS),
        ("absolute error", ABSOLUTE, 100, SEEDS),
        ("boosted forest", FOREST, 1, 1),
    )
} | {
    "median, a few stumps": Way(law=median_law, settings=CAUTIOUS, rounds=20),
    "no law, boosted": Way(law=None, settings={**BOOSTED, "max_depth": 4}, rounds=200, log=False),
    "no law, boosted forest": Way(law=None, settings=FOREST, rounds=1, seeds=1, log=False),
}


def boosted_ways(seed: int) -> dict[str, Fit]:
    """Return the boosted trees to choose among."""
    return {name: boosted(way, seed) for name, way in WAYS.items()}


def boosted(way: Way, seed: int) -> Fit:
    """Return a way to learn as a function from jobs to a predictor. The same jobs and seed give the same trees."""

    def fit(amounts: Floats, run_s: Floats) -> Predict:
        start = _start(way, amounts, run_s)
        rows = xgboost.DMatrix(
            amounts, label=numpy.log(run_s) if way.log else run_s, base_margin=start(amounts)
        )
        grown = [
            xgboost.train(
                {**way.settings, "base_score": 0, "nthread": 1, "seed": seed + number}, rows, way.rounds
            )
            for number in range(way.seeds)
        ]
        shortest_s = float(run_s.min()) / 2

        def predict(amounts: Floats) -> Floats:
            margin = start(amounts).astype(numpy.float32)
            answers = [
                booster.inplace_predict(amounts, base_margin=margin).astype(numpy.float64)
                for booster in grown
            ]
            answer: Floats = numpy.mean(answers, axis=0)
            return numpy.exp(answer) if way.log else numpy.maximum(answer, shortest_s)

        return predict

    return fit


def _start(way: Way, amounts: Floats, run_s: Floats) -> Law:
    if way.law is not None:
        return way.law(amounts, run_s)
    mean = float(numpy.log(run_s).mean() if way.log else run_s.mean())
    return lambda rows: numpy.full(len(rows), mean)
