"""Arrivals drawn from the past: only from the past, by its hours, and the same again from one seed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from models.planning.arrivals import DAY_S, HOUR_S, MOST_COMING, drawn_arrivals
from models.planning.problem import Coming


def arrival(at_s: float) -> Coming:
    return Coming(
        at_s=at_s, pools=frozenset({0}), priority=5, demand=(1000, 1, 0), limit_s=60.0, likely_s=30.0
    )


def drawn(
    past: list[Coming], now_s: float, horizon_s: float = DAY_S, seed: int = 1
) -> tuple[tuple[Coming, ...], ...]:
    times_s = [one.at_s for one in past]
    return drawn_arrivals(times_s, lambda first, last: past[first:last], now_s, horizon_s, 3, seed)


def test_a_job_of_every_day_is_expected_every_day() -> None:
    past = [arrival(day * DAY_S + 9 * HOUR_S) for day in range(10)]
    for sample in drawn(past, 10 * DAY_S, 2 * DAY_S):
        assert [one.at_s for one in sample] == [9 * HOUR_S, DAY_S + 9 * HOUR_S]
        assert sample[0].priority == 5


def test_the_last_hours_stand_for_all_where_less_than_a_day_is_known() -> None:
    past = [arrival(minute * 60.0) for minute in range(120)]
    for sample in drawn(past, 2 * HOUR_S, 3 * HOUR_S):
        assert [one.at_s for one in sample] == [minute * 60.0 for minute in range(180)]


def test_nothing_is_expected_where_nothing_is_known() -> None:
    assert drawn([], 100.0) == ()
    assert drawn([arrival(100.0)], 100.0) == ()


def test_a_flood_of_arrivals_is_bounded() -> None:
    past = [arrival(float(number)) for number in range(int(HOUR_S))]
    assert all(len(sample) == MOST_COMING for sample in drawn(past, HOUR_S))


@given(
    st.lists(st.floats(0, 9 * DAY_S), min_size=1, max_size=40),
    st.floats(0, 9 * DAY_S),
    st.integers(0, 5),
    st.floats(60, 2 * DAY_S),
)
def test_arrivals_after_now_have_no_influence(
    times_s: list[float], now_s: float, seed: int, horizon_s: float
) -> None:
    past = [arrival(at_s) for at_s in sorted(times_s)]
    found = drawn(past, now_s, horizon_s, seed)
    assert found == drawn([one for one in past if one.at_s < now_s], now_s, horizon_s, seed)
    assert all(0 <= one.at_s <= horizon_s for sample in found for one in sample)
    assert all(list(sample) == sorted(sample, key=lambda one: one.at_s) for sample in found)
