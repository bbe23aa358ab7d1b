"""Training: from attempts to an artefact. Reproducible from the attempts and the seed.

The growth model of a dimension predicts log(next use / most used so far by the family) at a high quantile, from
features known at submit time. Its rows (growth_rows.py) say of each job what could be known of it when it was
submitted, exactly as it will be when the model serves.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xgboost

from accounting.errors import ModelError
from accounting.frames import Floats
from accounting.records import Attempt
from models import registry
from models.artefact import (
    FORMAT,
    GOLDEN,
    HISTORY,
    MANIFEST,
    Golden,
    Manifest,
    Offset,
    StoredFamily,
    StoredHistory,
    TrainedOn,
    sealed,
)
from models.demand.chain import Growth, GrowthModel
from models.demand.growth_rows import build_matrices
from models.demand.matrix import Flags, Inputs, Matrix
from models.demand.weights import row_weights, users_apart
from models.evidence import Learned
from models.features import FEATURES
from models.history import History
from models.past_columns import PastColumns, columns_of_attempts, history_of

QUANTILE = 0.98
# Fewer rows that show their need cannot place a 98 % quantile; history and margin then speak alone.
MIN_ROWS = 50
# The earlier share of the jobs is fitted, the later rest calibrates.
FITTED_SHARE = 0.8
CALIBRATED = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
# Sums of weights that are equal but for their rounding.
ROUNDED = 1 + 1e-12
ROUNDS = 150
# After each of so many rounds bounds are raised to what the trees say by then (docs/decisions/0024).
RAISED_AFTER = range(20, ROUNDS, 10)
# On fewer rows threads wait for each other, on a busy machine for minutes.
THREADED_ROWS = 100_000
GOLDEN_ROWS = 16
SEED = 20260101
SETTINGS = {
    "objective": "reg:quantileerror",
    "quantile_alpha": QUANTILE,
    "tree_method": "hist",
    "max_depth": 4,
    "eta": 0.1,
    "min_child_weight": 10,
    "subsample": 0.8,
    "seed": SEED,
}


class Fitted(msgspec.Struct):
    """A booster and what is known of it."""

    booster: xgboost.Booster
    known: TrainedOn


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned from: how many attempts of how many users, when (unix seconds), and who metered their GPUs."""

    attempts: int
    users: int
    first_submit_s: int
    last_end_s: int
    gpu_sources: tuple[str, ...]


class Trained(msgspec.Struct):
    """What training made: the history at its end and a booster for each dimension that had rows enough."""

    history: History
    matrices: dict[Learned, Matrix]
    fitted: dict[Learned, Fitted]
    seen: Seen

    def growth(self, most_failures: float) -> dict[Learned, Growth]:
        """Return the growth models as XGBoost computes them, without an artefact."""
        return {
            dimension: Growth(
                booster_growth(fitted.booster),
                fitted.known.offset(most_failures),
                frozenset(fitted.known.apart),
            )
            for dimension, fitted in self.fitted.items()
        }


def train(attempts: Sequence[Attempt], recent_jobs: int) -> Trained:
    """Learn from attempts; ModelError where not one of them ended with a usable figure."""
    return train_columns(columns_of_attempts(attempts), recent_jobs)


def train_columns(past: PastColumns, recent_jobs: int) -> Trained:
    """Learn from attempts in columns; ModelError where not one of them ended with a usable figure."""
    if not past.started.any():
        raise ModelError(
            f"nothing to learn from {len(past)} attempts: none of them started; ingest more accounting"
        )
    matrices = build_matrices(past, recent_jobs)
    fitted = {
        name: fit_growth(matrix)
        for name, matrix in matrices.items()
        if np.count_nonzero(~matrix.bounded) >= MIN_ROWS
    }
    seen = Seen(
        attempts=len(past),
        users=len(np.unique(past.user)),
        first_submit_s=int(past.submit_s.min()),
        last_end_s=int(past.end_s.max()),
        gpu_sources=tuple(sorted({past.gpu_sources[code] for code in set(past.gpu_source.tolist())} - {""})),
    )
    return Trained(history_of(past, recent_jobs), matrices, fitted, seen)


def fit_growth(matrix: Matrix) -> Fitted:
    """Fit the growth of the earlier jobs, and calibrate it on the later ones (split conformal prediction)."""
    apart = {matrix.names[user] for user in users_apart(matrix.users, matrix.targets, MIN_ROWS)}
    matrix = matrix.without(apart)
    rows = fitted_rows(matrix)
    weights = row_weights(matrix.users) if len(matrix.users) else np.ones(len(matrix))
    booster = fit_quantile(matrix.part(slice(rows)), weights[:rows])
    later, calibrating = matrix.part(slice(rows, None)), weights[rows:]
    later, calibrating = later.part(later.settled), calibrating[later.settled]
    known = TrainedOn(
        rows=rows,
        quantile=QUANTILE,
        calibrated_on=len(later),
        offsets=offsets_of(excess_of(booster, later), later.bounded, calibrating),
        apart=tuple(sorted(apart)),
    )
    return Fitted(booster, known)


def fitted_rows(matrix: Matrix) -> int:
    """Return how many of the rows, the earliest, are fitted; those after them calibrate."""
    return round(len(matrix) * FITTED_SHARE)


def excess_of(booster: xgboost.Booster, matrix: Matrix) -> Floats:
    """Return by how much the growth of each row exceeds what a booster expects of it; a bound's shows a bound."""
    excess: Floats = matrix.targets - predict(booster, matrix.inputs)
    return excess


def offsets_of(excess: Floats, bounded: Flags, weights: Floats | None = None) -> tuple[Offset, ...]:
    """Return, for each share of failures, what covers the excess of all but that share of jobs like these.

    Of n jobs, the k-th highest excess is exceeded by the next one with a probability of k / (n + 1) (Vovk et al. 2005):
    shares for which that is too much even for the highest are left out. Jobs with weights count by them, and the next
    one as much as the heaviest (Tibshirani et al. 2019). Where an excess is a bound, its job exceeds whatever is not
    above it; of what is, it says nothing, and is no job that counts.
    """
    weights = np.ones(len(excess)) if weights is None else weights
    order = np.flatnonzero(~bounded)[np.argsort(-excess[~bounded], kind="stable")]
    falling, spent = excess[order], np.cumsum(weights[order])
    failed = _weight_from(excess[bounded], weights[bounded], falling)
    counted = weights[order].sum() + failed + weights.max(initial=0.0)
    offsets: list[Offset] = []
    for failures in CALIBRATED:
        enough = np.count_nonzero(spent + failed <= failures * counted * ROUNDED)
        if enough:
            offsets.append(Offset(failures=failures, log_growth=float(falling[enough - 1])))
    return tuple(offsets)


def _weight_from(values: Floats, weights: Floats, limits: Floats) -> Floats:
    """Return how much the values that are at least as high as each limit weigh together."""
    order = np.argsort(values, kind="stable")
    together: Floats = np.append(np.cumsum(weights[order][::-1])[::-1], 0.0)
    return together[np.searchsorted(values[order], limits, side="left")]


def fit_quantile(matrix: Matrix, weights: Floats | None = None) -> xgboost.Booster:
    """Fit the quantile of log growth by pinball loss; shallow trees, since the reference carries the scale.

    A bound counts as what the trees say of it so far, where that is more: then it asks for nothing. To put the part of
    the distribution above a censored value in its place is due to Portnoy (2003); here it is put at the quantile.
    """
    rows = _dmatrix(matrix.inputs, matrix.targets, weights)
    # 0: as many as there are cores.
    booster = xgboost.Booster({**SETTINGS, "nthread": 1 if len(matrix) < THREADED_ROWS else 0}, [rows])
    for done in range(ROUNDS):
        if done in RAISED_AFTER and matrix.bounded.any():
            rows.set_label(raised(matrix, booster.predict(rows)))
        booster.update(rows, done)
    return booster


def raised(matrix: Matrix, expected: Inputs) -> Floats:
    """Return the targets, bounds at least as high as what is expected of their rows."""
    return np.where(matrix.bounded, np.maximum(matrix.targets, expected), matrix.targets)


def predict(booster: xgboost.Booster, inputs: Inputs) -> Inputs:
    """Return the log growth that a booster expects of rows; none of none."""
    expected: Inputs = booster.predict(_dmatrix(inputs)) if len(inputs) else np.zeros(0, np.float32)
    return expected


def _dmatrix(inputs: Inputs, targets: Floats | None = None, weights: Floats | None = None) -> xgboost.DMatrix:
    return xgboost.DMatrix(
        np.asarray(inputs, dtype=np.float32), label=targets, weight=weights, feature_names=list(FEATURES)
    )


def booster_growth(booster: xgboost.Booster) -> GrowthModel:
    """Return a growth model that XGBoost itself computes."""
    # A row at a time: threads would only wait for each other.
    booster.set_param({"nthread": 1})

    def growth(row: Sequence[float]) -> float:
        # Without a matrix of its own for each row: a replay asks tens of thousands of times.
        inputs = np.asarray([row], dtype=np.float32)
        return float(booster.inplace_predict(inputs, validate_features=False)[0])

    return growth


def save(trained: Trained, directory: Path, now_s: float, card: Mapping[str, bytes] | None = None) -> str:
    """Write an artefact into the registry `directory` and return its version; nothing half-written stays.

    `card` holds further files by name: the model card.
    """
    files, seen = {**_files(trained), **(card or {})}, trained.seen
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    mark = hashlib.sha256("".join(sorted(digests.values())).encode()).hexdigest()[:6]
    millis = int(now_s * 1000) % 1000
    version = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now_s))}.{millis:03d}Z-{mark}"
    manifest = Manifest(
        format=FORMAT,
        version=version,
        created_s=int(now_s),
        first_submit_s=seen.first_submit_s,
        last_end_s=seen.last_end_s,
        attempts=seen.attempts,
        families=sum(1 for _ in trained.history.items()),
        recent_jobs=trained.history.recent_jobs,
        gpu_sources=seen.gpu_sources,
        features=FEATURES,
        growth={dimension: fitted.known for dimension, fitted in trained.fitted.items()},
        libraries=libraries(),
        digests=digests,
    )
    with registry.new_version(directory, version) as folder:
        for name, content in {**files, MANIFEST: _json(sealed(manifest))}.items():
            (folder / name).write_bytes(content)
    return version


def libraries() -> dict[str, str]:
    """Return the versions of what a model is made with."""
    return {name: importlib.metadata.version(name) for name in ("xgboost-cpu", "onnxmltools", "onnxruntime")}


def _files(trained: Trained) -> dict[str, bytes]:
    families = tuple(StoredFamily(family, tuple(jobs)) for family, jobs in trained.history.items())
    stored = StoredHistory(held=trained.history.held, families=families)
    files = {HISTORY: _json(stored), GOLDEN: _json(_golden(trained))}
    for dimension, fitted in trained.fitted.items():
        booster = fitted.booster
        files[f"{dimension}.ubj"] = bytes(booster.save_raw("ubj"))
        files[f"{dimension}.onnx"] = _onnx(booster)
        files[f"{dimension}.splits.json"] = _json(splits_of(booster))
    return files


def splits_of(booster: xgboost.Booster) -> list[list[float]]:
    """Return the values at which any tree splits each of FEATURES, in rising order: float32, as the trees have them."""
    trees = booster.trees_to_dataframe()
    nodes = trees[trees["Feature"] != "Leaf"]
    return [
        sorted(set(nodes.loc[nodes["Feature"] == name, "Split"].astype("float32").tolist()))
        for name in FEATURES
    ]


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def _golden(trained: Trained) -> list[Golden]:
    golden: list[Golden] = []
    for dimension, fitted in trained.fitted.items():
        rows = trained.matrices[dimension].inputs[-GOLDEN_ROWS:]
        for row, answer in zip(rows.tolist(), predict(fitted.booster, rows), strict=True):
            told = tuple(None if math.isnan(value) else value for value in row)
            golden.append(Golden(dimension=dimension, features=told, log_growth=float(answer)))
    return golden


def _onnx(booster: xgboost.Booster) -> bytes:
    with warnings.catch_warnings():
        # The converter imports parts of itself that its own dependencies have deprecated.
        warnings.simplefilter("ignore")
        from onnxmltools import convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType
    plain: Any = xgboost.Booster(model_file=booster.save_raw("ubj"))
    plain.feature_names = None  # the converter takes `f0`, `f1`, … only
    inputs = [("features", FloatTensorType([None, len(FEATURES)]))]
    # Without a name of ours the graph gets a random one, and the same training another digest.
    converted = convert_xgboost(plain, name="growth", initial_types=inputs)
    content: bytes = converted.SerializeToString()
    return content
