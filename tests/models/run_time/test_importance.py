"""Permutation importance: its sign, what chance gives, and what it must not depend on."""

import numpy
import pytest

from models.run_time.importance import (
    Floats,
    Importance,
    Predict,
    important,
    permutation_importances,
    with_significance,
)

RESOURCES = ("work", "noise", "constant")


def jobs(count: int, seed: int) -> tuple[Floats, Floats]:
    """Run time is ten seconds for each unit of work; noise says nothing."""
    draw = numpy.random.default_rng(seed)
    work, noise = draw.uniform(1, 10, count), draw.uniform(1, 10, count)
    return numpy.column_stack([work, noise, numpy.ones(count)]), 10 * work


def least_squares(amounts: Floats, run_s: Floats) -> Predict:
    weights = numpy.linalg.lstsq(amounts, run_s, rcond=None)[0]
    return lambda rows: numpy.asarray(rows @ weights, dtype=numpy.float64)


def test_shuffling_a_column_costs_what_the_column_was_worth() -> None:
    amounts, run_s = jobs(60, 1)
    found = {
        one.resource: one
        for one in permutation_importances(least_squares(amounts, run_s), RESOURCES, amounts, run_s, seed=3)
    }
    # Two independent draws from 1 to 10 differ by 3 on average; their mean is 5.5.
    assert found["work"].mean == pytest.approx(3 / 5.5, rel=0.15)
    assert found["work"].spread > 0
    assert found["noise"].mean == pytest.approx(0, abs=1e-6)
    assert found["constant"].mean == pytest.approx(0, abs=1e-9)


def test_a_misleading_column_has_a_negative_importance_and_is_never_important() -> None:
    amounts, run_s = jobs(60, 2)
    # The model has learned that noise lengthens a run; on these jobs the noisiest are the shortest.
    amounts[:, 1] = 11 - amounts[:, 0]
    [_, noise, _] = permutation_importances(
        lambda rows: 55 + 20 * (rows[:, 1] - 5.5), RESOURCES, amounts, run_s, seed=1
    )
    assert noise.mean < 0
    assert not noise.matters
    assert important((noise, Importance(resource="x", mean=-0.9, spread=0.0, p_value=0.001))) == frozenset()


def test_only_more_than_chance_is_important() -> None:
    learned, judged = jobs(60, 4), jobs(40, 5)
    found = permutation_importances(least_squares(*learned), RESOURCES, *judged, seed=1)
    asked = with_significance(found, least_squares, learned, judged, seed=1)
    p_values = {one.resource: one.p_value for one in asked}
    assert p_values["work"] == pytest.approx(1 / 40)
    assert p_values["noise"] is not None
    assert p_values["noise"] > 0.05
    assert important(asked) == {"work"}
    assert important(found) == frozenset(), "significance that nobody asked for is no proof"


def test_nothing_is_important_where_run_times_are_noise() -> None:
    draw = numpy.random.default_rng(8)
    learned = (jobs(60, 6)[0], draw.uniform(1, 100, 60))
    judged = (jobs(40, 7)[0], draw.uniform(1, 100, 40))
    found = permutation_importances(least_squares(*learned), RESOURCES, *judged, seed=1)
    assert important(with_significance(found, least_squares, learned, judged, seed=1)) == frozenset()


def test_the_same_seed_gives_the_same_figures_and_the_rows_stay_as_they_were() -> None:
    amounts, run_s = jobs(30, 1)
    before = amounts.copy()
    predict = least_squares(amounts, run_s)
    first, again, other = (
        permutation_importances(predict, RESOURCES, amounts, run_s, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert (amounts == before).all()
