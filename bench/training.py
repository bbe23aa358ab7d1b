"""Training at a site's scale against bare XGBoost on the same matrix, and a prediction against bare inference.

    python -m bench.training [--jobs 1000000] [--format table|json|csv]

A seeded site's attempts are made in columns, as the store provides them. All of training is measured: the rows from
which growth models learn, the models, their calibration, the history. The floor is `xgboost.train` with the same
settings and rounds on the rows that were fitted, in the same process. Then a prediction for a request, including
its features, is compared with one bare call of ONNX Runtime; one prediction asks for memory and cores. Peak RSS is
that of the whole process when training ends.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import xgboost

from accounting.request import JobRequest
from bench import site_rows
from bench.arguments import parser_of
from bench.figures import goal
from models.demand.prediction import ChainSettings
from models.past.columns import COLUMNS, columns_of
from models.training.growth_rows import build_matrices
from models.training.matrix import Matrix
from models.training.quantile import ROUNDS, SETTINGS
from models.training.training import Trained, fit_growth, save, train_columns
from models.versions.artefact import OnnxGrowth, load_predictor
from slurm_plugin.cli.output import note, print_rows
from slurm_plugin.config.settings import Config

RATIO = 2.0
Answer = TypeVar("Answer")
NEW, KNOWN, BARE = "prediction of a new request, p50", "of a known one, p50", "bare inference, p50"
RECENT_JOBS, EACH, REQUESTS = Config().models.recent_jobs, 100_000, 2_000


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    arguments = parser.parse_args()
    note(f"making {arguments.jobs:,} jobs")
    table = population(arguments.jobs)
    made_mib = peak_mib()
    note("training")
    whole_s, trained = timed(lambda: train_columns(columns_of(table), RECENT_JOBS))
    trained_mib = peak_mib()
    note("its parts, and bare XGBoost")
    seconds = parts(table, trained)
    latencies_us = predictions(table, trained)
    inference_us = latencies_us[BARE]
    bare_s, jobs = seconds["bare XGBoost"], f"{arguments.jobs:,} jobs"
    figures = {"all of training": whole_s, **seconds}
    if arguments.format == "table":
        print_rows(
            [goal("training / bare XGBoost", jobs, whole_s / bare_s, RATIO, at_most=True)], "table", "Goals"
        )
    rows: list[dict[str, object]] = [
        {"part": part, "figure": round(part_s, 2), "unit": "s", "/ bare": round(part_s / bare_s, 2)}
        for part, part_s in figures.items()
    ]
    rows += [
        {"part": part, "figure": round(us, 1), "unit": "µs", "/ bare": round(us / inference_us, 2)}
        for part, us in latencies_us.items()
    ]
    rows += [
        {"part": "peak RSS before training", "figure": round(made_mib), "unit": "MiB", "/ bare": None},
        {"part": "peak RSS of training", "figure": round(trained_mib), "unit": "MiB", "/ bare": None},
    ]
    print_rows(rows, arguments.format, f"Training on {jobs}")


def population(jobs: int) -> pa.Table:
    """Return what training reads of a site's attempts, with texts packed as by the store."""
    chunks = [
        site_rows.chunk(number, min(EACH, jobs))[0].select(COLUMNS) for number in range(max(1, jobs // EACH))
    ]
    table = pa.concat_tables(chunks)
    packed = (
        column.dictionary_encode() if column.type == pa.string() else column for column in table.columns
    )
    return pa.table(dict(zip(COLUMNS, packed, strict=True)))


def parts(table: pa.Table, trained: Trained) -> dict[str, float]:
    """Return the seconds of the parts of training, and of bare XGBoost."""
    rows_s, matrices = timed(lambda: build_matrices(columns_of(table), RECENT_JOBS))
    found = {"rows": rows_s, "models and calibration": 0.0, "bare XGBoost": 0.0}
    for dimension, matrix in matrices.items():
        part = matrix.part(slice(trained.fitted[dimension].known.rows))
        ours_s, _ = timed(partial(fit_growth, matrix))
        bare_s, _ = timed(partial(fit_bare, part))
        found["models and calibration"] += ours_s
        found["bare XGBoost"] += bare_s
    return found


def fit_bare(matrix: Matrix) -> xgboost.Booster:
    """Fit a matrix with plain XGBoost."""
    return xgboost.train(SETTINGS, xgboost.DMatrix(matrix.inputs, label=matrix.targets), ROUNDS)


def predictions(table: pa.Table, trained: Trained) -> dict[str, float]:
    """Return the median microseconds of a prediction for a request, new and known, and of one bare inference."""
    with tempfile.TemporaryDirectory(prefix="rightsizer-bench-") as name:
        folder = Path(name) / save(trained, Path(name), time.time())
        predictor = load_predictor(folder, ChainSettings())
        bare = OnnxGrowth((folder / "memory.onnx").read_bytes(), [])
        rows = trained.matrices["memory"].inputs[-REQUESTS:].tolist()
        seconds: dict[str, list[float]] = {NEW: [], KNOWN: [], BARE: []}
        for request, row in zip(requests(table), rows, strict=True):
            for way in (NEW, KNOWN):
                seconds[way].append(timed(partial(predictor.predict, request))[0])
            seconds[BARE].append(timed(partial(bare.compute, row))[0])
    return {way: statistics.median(each) * 1e6 for way, each in seconds.items()}


def requests(table: pa.Table) -> Iterator[JobRequest]:
    """Yield the latest requests, each for a little more memory than any before, so that none was seen already."""
    for number, row in enumerate(table.slice(table.num_rows - REQUESTS).to_pylist()):
        yield JobRequest(
            user=row["user"],
            job_name=row["job_name"],
            script_signature=row["script_signature"],
            num_tasks=row["num_tasks"],
            cpus_per_task=max(1, row["asked_cpus"] // row["num_tasks"]),
            mem_per_node_mib=row["asked_mem_mib"] + number % 997,
            gpus_per_node=row["asked_gpus"],
            wall_s=row["limit_s"],
        )


def timed(function: Callable[[], Answer]) -> tuple[float, Answer]:
    """Return the seconds that a call took, and what it returned."""
    begin_s = time.perf_counter()
    answer = function()
    return time.perf_counter() - begin_s, answer


def peak_mib() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
