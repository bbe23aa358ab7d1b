"""The choice among models, their intervals, and the whole forecast."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import SeriesError
from models.forecast.backtest import Backtest, backtest
from models.forecast.choice import choose, forecasts_of, margins
from models.forecast.forecasting import check, forecast, trial_origins
from models.forecast.methods import Method, methods
from models.forecast.naive import last_value, seasonal_naive
from models.forecast.panel import Panel, Task
from tests.models.forecast.forecast_panels import drawn, panel, with_another_future

NAIVE = (Method(name="seasonal naive", fit=seasonal_naive), Method(name="last value", fit=last_value))
QUICK = tuple(
    one for one in methods() if one.name in ("seasonal naive", "last value", "exponential smoothing")
)
TASK = Task(horizon=6, season=8)


def trial(errors: list[float], origins: int = 60) -> Backtest:
    """A backtest of one series: each method errs by its error at every origin and lead, up and down in turn."""
    came = np.full((origins, 1, 1), 100.0)
    sign = np.where(np.arange(origins) % 2, 1.0, -1.0)[:, None, None]
    forecasts = np.stack([came + sign * error for error in errors])
    return Backtest(tuple(f"m{number}" for number in range(len(errors))), np.arange(origins), forecasts, came)


def test_the_method_that_errs_least_is_chosen_and_the_floor_among_equals() -> None:
    assert choose(trial([4.0, 3.0, 2.0]), 60).methods.tolist() == [[2]]
    assert choose(trial([4.0, 3.0, 2.0]), 60).chosen_ratios == pytest.approx(0.5)
    assert choose(trial([2.0, 2.0, 3.0]), 60).methods.tolist() == [[0]]
    assert choose(trial([0.0, 0.0]), 60).methods.tolist() == [[0]]
    assert choose(trial([0.0, 1.0]), 60).ratios[1].tolist() == [[np.inf]]


def drawn_errors(spreads: list[float], seed: int, horizon: int = 1) -> Backtest:
    """A backtest of many series: the errors of each method are drawn independently, with its spread."""
    draw, origins = np.random.default_rng(seed), 200
    came = np.full((origins, horizon, 200), 100.0)
    forecasts = np.stack([came + spread * draw.normal(size=came.shape) for spread in spreads])
    return Backtest(
        tuple(f"m{number}" for number in range(len(spreads))), np.arange(origins), forecasts, came
    )


@pytest.mark.parametrize("challengers", [1, 5])
def test_seasonal_naive_stays_where_the_lead_of_others_is_noise(challengers: int) -> None:
    found = choose(drawn_errors([1.0] * (1 + challengers), seed=challengers), 200)
    # The best of five leads nearly everywhere: choosing by the least error would hardly ever keep seasonal naive.
    assert (found.weights == 0).mean() > 0.5
    assert found.weights.mean() < 0.2
    assert (found.weights > 0.9).mean() < 0.05


def test_a_challenger_with_a_real_lead_is_taken() -> None:
    found = choose(drawn_errors([1.0, 1.0, 0.6, 1.0], seed=0), 200)
    assert (found.methods == 2).all()
    assert found.weights.min() > 0.9
    assert found.chosen_ratios.mean() == pytest.approx(0.6, abs=0.05)


def test_the_same_lead_counts_for_less_where_forecasts_overlap() -> None:
    found = choose(drawn_errors([1.0, 0.8], seed=0, horizon=24), 200)
    assert found.weights[0].mean() > 0.8
    assert found.weights[23].mean() < 0.3


def test_a_method_that_does_not_beat_seasonal_naive_is_not_used() -> None:
    test = drawn_errors([1.0, 1.0, 1.0], seed=3)
    found = choose(test, 200)
    ahead = np.take_along_axis(found.ratios, found.methods[None], axis=0)[0] < 1
    assert ahead[found.methods > 0].all()


def test_the_chosen_forecast_lies_between_its_model_and_seasonal_naive() -> None:
    test = drawn_errors([1.0, 0.9], seed=0)
    found, latest = choose(test, 200), np.stack([np.zeros((1, 200)), np.ones((1, 200))])
    assert ((found.weights > 0) & (found.weights < 1)).any()
    assert np.array_equal(forecasts_of(found, latest), found.weights)
    floor = np.abs(test.came - test.forecasts[0]).mean(axis=0)
    together = np.abs(test.came - [forecasts_of(found, one) for one in test.forecasts.swapaxes(0, 1)])
    assert found.chosen_ratios == pytest.approx(together.mean(axis=0) / floor)
    between = found.weights * found.ratios[1] + 1 - found.weights
    assert (found.chosen_ratios <= between + 1e-9).all()


def test_a_method_that_was_rarely_tried_is_not_chosen() -> None:
    test = trial([4.0, 1.0])
    test.forecasts[1, :40] = np.nan
    assert choose(test, 60).methods.tolist() == [[0]]
    assert np.isnan(choose(test, 60).ratios[1]).all()


@given(st.integers(0, 300))
def test_the_choice_knows_nothing_of_what_comes_after(seed: int) -> None:
    whole, known = drawn(160, seed=seed, season=8), 100
    origins = np.arange(40, 155)
    found = []
    for one in (whole, with_another_future(whole, known, seed)):
        test = backtest(one, TASK, NAIVE, origins, 500)
        choice = choose(test, known)
        found.append((choice.methods, choice.weights, choice.ratios, *margins(test, choice, known, 0.8)))
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other, equal_nan=True)


def test_a_backtest_fits_on_what_was_known_at_the_first_origin_of_a_block() -> None:
    lengths: list[int] = []

    def watched(past: Panel, task: Task) -> object:
        lengths.append(len(past.values))
        return last_value(past, task)

    table = (NAIVE[0], Method(name="watched", fit=watched))  # type: ignore[arg-type]
    told: list[float] = []
    test = backtest(drawn(90, season=8), TASK, table, np.arange(40, 90), 20, told.append)
    assert lengths == [40, 60, 80]
    assert told[-1] == 1.0
    assert test.forecasts.shape == (2, 50, 6, 2)
    assert np.isnan(test.came[-1, 1:]).all()
    assert not np.isnan(test.came[-1, 0]).any()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.5, 0.8, 0.9]))
def test_intervals_hold_as_often_as_they_say(seed: int, level: float) -> None:
    # Noise without memory around a daily swing: the future is drawn like the past.
    draw = np.random.default_rng(seed)
    swing = 50 + 10 * np.sin(2 * np.pi * np.arange(900) / 8)
    whole = panel(swing[:, None] + draw.normal(size=(900, 4)))
    test = backtest(whole, Task(4, 8), NAIVE, np.arange(16, 896), 2000)
    choice = choose(test, 450)
    low, high = margins(test, choice, 450, level)
    later = test.origins >= 450
    value = np.array([forecasts_of(choice, test.forecasts[:, place]) for place in np.flatnonzero(later)])
    came = test.came[later]
    held = ((value + low <= came) & (came <= value + high)).mean()
    assert level - 0.07 < held < level + 0.07


def test_intervals_hold_where_errors_last() -> None:
    # A random walk a day ahead: of 300 residuals only a dozen or two are independent.
    walks = 1000 + np.random.default_rng(0).normal(size=(420, 60)).cumsum(axis=0)
    test = backtest(panel(walks), Task(24, 8), NAIVE, np.arange(50, 390), 2000)
    choice = choose(test, 360)
    low, high = margins(test, choice, 360, 0.9)
    later = test.origins == 360
    value = forecasts_of(choice, test.forecasts[:, later][:, 0])
    held = ((value + low <= test.came[later][0]) & (test.came[later][0] <= value + high)).mean(axis=1)
    assert held.shape == (24,)
    assert 0.85 < held.mean() < 0.96


def test_a_whole_forecast_beats_the_floor_where_more_can_be_known() -> None:
    walk = 500 + np.random.default_rng(1).normal(size=300).cumsum()
    found = forecast(panel(walk), TASK, QUICK, 0.9)
    assert found.method(0, 0) in ("last value", "exponential smoothing")
    assert found.choice.chosen_ratios[0, 0] < 0.7
    assert found.value[0, 0] == pytest.approx(walk[-1], abs=3)
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()


def test_a_periodic_series_is_forecast_exactly_by_the_floor() -> None:
    found = forecast(panel([1.0, 5.0, 2.0, 8.0] * 30), Task(4, 4), QUICK, 0.9)
    assert found.value[:, 0].tolist() == [1.0, 5.0, 2.0, 8.0]
    assert (found.high - found.low == 0).all()
    assert {found.method(lead, 0) for lead in range(4)} == {"seasonal naive"}


@pytest.mark.parametrize("level", [0.0, 3.0])
def test_a_constant_series_is_forecast_as_it_is(level: float) -> None:
    found = forecast(panel(np.full(120, level)), TASK, QUICK, 0.9)
    for one in (found.value, found.low, found.high):
        assert (one == level).all()


def test_the_same_past_gives_the_same_forecast() -> None:
    first, again = (forecast(drawn(110, season=8), TASK, methods(), 0.9) for _ in range(2))
    for one, other in ((first.value, again.value), (first.low, again.low), (first.high, again.high)):
        assert (one == other).all()


def test_forecast_demand_is_never_negative() -> None:
    falling = np.maximum(np.linspace(60, 0, 120), 0)
    found = forecast(panel(falling), TASK, QUICK, 0.9)
    assert (found.low >= 0).all()
    assert (found.value >= 0).all()


@pytest.mark.parametrize(("horizon", "season"), [(1, 2), (6, 8), (24, 24), (48, 24)])
def test_the_required_number_of_steps_is_enough_and_one_fewer_is_not(horizon: int, season: int) -> None:
    task = Task(horizon, season)
    known = drawn(task.least_steps, season=season)
    found = forecast(known, task, NAIVE, 0.9)
    assert not np.isnan(found.choice.ratios).any()
    with pytest.raises(
        SeriesError, match=f"{task.least_steps - 1} steps of 1 h are known .* {task.least_steps}"
    ):
        forecast(known.latest(task.least_steps - 1), task, NAIVE, 0.9)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_values_that_are_no_demand_are_refused(bad: float) -> None:
    known = drawn(100, season=8)
    known.values[17, 1] = bad
    with pytest.raises(SeriesError, match="s1 has no usable value at step 17"):
        check(known, TASK)


def test_a_panel_without_series_is_refused() -> None:
    with pytest.raises(SeriesError, match="no demand to forecast"):
        check(Panel((), np.empty((100, 0)), 0, 3600), TASK)


@pytest.mark.parametrize("steps", [100, 300, 999, 5000])
def test_models_are_tried_at_all_hours_and_not_too_often(steps: int) -> None:
    origins = trial_origins(steps, Task(24, 24))
    assert origins[-1] == steps - 1
    assert origins[0] >= 48
    assert len(origins) <= 240
    if len(origins) >= 200:
        assert set((origins % 24).tolist()) == set(range(24))
