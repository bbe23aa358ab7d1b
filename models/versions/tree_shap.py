"""What each feature adds to a growth model's answer, by exact tree SHAP (Lundberg et al. 2018) as XGBoost has it.

It reads the artefact's models in XGBoost's own format. No submission waits for it, and no service imports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy
import xgboost

from accounting.errors import ModelError
from models.demand.explanation import Contributions
from models.demand.features import FEATURES
from models.past.jobs import Learned
from models.versions.artefact import read_checked, read_manifest


def read_contributions(folder: Path) -> dict[Learned, Contributions]:
    """Return the contributions of an artefact's growth models; ModelError if one of their files is damaged."""
    manifest = read_manifest(folder)
    found: dict[Learned, Contributions] = {}
    for dimension in manifest.growth:
        name = f"{dimension}.ubj"
        if name not in manifest.digests:
            raise ModelError(f"the model in {folder} lacks {name}; run `rightsizer train`")
        content = read_checked(folder / name, manifest.digests[name])
        try:
            booster = xgboost.Booster(model_file=bytearray(content))
        except xgboost.core.XGBoostError as error:
            raise ModelError(
                f"XGBoost rejects {folder / name}: {str(error)[:120]}; run `rightsizer train`"
            ) from None
        found[dimension] = booster_contributions(booster)
    return found


def booster_contributions(booster: xgboost.Booster) -> Contributions:
    """Return a function that computes the contributions of one booster."""

    def contributions(row: Sequence[float]) -> tuple[float, ...]:
        matrix = xgboost.DMatrix(numpy.asarray([row], dtype=numpy.float32), feature_names=list(FEATURES))
        added = booster.predict(matrix, pred_contribs=True, approx_contribs=False)
        return tuple(added.reshape(-1).astype(float).tolist())

    return contributions
