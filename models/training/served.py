"""From XGBoost's trees to what ONNX Runtime serves: ten times as fast when rows come one at a time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import xgboost

from models.demand.chain import GrowthModel
from models.demand.features import FEATURES
from models.versions.artefact import OnnxGrowth


def as_served(booster: xgboost.Booster) -> GrowthModel:
    """Return the growth model that the service would load; it is converted when it is asked for the first time."""

    @cache
    def converted() -> OnnxGrowth:
        return OnnxGrowth(onnx_of(booster), splits_of(booster))

    def growth(row: Sequence[float]) -> float:
        return converted()(row)

    return growth


def onnx_of(booster: xgboost.Booster) -> bytes:
    """Return the trees in the format that is served."""
    with warnings.catch_warnings():
        # The converter imports parts of itself that its own dependencies have deprecated.
        warnings.simplefilter("ignore")
        from onnxmltools import convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType
    plain: Any = xgboost.Booster(model_file=booster.save_raw("ubj"))
    plain.feature_names = None  # the converter accepts `f0`, `f1`, … only
    inputs = [("features", FloatTensorType([None, len(FEATURES)]))]
    # Without a name the graph gets a random one, and the same training gets another digest.
    converted = convert_xgboost(plain, name="growth", initial_types=inputs)
    content: bytes = converted.SerializeToString()
    return content


def splits_of(booster: xgboost.Booster) -> list[list[float]]:
    """Return the values at which any tree splits each of FEATURES, in rising order, in float32 as in the trees."""
    trees = booster.trees_to_dataframe()
    nodes = trees[trees["Feature"] != "Leaf"]
    return [
        sorted(set(nodes.loc[nodes["Feature"] == name, "Split"].astype("float32").tolist()))
        for name in FEATURES
    ]
