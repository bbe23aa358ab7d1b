"""Tests for models/training/served.py: what is judged is what would be served, and both say what the trees say."""

from __future__ import annotations

import math
import random

import numpy
import pytest

from models.demand.features import FEATURES
from models.training.matrix import Row, matrix_of
from models.training.quantile import fit_quantile, predict
from models.training.served import as_served
from models.training.training import MIN_ROWS


def test_a_single_row_is_predicted_as_in_a_matrix() -> None:
    noise = random.Random(3)
    rows = [[noise.choice([math.nan, noise.gauss(0, 1)]) for _ in FEATURES] for _ in range(2 * MIN_ROWS)]
    matrix = matrix_of([Row(row, noise.gauss(0, 1), settled=True, bounded=False, user="ann") for row in rows])
    booster = fit_quantile(matrix)
    together = predict(booster, numpy.asarray(rows, numpy.float32))
    growth = as_served(booster)
    assert len(set(together.tolist())) > 1
    assert [growth(row) for row in rows] == pytest.approx(together.tolist(), abs=1e-4)
