"""The map from volumes to durations, on cases worked out by hand and as properties."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ScheduleError
from models.scheduling.duration_map import fit_duration_map

# A millionth of the unit of volume, whatever that is, is the least that anybody requests.
past_volumes = st.just(0.0) | st.floats(1e-6, 1e6)
pasts = st.lists(st.tuples(past_volumes, st.floats(0, 1e6)), min_size=1, max_size=30).filter(
    lambda past: any(volume > 0 for volume, _ in past)
)


@given(pasts, st.lists(st.floats(0, 1e7), max_size=30), st.integers(2, 20))
def test_the_map_never_falls_and_is_never_below_zero(
    past: list[tuple[float, float]], planned: list[float], nodes: int
) -> None:
    volumes, durations = zip(*past, strict=True)
    fitted = fit_duration_map(volumes, durations, nodes)
    answers = fitted.durations_of(sorted([*planned, *fitted.volumes]))
    assert numpy.isfinite(answers).all()
    assert (answers >= 0).all()
    assert (numpy.diff(answers) >= -1e-9 * answers.max(initial=1)).all()
    assert fitted.durations_of([0.0])[0] == 0 or min(volumes) == 0


@given(pasts)
def test_the_order_of_the_past_does_not_matter(past: list[tuple[float, float]]) -> None:
    volumes, durations = zip(*past, strict=True)
    backwards = fit_duration_map(volumes[::-1], durations[::-1])
    assert backwards.loss_s == pytest.approx(fit_duration_map(volumes, durations).loss_s, rel=1e-6, abs=1e-3)


def test_a_straight_line_is_found_and_extended_between_and_beyond_its_points() -> None:
    volumes = numpy.array([10.0, 3.0, 7.0, 1.0, 5.0])
    fitted = fit_duration_map(volumes, 60 * volumes)
    assert fitted.loss_s == pytest.approx(0, abs=1e-3)
    assert fitted.durations_of([0, 0.5, 2, 6.2, 10, 20]) == pytest.approx(
        [0, 30, 120, 372, 600, 1200], rel=1e-5
    )


def test_missing_volumes_are_filled_by_a_straight_line() -> None:
    fitted = fit_duration_map([1, 2, 9, 10], [10, 20, 900, 1000], nodes=10)
    assert fitted.durations_of([1, 2, 9, 10]) == pytest.approx([10, 20, 900, 1000], rel=1e-3, abs=1)
    between = fitted.durations_of(numpy.arange(2.0, 10.0))
    assert (numpy.diff(between) > 0).all()
    assert fitted.loss_s < 1


def test_durations_that_fall_become_flat_at_their_mean() -> None:
    fitted = fit_duration_map([1, 2], [100, 50], nodes=2)
    assert fitted.durations_s == pytest.approx((75, 75), rel=1e-4)
    assert fitted.loss_s == pytest.approx(25, rel=1e-4)


def test_no_other_map_of_these_nodes_has_a_smaller_loss() -> None:
    generator = numpy.random.default_rng(5)
    volumes = generator.uniform(1, 100, 200)
    durations = volumes**1.3 * generator.lognormal(0, 0.4, 200)
    fitted = fit_duration_map(volumes, durations)
    heights = numpy.array(fitted.durations_s)
    for _ in range(200):
        other = numpy.sort(heights * generator.lognormal(0, 0.05, len(heights)))
        missed = numpy.interp(volumes, fitted.volumes, other) - durations
        assert numpy.sqrt(numpy.mean(missed**2)) >= fitted.loss_s * (1 - 1e-6)


def test_a_single_volume_is_enough() -> None:
    fitted = fit_duration_map([4, 4], [10, 30])
    assert fitted.durations_of([2, 4, 8]) == pytest.approx([10, 20, 40])


def test_volumes_that_took_no_time_are_mapped_to_none() -> None:
    assert fit_duration_map([1, 2], [0, 0]).durations_of([1.5, 9]).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("volumes", "durations", "nodes", "told"),
    [
        ([], [], 5, "one volume above 0"),
        ([0.0], [1.0], 5, "one volume above 0"),
        ([1.0], [1.0, 2.0], 5, "as many past durations"),
        ([1.0], [-2.0], 5, "past durations must be"),
        ([1.0, 2.0], [1.0, 2.0], 1, "2 nodes"),
    ],
)
def test_a_past_that_teaches_nothing_is_refused(
    volumes: list[float], durations: list[float], nodes: int, told: str
) -> None:
    with pytest.raises(ScheduleError, match=told):
        fit_duration_map(volumes, durations, nodes)
