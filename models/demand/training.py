"""Training: from attempts to an artefact. Reproducible from the attempts and the seed.

The growth model of a dimension predicts log(next use / most used so far by the family) at a high quantile, from
features known at submit time. Its rows come from replaying the past: each job sees only what had ended before it
was submitted, exactly as it will be when the model serves.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy
import xgboost

from accounting.errors import ModelError
from accounting.records import Attempt
from models import registry
from models.artefact import (
    FORMAT,
    GOLDEN,
    HISTORY,
    MANIFEST,
    Golden,
    Manifest,
    StoredFamily,
    TrainedOn,
    sealed,
)
from models.demand.chain import GrowthModel
from models.evidence import LEARNED, Learned, use_of
from models.features import FEATURES, features
from models.history import History, past_job, replay

QUANTILE = 0.98
# Fewer rows cannot place a 98 % quantile; history and margin then speak alone.
MIN_ROWS = 50
ROUNDS = 150
GOLDEN_ROWS = 16
SEED = 20260101


class Matrix(msgspec.Struct):
    """Training rows of one dimension: features (rows × FEATURES) and log growth (rows)."""

    inputs: list[list[float]]
    targets: list[float]


class Trained(msgspec.Struct):
    """What training made: the history at its end and a booster for each dimension that had rows enough."""

    history: History
    matrices: dict[Learned, Matrix]
    boosters: dict[Learned, xgboost.Booster]

    def growth_models(self) -> dict[Learned, GrowthModel]:
        """Return the growth models as XGBoost computes them, without an artefact."""
        return {dimension: _growth_of(booster) for dimension, booster in self.boosters.items()}


def train(attempts: Sequence[Attempt], recent_jobs: int) -> Trained:
    """Learn from attempts; ModelError where not one of them ended with a usable figure."""
    history = History(recent_jobs)
    matrices = {dimension: Matrix([], []) for dimension in LEARNED}
    for attempt, request in replay(attempts, history):
        evidence = history.evidence(request, enough=1)
        if evidence is None:
            continue
        job, habits = past_job(attempt), history.habits(request)
        for dimension, matrix in matrices.items():
            target, past = use_of(job, dimension), evidence.use(dimension)
            if target is None or past is None or not job.complete:
                continue
            matrix.inputs.append(features(request, evidence, habits, dimension))
            matrix.targets.append(math.log(target) - past.highest_log)
    if not any(True for _ in history.items()):
        raise ModelError(
            f"nothing to learn from {len(attempts)} attempts: none of them started; ingest more accounting"
        )
    boosters = {
        name: fit_growth(matrix) for name, matrix in matrices.items() if len(matrix.targets) >= MIN_ROWS
    }
    return Trained(history, matrices, boosters)


def fit_growth(matrix: Matrix) -> xgboost.Booster:
    """Fit the quantile of log growth by pinball loss; shallow trees, since the reference carries the scale."""
    settings = {
        "objective": "reg:quantileerror",
        "quantile_alpha": QUANTILE,
        "tree_method": "hist",
        "max_depth": 4,
        "eta": 0.1,
        "min_child_weight": 10,
        "subsample": 0.8,
        "seed": SEED,
    }
    return xgboost.train(settings, _dmatrix(matrix.inputs, matrix.targets), num_boost_round=ROUNDS)


def _dmatrix(inputs: Sequence[Sequence[float]], targets: Sequence[float] | None = None) -> xgboost.DMatrix:
    return xgboost.DMatrix(
        numpy.asarray(inputs, dtype=numpy.float32),
        label=None if targets is None else numpy.asarray(targets, dtype=numpy.float32),
        feature_names=list(FEATURES),
    )


def _growth_of(booster: xgboost.Booster) -> GrowthModel:
    def growth(row: Sequence[float]) -> float:
        return float(booster.predict(_dmatrix([row]))[0])

    return growth


def save(trained: Trained, attempts: Sequence[Attempt], directory: Path, now_s: float) -> str:
    """Write an artefact into the registry `directory` and return its version; nothing half-written stays."""
    files = _files(trained)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    mark = hashlib.sha256("".join(sorted(digests.values())).encode()).hexdigest()[:6]
    millis = int(now_s * 1000) % 1000
    version = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now_s))}.{millis:03d}Z-{mark}"
    manifest = Manifest(
        format=FORMAT,
        version=version,
        created_s=int(now_s),
        first_submit_s=min(attempt.row.submit_s for attempt in attempts),
        last_end_s=max(attempt.row.end_s for attempt in attempts),
        attempts=len(attempts),
        families=sum(1 for _ in trained.history.items()),
        recent_jobs=trained.history.recent_jobs,
        gpu_sources=tuple(sorted({attempt.use.gpu_source for attempt in attempts if attempt.use.gpu_source})),
        features=FEATURES,
        growth={
            dimension: TrainedOn(rows=len(trained.matrices[dimension].targets), quantile=QUANTILE)
            for dimension in trained.boosters
        },
        libraries={
            name: importlib.metadata.version(name) for name in ("xgboost-cpu", "onnxmltools", "onnxruntime")
        },
        digests=digests,
    )
    with registry.new_version(directory, version) as folder:
        for name, content in {**files, MANIFEST: _json(sealed(manifest))}.items():
            (folder / name).write_bytes(content)
    return version


def _files(trained: Trained) -> dict[str, bytes]:
    stored = [StoredFamily(family, tuple(jobs)) for family, jobs in trained.history.items()]
    files = {HISTORY: _json(stored), GOLDEN: _json(_golden(trained))}
    for dimension, booster in trained.boosters.items():
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
    for dimension, booster in trained.boosters.items():
        rows = trained.matrices[dimension].inputs[-GOLDEN_ROWS:]
        # Rounded to what the file and float32 hold, so that the self-test sees the very same inputs.
        rows = [[float(numpy.float32(value)) for value in row] for row in rows]
        for row, answer in zip(rows, booster.predict(_dmatrix(rows)), strict=True):
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
