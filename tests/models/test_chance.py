"""How far paired differences lie from chance, against every way to draw their signs."""

from __future__ import annotations

import itertools

import numpy
import pytest

from models.chance import as_far


@pytest.mark.parametrize("seed", range(5))
def test_as_far_is_what_drawing_every_sign_gives(seed: int) -> None:
    differences = numpy.random.default_rng(seed).normal(0.4, 1, 14)
    sums = numpy.array(list(itertools.product((-1, 1), repeat=14))) @ differences
    share = (abs(sums) >= abs(differences.sum()) * (1 - 1e-12)).mean()
    assert as_far(differences.tolist()) == pytest.approx(share, abs=0.04)


def test_nothing_and_what_cancels_out_is_chance_and_what_is_all_alike_is_not() -> None:
    assert [as_far([]), as_far([0.0] * 5), as_far([1.0, -1.0] * 6)] == [1, 1, 1]
    assert as_far([3.0] * 30) < 1e-6
