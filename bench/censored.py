"""What to learn from jobs that were killed at a limit, on data whose truth is known.

    python -m bench.censored [--jobs 40000] [--seeds 3] [--format table|json|csv]

Jobs whose need is drawn from a known distribution get limits that cut some of them off. Each way of learning the
quantile sees only what accounting would show. It is judged on fresh jobs by their whole need: the share that the
learned quantile covers, and its distance from the true one. There are three shapes of noise: normal with one width
(what survival:aft assumes), with a width that depends on the job, and with a heavy upper tail; limits cut off few
or many.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import xgboost
from numpy.typing import NDArray

from accounting.frames import Flags, Floats
from bench.arguments import parser_of
from models.demand.features import FEATURES
from models.training.matrix import Inputs, Matrix
from models.training.quantile import QUANTILE, ROUNDS, SETTINGS, fit_quantile, predict, raised
from slurm_plugin.cli.output import note, print_rows

LEFT_OUT, AS_VALUES = "left out", "as values"
RAISED, REFITTED, AFT = "as bounds, raised on the way", "as bounds, fitted thrice", "survival:aft"
# The quantile of a standard normal distribution.
NORMAL_QUANTILE = statistics.NormalDist().inv_cdf(QUANTILE)
DRAWN = 200_000

Noise = Callable[[np.random.Generator, Floats], Floats]
Predict = Callable[[Inputs], NDArray[np.floating]]

# Noise of logarithms, by the job's first feature in 0 … 1.
NOISES: Mapping[str, Noise] = {
    "one width": lambda draw, x: 0.3 * draw.standard_normal(x.shape),
    "many widths": lambda draw, x: (0.05 + 0.6 * x) * draw.standard_normal(x.shape),
    "heavy tail": lambda draw, x: 0.15 * (1 + x) * draw.standard_exponential(x.shape) ** 1.5,
}
# How far the limit lies above the mean of a job's logarithm: low limits cut off many.
LIMITS: Mapping[str, tuple[float, float]] = {"few": (0.4, 1.6), "many": (0.1, 0.9)}


@dataclass(frozen=True)
class Jobs:
    """What is known of jobs at submission, and the logarithm of what they need."""

    inputs: Inputs
    need_log: Floats


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    for noise in NOISES:
        for limits in LIMITS:
            note(f"{noise}, {limits} cut off")
            rows += compare(noise, limits, arguments.jobs, arguments.seeds)
    print_rows(rows, arguments.format, f"Coverage, wanted {QUANTILE:.0%}")


def compare(noise: str, limits: str, jobs: int, seeds: int) -> list[dict[str, object]]:
    """Return a row for each way of learning, as means over seeds."""
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    for seed in range(seeds):
        draw = np.random.default_rng((seed, 17))
        learned, judged = (make(draw, NOISES[noise], jobs) for _ in range(2))
        matrix = cut_off(draw, learned, LIMITS[limits])
        truth = learned_truth(draw, NOISES[noise], judged)
        for way, learn in WAYS.items():
            expected = learn(matrix)(judged.inputs)
            covered = float(np.mean(judged.need_log <= expected))
            error = float(np.mean(np.abs(expected - truth)))
            found[way].append((covered, error, float(matrix.bounded.mean())))
    means = {way: np.mean(each, axis=0).tolist() for way, each in found.items()}
    return [
        {
            "noise": noise,
            "cut off": f"{cut:.1%}",
            "censored jobs are": way,
            "covered": f"{covered:.2%}",
            "error of log quantile": round(error, 3),
        }
        for way, (covered, error, cut) in means.items()
    ]


def make(draw: np.random.Generator, noise: Noise, jobs: int) -> Jobs:
    """Return jobs: their need grows with two features, its spread with the first."""
    inputs = draw.random((jobs, len(FEATURES))).astype(np.float32)
    x = inputs[:, 0].astype(np.float64)
    return Jobs(inputs, _mean_log(inputs) + noise(draw, x))


def _mean_log(inputs: Inputs) -> Floats:
    mean: Floats = 0.5 * np.sin(4 * inputs[:, 1]) + 0.4 * inputs[:, 0]
    return mean.astype(np.float64)


def learned_truth(draw: np.random.Generator, noise: Noise, jobs: Jobs) -> Floats:
    """Return each job's true quantile, interpolated between points with many draws, where it is nearly linear."""
    places = np.linspace(0, 1, 21)
    quantiles = [float(np.quantile(noise(draw, np.full(DRAWN, place)), QUANTILE)) for place in places]
    return _mean_log(jobs.inputs) + np.interp(jobs.inputs[:, 0], places, quantiles)


def cut_off(draw: np.random.Generator, jobs: Jobs, limits: tuple[float, float]) -> Matrix:
    """Return what accounting shows of jobs that are killed if they need more than their limit."""
    limit_log = _mean_log(jobs.inputs) + draw.uniform(*limits, len(jobs.need_log))
    bounded = jobs.need_log > limit_log
    shown_log = np.minimum(jobs.need_log, limit_log)
    return Matrix(jobs.inputs, shown_log, settled=np.ones(len(bounded), np.bool_), bounded=bounded)


def _fitted(matrix: Matrix) -> Predict:
    booster = fit_quantile(matrix)
    return lambda inputs: predict(booster, inputs)


def _values(matrix: Matrix) -> Matrix:
    return Matrix(matrix.inputs, matrix.targets, matrix.settled, np.zeros_like(matrix.bounded))


def left_out(matrix: Matrix) -> Predict:
    """Learn from only the jobs that ran to their end."""
    return _fitted(matrix.part(~matrix.bounded))


def as_values(matrix: Matrix) -> Predict:
    """Learn as if jobs had needed only what they showed."""
    return _fitted(_values(matrix))


def refitted(matrix: Matrix) -> Predict:
    """Fit, raise the bounds to the prediction, and fit again; twice."""
    targets = matrix.targets
    for _ in range(2):
        booster = fit_quantile(_values(Matrix(matrix.inputs, targets, matrix.settled, matrix.bounded)))
        targets = raised(matrix, predict(booster, matrix.inputs))
    return _fitted(_values(Matrix(matrix.inputs, targets, matrix.settled, matrix.bounded)))


def by_aft(matrix: Matrix) -> Predict:
    """Fit XGBoost's accelerated failure time model, choosing its width by the likelihood of a fifth of the jobs."""
    kept = np.arange(len(matrix)) % 5 > 0
    best = min(
        (_aft(matrix, kept, scale) for scale in (0.1, 0.2, 0.3, 0.45, 0.7)), key=lambda found: found[0]
    )
    return best[1]


def _aft(matrix: Matrix, kept: Flags, scale: float) -> tuple[float, Predict]:
    settings = {
        **{
            name: SETTINGS[name]
            for name in ("tree_method", "max_depth", "eta", "min_child_weight", "subsample", "seed")
        },
        "objective": "survival:aft",
        "eval_metric": "aft-nloglik",
        "aft_loss_distribution": "normal",
        "aft_loss_distribution_scale": scale,
    }
    parts = {name: _intervals(matrix.part(rows)) for name, rows in (("fitted", kept), ("judged", ~kept))}
    booster = xgboost.train(settings, parts["fitted"], ROUNDS)
    loss = float(booster.eval(parts["judged"]).rsplit(":", 1)[1])

    def predict_log(inputs: Inputs) -> Floats:
        logs: Floats = np.log(booster.predict(xgboost.DMatrix(inputs))) + scale * NORMAL_QUANTILE
        return logs

    return loss, predict_log


def _intervals(matrix: Matrix) -> xgboost.DMatrix:
    rows = xgboost.DMatrix(matrix.inputs)
    amounts = np.exp(matrix.targets)
    rows.set_float_info("label_lower_bound", amounts)
    rows.set_float_info("label_upper_bound", np.where(matrix.bounded, np.inf, amounts))
    return rows


WAYS: Mapping[str, Callable[[Matrix], Predict]] = {
    LEFT_OUT: left_out,
    AS_VALUES: as_values,
    RAISED: _fitted,
    REFITTED: refitted,
    AFT: by_aft,
}


if __name__ == "__main__":
    main()
