"""Algorithm 1, in steps worked out by hand and as properties."""

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.run_time.adaptive_scaling import Asked, Floats, Scaling, scale

CORES = Asked(resource="cores", amount=16, whole=1)
MEMORY = Asked(resource="mem_mib", amount=1000.0)
GPUS = Asked(resource="gpu_pct", amount=400, whole=100)


def flat(rows: Floats) -> Floats:
    return numpy.full(len(rows), 60.0)


def slower_with_fewer_cores(rows: Floats) -> Floats:
    """960 core seconds: 60 s on 16 cores."""
    return 960 / rows[:, 0]


def test_the_first_rate_is_taken_where_nothing_changes_the_run_time() -> None:
    scaled = scale((CORES, MEMORY, GPUS), flat, (), Scaling(alpha=0.3, step=0.1, theta=0.05))
    assert scaled.values == (5.0, 300.0, 200.0), "whole units are rounded up"
    assert (scaled.alpha, scaled.predicted_s, scaled.original_s) == (0.3, 60, 60)


def test_the_first_rate_that_keeps_run_time_within_the_threshold_is_taken() -> None:
    # 8 cores take 120 s, 10 take 96, 12 take 80, 13 (0.8: 12.8) take 73.8, 15 (0.9: 14.4) take 64.
    scaled = scale((CORES, MEMORY), slower_with_fewer_cores, (), Scaling(alpha=0.5, step=0.1, theta=0.1))
    assert list(scaled.values) == pytest.approx([15, 900])
    assert scaled.alpha == pytest.approx(0.9)
    assert scaled.predicted_s == pytest.approx(64)


def test_rates_apply_to_the_original_request_not_to_the_last_one() -> None:
    asked: list[float] = []

    def spy(rows: Floats) -> Floats:
        asked.extend(rows[:, 0])
        return rows[:, 0]

    scaled = scale((MEMORY,), spy, (), Scaling(alpha=0.6, step=0.2, theta=0.01))
    assert asked == pytest.approx([1000, 600, 800])
    assert (scaled.values, scaled.alpha) == ((1000.0,), 1), "no rate was close enough: the request is kept"


def test_important_and_fixed_resources_stay() -> None:
    volume = Asked(resource="read_mib", amount=50, fixed=True)
    scaled = scale((CORES, MEMORY, volume), flat, {"cores"}, Scaling())
    assert scaled.values == (16.0, 500.0, 50.0)
    assert scale((CORES,), flat, {"cores"}, Scaling()).alpha == 1


def test_all_rates_are_predicted_in_one_call() -> None:
    calls = []

    def spy(rows: Floats) -> Floats:
        calls.append(len(rows))
        return flat(rows)

    scale((CORES, MEMORY), spy, (), Scaling(alpha=0.5, step=0.05))
    assert calls == [11], "the request itself and ten rates"


def test_a_change_equal_to_the_threshold_is_too_large() -> None:
    scaled = scale((MEMORY,), lambda rows: rows[:, 0], (), Scaling(alpha=0.5, step=0.25, theta=0.25))
    assert scaled.alpha == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -5.0])
def test_an_impossible_run_time_keeps_the_request(bad: float) -> None:
    scaled = scale((CORES,), lambda rows: numpy.full(len(rows), bad), (), Scaling())
    assert (scaled.values, scaled.alpha) == ((16.0,), 1)
    assert math.isnan(scaled.predicted_s)
    only_the_request = lambda rows: numpy.where(rows[:, 0] == 16, 60.0, bad)  # noqa: E731
    assert scale((CORES,), only_the_request, (), Scaling(theta=0.5)).alpha == 1


def test_a_request_that_is_not_a_number_is_kept() -> None:
    scaled = scale((Asked(resource="mem_mib", amount=math.nan), CORES), flat, (), Scaling())
    assert scaled.alpha == 1
    assert scaled.values[1] == 16
    assert scale((), flat, (), Scaling()).values == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 0.0), ("alpha", 1.0), ("alpha", math.nan), ("step", 0.0), ("step", -0.1), ("theta", 0.0),
        ("theta", math.inf),
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ModelError, match=f"models.scaling.{name}"):
        Scaling(**{name: value})


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_rates_begin_at_alpha_and_end_below_one(alpha: float, step: float) -> None:
    rates = Scaling(alpha=alpha, step=step).rates
    assert rates[0] == alpha
    assert rates.max() < 1
    assert rates[-1] + step >= 1 - 1e-8


AMOUNTS = st.one_of(st.integers(0, 4096).map(float), st.floats(0, 1e6))


@given(
    st.lists(st.tuples(AMOUNTS, st.sampled_from([0.0, 1.0, 100.0]), AMOUNTS), min_size=1, max_size=5),
    st.floats(0.05, 0.95),
    st.floats(0.02, 0.5),
    st.floats(0.01, 2),
    st.floats(-1, 2),
)
def test_amounts_stay_between_one_and_the_request_and_run_time_within_the_threshold(
    amounts: list[tuple[float, float, float]], alpha: float, step: float, theta: float, power: float
) -> None:
    request = [
        Asked(resource=str(index), amount=amount, whole=whole, least=least)
        for index, (amount, whole, least) in enumerate(amounts)
    ]

    def predict(rows: Floats) -> Floats:
        return numpy.asarray(100 * (1 + rows.sum(axis=1)) ** -power, dtype=numpy.float64)

    scaled = scale(request, predict, {"1"}, Scaling(alpha=alpha, step=step, theta=theta))
    for asked, value in zip(request, scaled.values, strict=True):
        assert value <= asked.amount
        assert value >= min(asked.amount, max(asked.whole, 1.0, asked.least))
        if value != asked.amount:
            assert asked.resource != "1"
            assert not asked.whole or value % asked.whole == 0
    if scaled.original_s > 0:
        assert abs(scaled.predicted_s - scaled.original_s) / scaled.original_s < theta
