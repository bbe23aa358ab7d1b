"""How close trees fitted on Dask workers come to trees fitted here: loss and coverage on fresh jobs.

    python -m bench.dask_engine --workers 2 --rows 250 1000 4000 10000

Jobs are drawn; with `cut off`, some end at their own limits. The wanted coverage is 98 %.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost
from distributed import Client, LocalCluster

from accounting.frames import Floats
from bench.arguments import parser_of
from models.demand.features import FEATURES
from models.judging.health import pinball
from models.training.dask_engine import dask_fit
from models.training.matrix import Matrix
from models.training.quantile import fit_quantile, predict
from slurm_plugin.cli.output import print_rows

FRESH, SEEDS = 20_000, (1, 2, 3)
# Any number of rows is accepted, however small, because that is what is examined here.
LEAST_ROWS = 1


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="+", default=[250, 1000, 4000, 10_000], help="a worker")
    arguments = parser.parse_args()
    with (
        LocalCluster(
            n_workers=arguments.workers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        rows = [
            compared(client, each, each * arguments.workers, cut_off=cut_off)
            for cut_off in (False, True)
            for each in arguments.rows
        ]
    print_rows(rows, arguments.format, f"{arguments.workers} workers, means of {len(SEEDS)} seeds")


def compared(client: Client, each: int, jobs: int, *, cut_off: bool) -> dict[str, object]:
    """Return a row of the table."""
    found = np.mean([both(client, jobs, seed, cut_off=cut_off) for seed in SEEDS], axis=0).tolist()
    columns = ("loss, local", "loss, dask", "covered, local", "covered, dask")
    figures = dict(zip(columns, (f"{value:.4f}" for value in found), strict=True))
    return {"rows a worker": each, "cut off": "by limits" if cut_off else "none", **figures}


def both(client: Client, jobs: int, seed: int, *, cut_off: bool) -> tuple[float, float, float, float]:
    """Return the loss of both engines on fresh jobs, and then the coverage of both."""
    matrix, _ = drawn(jobs, seed, cut_off=cut_off)
    fresh, need = drawn(FRESH, seed + 100, cut_off=False)
    weights = np.random.default_rng(seed).random(jobs)
    here, there = fit_quantile(matrix, weights), dask_fit(client, LEAST_ROWS)(matrix, weights)
    return (
        loss(here, fresh, need),
        loss(there, fresh, need),
        covered(here, fresh, need),
        covered(there, fresh, need),
    )


def drawn(jobs: int, seed: int, *, cut_off: bool) -> tuple[Matrix, Any]:
    """Return jobs whose growth depends on two features, some cut off at their own limits, and what they needed."""
    draw = np.random.default_rng(seed)
    inputs = draw.random((jobs, len(FEATURES))).astype(np.float32)
    need = inputs[:, 0] + draw.normal(0, 0.1 + 0.3 * inputs[:, 1], jobs)
    limit = inputs[:, 0] + 1.5 * draw.random(jobs) if cut_off else np.full(jobs, np.inf)
    bounded = need > limit
    return Matrix(inputs, np.minimum(need, limit), np.ones(jobs, np.bool_), bounded), need


def loss(booster: xgboost.Booster, fresh: Matrix, need: Floats) -> float:
    """Return the pinball loss on fresh jobs."""
    return float(pinball(predict(booster, fresh.inputs)[None, :].astype(np.float64), need)[0])


def covered(booster: xgboost.Booster, fresh: Matrix, need: Floats) -> float:
    """Return the share of fresh jobs that need no more than predicted."""
    return float(np.mean(need <= predict(booster, fresh.inputs)))


if __name__ == "__main__":
    main()
