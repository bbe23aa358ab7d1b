"""Each model by itself: what it says of known series, and that it uses nothing it cannot know."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.forecast.methods import Method, forecast_all, methods
from models.forecast.naive import last_value, seasonal_naive
from models.forecast.panel import Floats, Ints, Panel, Task, bands, season_steps
from models.forecast.principal_lstm import is_installed, principal_components
from models.forecast.smoothing import ALPHAS, GAMMAS, TRENDS, smoothing, states
from tests.models.forecast.forecast_panels import drawn, panel, with_another_future

TASK = Task(horizon=6, season=8, seed=3)
FITTED = [
    pytest.param(
        method,
        id=method.name,
        marks=pytest.mark.skipif(
            method.name == "PCA+LSTM" and not is_installed(), reason="needs the extra `lstm`"
        ),
    )
    for method in methods()
    if method.fit
]
values = st.floats(0, 1e6, allow_nan=False).map(lambda value: round(value, 3))


def forecast_by(method: Method, past: Panel, later: Panel, origins: Ints) -> Floats:
    assert method.fit is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return method.fit(past, TASK)(later, origins)


@given(
    season=st.integers(2, 12),
    horizon=st.integers(1, 30),
    data=st.data(),
)
def test_seasonal_naive_is_exact_on_a_periodic_series(season: int, horizon: int, data: st.DataObject) -> None:
    one = data.draw(st.lists(values, min_size=season, max_size=season))
    whole = panel(one * 10)
    origins = np.arange(season, 2 * season)
    found = seasonal_naive(whole, Task(horizon, season))(whole, origins)
    came = [[one[(origin + lead) % season] for lead in range(horizon)] for origin in origins]
    assert (found[:, :, 0] == np.array(came)).all()


@given(st.lists(values, min_size=2, max_size=20), st.integers(1, 9))
def test_the_last_value_stays(past: list[float], horizon: int) -> None:
    known = panel(past)
    found = last_value(known, Task(horizon, 2))(known, np.array([len(past)]))
    assert (found == past[-1]).all()
    assert found.shape == (1, horizon, 1)


@pytest.mark.parametrize("method", FITTED)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000), known=st.integers(110, 140))
def test_no_model_looks_ahead(method: Method, seed: int, known: int) -> None:
    assert method.fit is not None
    whole = drawn(160, seed=seed, season=8)
    other = with_another_future(whole, known, seed + 1)
    predict = method.fit(whole.known(known - 10), TASK)
    # A later origin is forecast in the same call, so that a model could see the future, which it must not use.
    first, again = (predict(one, np.array([known, known + 10])) for one in (whole, other))
    assert (first[0] == again[0]).all()
    assert (first[1] != again[1]).any()
    alone = predict(whole.known(known), np.array([known]))
    assert alone[0] == pytest.approx(first[0], rel=1e-5)


@pytest.mark.parametrize("method", FITTED)
def test_a_models_random_draws_are_the_same_every_time(method: Method) -> None:
    known, origins = drawn(130, season=8), np.array([125, 130])
    assert (forecast_by(method, known, known, origins) == forecast_by(method, known, known, origins)).all()


@pytest.mark.parametrize("method", FITTED)
@pytest.mark.parametrize("level", [0.0, 7.0])
def test_a_series_that_never_changed_is_forecast_as_constant(method: Method, level: float) -> None:
    known = panel(np.full((130, 2), level))
    assert forecast_by(method, known, known, np.array([130])) == pytest.approx(level, abs=1e-4)


@pytest.mark.parametrize("method", FITTED)
def test_a_constant_series_next_to_a_moving_one_stays_constant(method: Method) -> None:
    moving = drawn(130, season=8)
    known = panel(np.column_stack([moving.values[:, 0], np.full(130, 5.0)]))
    found = forecast_by(method, known, known, np.array([130]))
    assert np.isfinite(found).all()
    assert found[0, :, 1] == pytest.approx(5.0, abs=0.5)


@pytest.mark.parametrize("method", [one for one in FITTED if one.id not in ("seasonal naive", "PCA+LSTM")])
def test_a_level_that_has_changed_is_followed(method: Method) -> None:
    draw = np.random.default_rng(0)
    known = panel(np.concatenate([np.full(65, 10.0), np.full(65, 50.0)]) + draw.uniform(0, 1, 130))
    found = forecast_by(method, known, known, np.array([130]))
    assert abs(found[0, 0, 0] - 50.5) < 3


def test_smoothing_follows_its_recursion_step_by_step() -> None:
    # With α 1, no trend and no season, the level is the last value. γ 0.3 with α 0.4 is worked out by hand.
    known = panel([4.0, 8.0, 6.0, 10.0])
    after = dict(states(known.values, 2))

    def place(alpha: float, trend: int, gamma: float) -> int:
        return (ALPHAS.index(alpha) * len(TRENDS) + trend) * len(GAMMAS) + GAMMAS.index(gamma)

    assert after[4].level[place(1.0, 0, 0.0), 0] == 10.0
    level, season = 6.0, [0.0, 0.0]
    for step, value in enumerate([4.0, 8.0, 6.0, 10.0]):
        error = value - level - season[step % 2]
        level += 0.4 * error
        season[step % 2] += 0.3 * 0.6 * error
    whole = {steps: state.forecast(steps, 2) for steps, state in states(known.values, 2)}
    assert whole[4][:, place(0.4, 0, 0.3), 0] == pytest.approx([level + season[0], level + season[1]])


def test_smoothing_learns_a_season() -> None:
    known = panel([10, 20, 30, 20] * 30)
    found = smoothing(known, Task(4, 4))(known, np.array([120]))
    assert found[0, :, 0] == pytest.approx([10, 20, 30, 20], abs=1)


@given(st.integers(1, 4), st.integers(0, 100))
def test_components_lose_nothing_of_what_varies(series: int, seed: int) -> None:
    known = drawn(60, series, seed).values
    # A series that is twice another one, and a constant one, add no component.
    wide = np.column_stack([known, 2 * known[:, 0], np.full(60, 3.0)])
    components = principal_components(wide)
    assert components.turn.shape == (series + 2, series)
    scores = (wide - components.mean) @ components.turn
    assert scores @ components.back + components.mean == pytest.approx(wide, abs=1e-6)
    assert np.cov(scores, rowvar=False).reshape(series, series) == pytest.approx(np.eye(series), abs=1e-6)


def test_a_mean_of_models_is_their_mean_and_a_missing_library_forecasts_nothing() -> None:
    known = drawn(130, season=8)
    table = [
        Method(name="a", fit=seasonal_naive),
        Method(name="b", fit=last_value),
        Method(name="c", fit=last_value, missing="needs c"),
        Method(name="d", fit=last_value, least_steps=lambda _: 131),
        Method(name="mean", mean_of=("a", "b")),
    ]
    found = forecast_all(table, known, known, np.array([130]), TASK)
    assert np.isnan(found[2:4]).all()
    assert found[4] == pytest.approx((found[0] + found[1]) / 2)


def test_seasons_and_bands_follow_the_length_of_a_step() -> None:
    assert [season_steps(step_s) for step_s in (300, 3600, 43_200, 86_400, 604_800)] == [288, 24, 2, 7, 7]
    assert bands(9).tolist() == [0, 1, 1, 2, 2, 2, 2, 3, 3]
