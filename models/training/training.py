"""Training: from attempts to an artefact. Reproducible from the attempts and the seed.

The growth model of a dimension predicts log(next use / most used so far by the family) at a high quantile, from
features that are known at submission. Its rows (growth_rows.py) say of each job what could be known when it was
submitted, exactly as when the model serves.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import xgboost

from accounting.errors import ModelError
from accounting.frames import Floats
from accounting.records import Attempt
from accounting.units import counted
from models.demand.chain import Growth
from models.demand.features import FEATURES
from models.past.columns import PastColumns, columns_of_attempts
from models.past.history import History
from models.past.jobs import Learned
from models.past.loading import history_of
from models.training.calibration import offsets_of
from models.training.growth_rows import build_matrices
from models.training.matrix import Matrix
from models.training.quantile import QUANTILE, Fit, excess_of, fit_quantile, predict
from models.training.served import as_served, onnx_of, splits_of
from models.training.weights import row_weights, users_apart
from models.versions import registry
from models.versions.artefact import (
    FORMAT,
    GOLDEN,
    HISTORY,
    MANIFEST,
    Golden,
    Manifest,
    StoredFamily,
    StoredHistory,
    TrainedOn,
    sealed,
)

# Fewer rows that show their need cannot place a 98 % quantile; then the family's history, tail and margin count
# alone.
MIN_ROWS = 50
# The earlier share of the jobs is fitted; the rest calibrates.
FITTED_SHARE = 0.8
GOLDEN_ROWS = 16


class Fitted(msgspec.Struct):
    """A booster and what is known of it."""

    booster: xgboost.Booster
    known: TrainedOn


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned from: attempts and their users, their time (unix seconds), and which meters measured GPUs."""

    attempts: int
    users: int
    first_submit_s: int
    last_end_s: int
    gpu_sources: tuple[str, ...]


class Trained(msgspec.Struct):
    """What training made: the history at its end, and a booster for each dimension that had enough rows."""

    history: History
    matrices: dict[Learned, Matrix]
    fitted: dict[Learned, Fitted]
    seen: Seen

    def growth(self, most_failures: float) -> dict[Learned, Growth]:
        """Return the growth models, computed as they are served, without an artefact."""
        return {
            dimension: fitted.known.calibrated(as_served(fitted.booster), most_failures)
            for dimension, fitted in self.fitted.items()
        }


def train(attempts: Sequence[Attempt], recent_jobs: int) -> Trained:
    """Learn from attempts; ModelError if none of them started."""
    return train_columns(columns_of_attempts(attempts), recent_jobs)


def train_columns(past: PastColumns, recent_jobs: int, fit: Fit = fit_quantile) -> Trained:
    """Learn from attempts in columns; ModelError if none of them started.

    `fit` is the engine, which decides where trees are fitted.
    """
    if not past.started.any():
        raise ModelError(
            f"cannot learn from {counted(len(past), 'attempt')}, because none of them started; ingest more accounting"
        )
    matrices = build_matrices(past, recent_jobs)
    fitted = {
        name: fit_growth(matrix, fit)
        for name, matrix in matrices.items()
        if np.count_nonzero(~matrix.bounded) >= MIN_ROWS
    }
    seen = Seen(
        attempts=len(past),
        users=len(np.unique(past.user.codes)),
        first_submit_s=int(past.submit_s.min()),
        last_end_s=int(past.end_s.max()),
        gpu_sources=past.metered_by(),
    )
    return Trained(history_of(past, recent_jobs), matrices, fitted, seen)


def fit_growth(matrix: Matrix, fit: Fit = fit_quantile) -> Fitted:
    """Fit the growth of the earlier jobs, and calibrate it on the later ones (split conformal prediction)."""
    apart = {matrix.names[user] for user in users_apart(matrix.users, matrix.targets, MIN_ROWS)}
    matrix = matrix.without(apart)
    rows = fitted_rows(matrix)
    weights = weights_of(matrix)
    booster = fit(matrix.part(slice(rows)), weights[:rows])
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


def weights_of(matrix: Matrix) -> Floats:
    """Return the weight of each row by its user; all weigh the same if users are not known."""
    return row_weights(matrix.users) if len(matrix.users) else np.ones(len(matrix))


def fitted_rows(matrix: Matrix) -> int:
    """Return how many of the rows, the earliest, are fitted; the later ones calibrate."""
    return round(len(matrix) * FITTED_SHARE)


def save(trained: Trained, directory: Path, now_s: float, card: Mapping[str, bytes] | None = None) -> str:
    """Write an artefact into the registry `directory` and return its version; leave nothing half-written.

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
    """Return the versions of the libraries that a model is made with."""
    return {name: importlib.metadata.version(name) for name in ("xgboost-cpu", "onnxmltools", "onnxruntime")}


def _files(trained: Trained) -> dict[str, bytes]:
    history = trained.history
    families = tuple(
        StoredFamily(family, tuple(jobs), history.beside(family)) for family, jobs in history.items()
    )
    held = {dimension: users.held() for dimension, users in history.held.items()}
    stored = StoredHistory(held=held, families=families)
    files = {HISTORY: _json(stored), GOLDEN: _json(_golden(trained))}
    for dimension, fitted in trained.fitted.items():
        booster = fitted.booster
        files[f"{dimension}.ubj"] = bytes(booster.save_raw("ubj"))
        files[f"{dimension}.onnx"] = onnx_of(booster)
        files[f"{dimension}.splits.json"] = _json(splits_of(booster))
    return files


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
