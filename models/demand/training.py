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
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy
import numpy.typing as npt
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
    Offset,
    StoredFamily,
    StoredHistory,
    TrainedOn,
    sealed,
)
from models.demand.chain import Growth, GrowthModel, is_settled
from models.demand.weights import row_weights, users_apart
from models.evidence import LEARNED, Learned, use_of
from models.features import FEATURES, features
from models.history import History, past_job, replay

QUANTILE = 0.98
# Fewer rows cannot place a 98 % quantile; history and margin then speak alone.
MIN_ROWS = 50
# The earlier share of the jobs is fitted, the later rest calibrates.
FITTED_SHARE = 0.8
CALIBRATED = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
ROUNDS = 150
THREADED_ROWS = 100_000
GOLDEN_ROWS = 16
SEED = 20260101

Rows = Sequence[Sequence[float]] | npt.NDArray[numpy.float64]


class Matrix(msgspec.Struct):
    """Training rows of one dimension, the earliest first: features (rows × FEATURES), log growth, if settled.

    `users` and `submit_s` say whose job a row is and when it came; left empty, all rows weigh the same.
    """

    inputs: list[list[float]]
    targets: list[float]
    settled: list[bool]
    users: list[str] = []
    submit_s: list[int] = []

    def without(self, users: Collection[str]) -> Matrix:
        """Return the rows of all other users."""
        if not users:
            return self
        kept = [index for index, user in enumerate(self.users) if user not in users]
        return Matrix(*([column[index] for index in kept] for column in msgspec.structs.astuple(self)))


class Fitted(msgspec.Struct):
    """A booster and what is known of it."""

    booster: xgboost.Booster
    known: TrainedOn


class Trained(msgspec.Struct):
    """What training made: the history at its end and a booster for each dimension that had rows enough."""

    history: History
    matrices: dict[Learned, Matrix]
    fitted: dict[Learned, Fitted]

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
    history = History(recent_jobs)
    matrices = {dimension: Matrix([], [], []) for dimension in LEARNED}
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
            matrix.settled.append(is_settled(past))
            matrix.users.append(request.user)
            matrix.submit_s.append(attempt.row.submit_s)
    if not any(True for _ in history.items()):
        raise ModelError(
            f"nothing to learn from {len(attempts)} attempts: none of them started; ingest more accounting"
        )
    fitted = {
        name: fit_growth(matrix) for name, matrix in matrices.items() if len(matrix.targets) >= MIN_ROWS
    }
    return Trained(history, matrices, fitted)


def fit_growth(matrix: Matrix) -> Fitted:
    """Fit the growth of the earlier jobs, and calibrate it on the later ones (split conformal prediction)."""
    apart = users_apart(matrix.users, matrix.targets, MIN_ROWS)
    matrix = matrix.without(apart)
    rows = fitted_rows(matrix)
    weights = row_weights(matrix.users) if matrix.users else [1.0] * len(matrix.targets)
    booster = fit_quantile(matrix.inputs[:rows], matrix.targets[:rows], weights[:rows])
    later = [index for index in range(rows, len(matrix.targets)) if matrix.settled[index]]
    excess: list[float] = []
    if later:
        expected = booster.predict(_dmatrix([matrix.inputs[index] for index in later]))
        excess = [matrix.targets[index] - float(log) for index, log in zip(later, expected, strict=True)]
    offsets = offsets_of(excess, [weights[index] for index in later])
    known = TrainedOn(
        rows=rows,
        quantile=QUANTILE,
        calibrated_on=len(later),
        offsets=offsets,
        apart=tuple(sorted(apart)),
    )
    return Fitted(booster, known)


def fitted_rows(matrix: Matrix) -> int:
    """Return how many of the rows, the earliest, are fitted; those after them calibrate."""
    return round(len(matrix.targets) * FITTED_SHARE)


def offsets_of(excess: Sequence[float], weights: Sequence[float] | None = None) -> tuple[Offset, ...]:
    """Return, for each share of failures, what covers the excess of all but that share of jobs like these.

    Of n jobs, the k-th highest excess is exceeded by the next one with a probability of k / (n + 1) (Vovk et al. 2005):
    shares for which that is too much even for the highest are left out. Jobs with weights count by them, and the next
    one as much as the heaviest (Tibshirani et al. 2019).
    """
    falling = sorted(zip(excess, weights or [1.0] * len(excess), strict=True), reverse=True)
    total = sum(weight for _, weight in falling) + max((weight for _, weight in falling), default=0.0)
    offsets: list[Offset] = []
    for failures in CALIBRATED:
        spent = 0.0
        highest: float | None = None
        for log_growth, weight in falling:
            spent += weight
            if spent > failures * total * (1 + 1e-12):
                break
            highest = log_growth
        if highest is not None:
            offsets.append(Offset(failures=failures, log_growth=highest))
    return tuple(offsets)


def fit_quantile(
    inputs: Sequence[Sequence[float]], targets: Sequence[float], weights: Sequence[float] | None = None
) -> xgboost.Booster:
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
        # On few rows threads wait for each other, on a busy machine for minutes. 0: as many as there are cores.
        "nthread": 1 if len(targets) < THREADED_ROWS else 0,
    }
    return xgboost.train(settings, _dmatrix(inputs, targets, weights), num_boost_round=ROUNDS)


def _dmatrix(
    inputs: Rows,
    targets: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
) -> xgboost.DMatrix:
    return xgboost.DMatrix(
        numpy.asarray(inputs, dtype=numpy.float32),
        label=None if targets is None else numpy.asarray(targets, dtype=numpy.float32),
        weight=None if weights is None else numpy.asarray(weights, dtype=numpy.float32),
        feature_names=list(FEATURES),
    )


def expected_growth(booster: xgboost.Booster, inputs: Rows) -> list[float]:
    """Return the log growth that a booster expects of each row; none of none."""
    return [float(log) for log in booster.predict(_dmatrix(inputs))] if len(inputs) else []


def booster_growth(booster: xgboost.Booster) -> GrowthModel:
    """Return a growth model that XGBoost itself computes."""
    # A row at a time: threads would only wait for each other.
    booster.set_param({"nthread": 1})

    def growth(row: Sequence[float]) -> float:
        # Without a matrix of its own for each row: a replay asks tens of thousands of times.
        inputs = numpy.asarray([row], dtype=numpy.float32)
        return float(booster.inplace_predict(inputs, validate_features=False)[0])

    return growth


def save(
    trained: Trained,
    attempts: Sequence[Attempt],
    directory: Path,
    now_s: float,
    card: Mapping[str, bytes] | None = None,
) -> str:
    """Write an artefact into the registry `directory` and return its version; nothing half-written stays.

    `card` holds further files by name: the model card.
    """
    files = {**_files(trained), **(card or {})}
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
        # Rounded to what the file and float32 hold, so that the self-test sees the very same inputs.
        rows = [[float(numpy.float32(value)) for value in row] for row in rows]
        for row, answer in zip(rows, fitted.booster.predict(_dmatrix(rows)), strict=True):
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
