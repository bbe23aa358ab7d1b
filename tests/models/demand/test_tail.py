"""How far above its highest job a family may go."""

import math

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.demand.tail import (
    LEAST_HASTE,
    LEAST_RISK,
    MOST_HASTE,
    MOST_RISK,
    NEXT_RUN_LOG,
    PRIOR_SPREAD,
    Stakes,
    haste_of,
    next_run_bound,
    rise_log,
    risk_of,
    spread_bound,
    streak_bound,
)
from models.past.attempts import past_job
from models.past.evidence import SURPRISE_LOG, PastUse, past_use, streak_of
from tests.builders import attempt


def past(*, count: int = 10, streak: int = 5, above_median: float = 0.0) -> PastUse:
    return PastUse(
        needed=(100.0,) * count,
        likely=100.0,
        highest=100.0,
        complete=count,
        streak=streak,
        highest_log=math.log(100),
        mean_log=math.log(100),
        last_log=math.log(100),
        median_log=math.log(100),
        spread_log=0.0,
        above_median=above_median,
        held=1.0,
    )


def rise(use: PastUse, room: float, risk: float) -> float:
    return rise_log(use, Stakes(room=room, risk=risk))


RISK = st.floats(LEAST_RISK, MOST_RISK)
ROOM = st.floats(0, 10) | st.just(math.inf)


@given(ROOM, RISK, st.integers(1, 50), st.integers(1, 10_000), st.floats(0, 5))
@example(math.inf, 0.002, 50, 10_000, 1.0)
def test_the_rise_is_neither_negative_nor_more_than_the_room(
    room: float, risk: float, count: int, streak: int, above: float
) -> None:
    use = past(count=count, streak=streak, above_median=above)
    assert 0 <= rise(use, room, risk) <= room
    assert 0 <= rise(msgspec.structs.replace(use, whole=True, calm=1), room, risk) <= room


@given(st.floats(0.01, 10), st.integers(1, 200))
def test_every_job_without_a_surprise_lowers_what_is_taken_of_the_room(room: float, streak: int) -> None:
    assert streak_bound(streak + 1, room) <= streak_bound(streak, room) < room
    if streak > 3:
        assert streak_bound(streak + 1, room) < streak_bound(streak, room)


def test_a_family_with_a_surprise_just_now_takes_seven_tenths_of_the_room() -> None:
    assert streak_bound(1, 3.0) == streak_bound(3, 3.0) == pytest.approx(2.1)
    assert streak_bound(4, 3.0) == pytest.approx(3.0 * math.exp(-4 / 11))


def test_the_longest_streak_takes_no_more_than_any_other_of_a_room_without_end() -> None:
    assert streak_bound(1, math.inf) == streak_bound(10_000, math.inf) == math.inf
    assert streak_bound(10_000, 3.0) == 0


def test_after_eleven_quiet_jobs_a_third_of_the_room_is_left() -> None:
    assert streak_bound(11, 3.0) == pytest.approx(3.0 / math.e)


@given(st.floats(0.01, 10), st.integers(1, 200), st.floats(0, 1000), st.floats(0, 1000))
def test_of_two_families_in_the_same_streak_the_heavier_takes_no_more_of_the_room(
    room: float, streak: int, one: float, other: float
) -> None:
    light, heavy = sorted((one, other))
    assert streak_bound(streak, room, haste_of(heavy)) <= streak_bound(streak, room, haste_of(light)) < room


def test_a_family_of_sixteen_mean_jobs_counts_each_quiet_job_twice() -> None:
    assert haste_of(1.0) == 1.0
    assert streak_bound(6, 3.0, haste_of(16.0)) == pytest.approx(streak_bound(12, 3.0))
    assert streak_bound(12, 3.0, haste_of(1 / 16)) == pytest.approx(streak_bound(6, 3.0))


def test_haste_has_bounds_however_little_or_much_a_family_holds() -> None:
    assert haste_of(0.0) == haste_of(1 / 100) == LEAST_HASTE
    assert haste_of(100.0) == MOST_HASTE


def test_with_many_jobs_the_spread_bound_is_that_of_a_normal_tail() -> None:
    # √(df (r^(-2/df) - 1)) tends to √(-2 ln r): the Chernoff bound of a standard normal variable.
    many = past(count=100_000, above_median=0.5 * 100_000 * 0.2**2)
    assert spread_bound(many, 0.001) == pytest.approx(0.2 * math.sqrt(-2 * math.log(0.001)), rel=1e-3)


@given(RISK, RISK, st.integers(1, 100), st.floats(0, 5))
def test_less_risk_means_more_room(one: float, other: float, count: int, above: float) -> None:
    low, high = sorted((one, other))
    use = past(count=count, above_median=above)
    assert spread_bound(use, low) >= spread_bound(use, high) >= 0


@given(RISK, st.integers(8, 100), st.floats(0, 5), st.floats(0, 3))
def test_the_tail_of_a_family_at_rest_begins_at_its_median(
    risk: float, count: int, above: float, highest_over_median: float
) -> None:
    during = past(count=count, above_median=above)
    during = msgspec.structs.replace(during, median_log=during.highest_log - highest_over_median)
    at_rest = spread_bound(msgspec.structs.replace(during, whole=True), risk)
    assert at_rest == pytest.approx(max(0.0, spread_bound(during, risk) - highest_over_median))


@given(RISK, st.integers(20, 100), st.floats(0, 1))
def test_with_many_jobs_at_rest_the_tail_is_no_more_than_a_pareto_tail_above_the_highest(
    risk: float, count: int, excess: float
) -> None:
    wide = msgspec.structs.replace(past(count=count, above_median=100.0), whole=True)
    beyond = spread_bound(msgspec.structs.replace(wide, top_excess=excess), risk)
    assert beyond <= spread_bound(wide, risk)
    # The chance that the next of n + 1 jobs is the highest, and goes that far beyond those before it.
    if 0 < beyond < spread_bound(wide, risk):
        assert math.exp(-beyond / max(excess, PRIOR_SPREAD)) / (count + 1) == pytest.approx(risk)
    if risk * (count + 1) >= 1:
        assert beyond == 0


def test_a_job_of_a_new_run_that_needs_no_more_does_not_lower_certainty() -> None:
    run = [
        msgspec.structs.replace(past_job(attempt()), mem_mib=mib, end_s=1000 + place, wall_s=60)
        for place, mib in enumerate([900.0, 700.0, 800.0, 650.0, 990.0, 720.0, 610.0, 850.0, 940.0])
    ]
    at_rest = past_use(run, "memory", None, at_rest=True)
    assert at_rest is not None
    for number in range(1, 5):
        new = [msgspec.structs.replace(run[0], mem_mib=500.0, end_s=10**6 + one) for one in range(number)]
        during = past_use([*run, *new], "memory", None)
        assert during is not None
        for room, risk in ((0.5, 0.002), (3.0, 0.01)):
            assert rise(during, room, risk) <= rise(at_rest, room, risk)
        alone = msgspec.structs.replace(during, before=None)
        assert rise(alone, room, risk) > rise(at_rest, room, risk), "by all of its family's jobs"


def test_where_runs_surprise_each_quiet_run_lowers_what_is_taken_of_the_room() -> None:
    many = past(count=60, streak=60, above_median=1.0)
    assert rise(msgspec.structs.replace(many, runs=2), 0.5, 0.002) == pytest.approx(streak_bound(2, 0.5))
    assert rise(msgspec.structs.replace(many, runs=90), 0.5, 0.002) == rise(many, 0.5, 0.002)


def run_of(*, calm: int = 1) -> PastUse:
    return msgspec.structs.replace(past(count=60, streak=60), whole=True, calm=calm)


def test_the_next_run_of_a_family_may_need_a_fifth_more_than_its_only_one() -> None:
    assert rise(run_of(), 3.0, 0.002) == pytest.approx(NEXT_RUN_LOG)
    assert rise(run_of(calm=4), 3.0, 0.002) == pytest.approx(NEXT_RUN_LOG / 4)
    assert next_run_bound(run_of(), math.inf) == NEXT_RUN_LOG


def test_the_next_run_takes_at_most_a_quarter_of_the_room() -> None:
    assert next_run_bound(run_of(), 0.4) == pytest.approx(0.1)
    assert next_run_bound(run_of(), -1.0) == 0.0


def test_no_room_for_a_next_run_is_taken_while_jobs_of_a_run_may_be_missing() -> None:
    assert next_run_bound(msgspec.structs.replace(run_of(), whole=False), 3.0) == 0.0


def test_a_single_job_is_granted_far_more_than_it_needed() -> None:
    assert spread_bound(past(count=1), 0.002) > 10 * PRIOR_SPREAD


@given(st.floats(0, 100), st.floats(-1, 10), st.floats(0.0001, 0.5))
def test_risk_stays_within_its_bounds(weight: float, room: float, most: float) -> None:
    assert LEAST_RISK <= risk_of(weight, room, most) <= MOST_RISK


def test_the_mean_job_of_a_site_takes_a_fifth_of_the_allowed_failures() -> None:
    assert risk_of(1.0, 0.0, 0.01) == pytest.approx(0.002)
    assert risk_of(3.0, 0.0, 0.01) == pytest.approx(0.006)
    assert risk_of(1.0, math.log(4), 0.01) == pytest.approx(0.0005)


@pytest.mark.parametrize(
    ("logs", "streak"),
    [
        ([], 0),
        ([1.0], 1),
        ([1.0, 0.5, 1.0 + SURPRISE_LOG], 3),
        ([1.0, 0.5, 1.0 + SURPRISE_LOG + 1e-6], 1),
        ([1.0, 2.0, 1.5, 1.9], 3),
    ],
)
def test_a_streak_begins_with_the_last_surprise(logs: list[float], streak: int) -> None:
    assert streak_of(logs) == streak


def test_without_a_request_the_rise_of_a_tiny_risk_stays_finite() -> None:
    least = rise(past(count=1, streak=1), math.inf, LEAST_RISK)
    assert math.isfinite(1e9 * math.exp(least))
