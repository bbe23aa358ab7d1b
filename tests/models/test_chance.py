"""What chance gives, compared with drawing it."""

from __future__ import annotations

import itertools

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.chance import as_far, at_least, at_least_above


@pytest.mark.parametrize("seed", range(5))
def test_the_share_as_far_off_is_that_of_drawing_every_sign(seed: int) -> None:
    differences = numpy.random.default_rng(seed).normal(0.4, 1, 14)
    sums = numpy.array(list(itertools.product((-1, 1), repeat=14))) @ differences
    share = (abs(sums) >= abs(differences.sum()) * (1 - 1e-12)).mean()
    assert as_far(differences.tolist()) == pytest.approx(share, abs=0.04)


def test_no_difference_and_differences_that_cancel_are_chance_and_equal_ones_are_not() -> None:
    assert [as_far([]), as_far([0.0] * 5), as_far([1.0, -1.0] * 6)] == [1, 1, 1]
    assert as_far([3.0] * 30) < 1e-6


@pytest.mark.parametrize(("before", "jobs", "beyond", "exceeded"), [(199, 150, 2, 7), (499, 800, 5, 20)])
def test_what_chance_exceeds_is_what_drawing_offsets_and_jobs_gives(
    before: int, jobs: int, beyond: int, exceeded: int
) -> None:
    draw = numpy.random.default_rng(6)
    offsets = numpy.sort(draw.random((10_000, before)), axis=1)[:, -beyond]
    counts = (draw.random((10_000, jobs)) > offsets[:, None]).sum(axis=1)
    found = at_least_above(exceeded, jobs, beyond / (before + 1), before)
    assert found == pytest.approx((counts >= exceeded).mean(), abs=0.005)


@given(st.integers(0, 60), st.integers(1, 400))
def test_an_offset_from_many_jobs_leaves_only_the_binomial_chance(exceeded: int, jobs: int) -> None:
    exceeded = min(exceeded, jobs)
    assert at_least_above(exceeded, jobs, 0.02, 1e7) == pytest.approx(
        at_least(exceeded, jobs, 0.02), abs=1e-3
    )
