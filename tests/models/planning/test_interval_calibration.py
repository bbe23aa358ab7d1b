"""Intervals of starts, calibrated by the outcome of earlier ones: that they hold, and what they never do."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.planning.interval_calibration import (
    GRAIN_S,
    LEAST_STARTS,
    LOOKED_BACK_S,
    UNCALIBRATED,
    Calibration,
    Outcomes,
    Reach,
    calibrated,
    calibrated_plan,
    is_settled,
    learned,
)
from models.planning.planning import plan
from models.planning.problem import Bounds, Problem
from models.scheduling.room import Floats
from tests.models.planning.problems import job, machine

NOW_S = 1_800_000_000.0
AHEAD_S = 1800.0


def outcomes(came_s: list[float], *, ahead_s: float = AHEAD_S, told_s: float = NOW_S - 86_400) -> Outcomes:
    """Return starts that plans a minute apart foresaw, and that came `came_s` after each plan (NaN: not yet)."""
    told: Floats = told_s + 60.0 * numpy.arange(len(came_s), dtype=numpy.float64)
    return Outcomes(
        told_s=told,
        foreseen_s=told + ahead_s,
        low_s=told + 0.9 * ahead_s,
        high_s=told + 1.1 * ahead_s,
        started_s=told + numpy.array(came_s),
    )


def joined(*parts: Outcomes) -> Outcomes:
    names = Outcomes.__struct_fields__
    return Outcomes(**{name: numpy.concatenate([getattr(part, name) for part in parts]) for name in names})


def interval(calibration: Calibration, ahead_s: float = AHEAD_S) -> tuple[float, float]:
    """Return the calibrated interval for one that reaches a tenth to both sides."""
    low_s, high_s = calibrated(calibration, *(numpy.array([share * ahead_s]) for share in (1.0, 0.9, 1.1)))
    return float(low_s[0]), float(high_s[0])


def spread(number: int, by: float, middle: float = 1.0) -> list[float]:
    draw = numpy.random.default_rng(1)
    found: list[float] = (middle * AHEAD_S * numpy.exp(by * draw.standard_normal(number))).tolist()
    return found


def held_shares(came_s: list[float]) -> Iterator[bool]:
    """Yield whether each start lies in the interval learned from all before; the next plan is made when it came."""
    told: list[Outcomes] = []
    now_s = NOW_S
    for after_s in came_s:
        low_s, high_s = interval(learned(joined(*told), now_s) if told else UNCALIBRATED)
        yield low_s <= after_s <= high_s
        row = outcomes([after_s], told_s=now_s)
        row = Outcomes(
            told_s=row.told_s,
            foreseen_s=row.foreseen_s,
            low_s=now_s + numpy.array([low_s]),
            high_s=now_s + numpy.array([high_s]),
            started_s=row.started_s,
        )
        told.append(row)
        now_s += after_s


def test_intervals_hold_four_times_of_five_however_wrong_those_of_rollouts_are() -> None:
    held = list(held_shares(spread(400, 0.7)))
    assert sum(held[:LEAST_STARTS]) < 3
    assert 0.74 <= sum(held[50:]) / 350 <= 0.86


def test_intervals_hold_again_after_the_errors_of_starts_have_changed() -> None:
    held = list(held_shares([*spread(200, 0.2), *spread(300, 0.6, middle=2.0)]))
    assert 0.72 <= sum(held[300:]) / 200 <= 0.88


def test_without_starts_intervals_stay_and_a_few_starts_count_in_part() -> None:
    raw = interval(UNCALIBRATED)
    assert learned(outcomes([]), NOW_S) == learned(outcomes([AHEAD_S] * (LEAST_STARTS - 1)), NOW_S) == ()
    assert raw == pytest.approx((0.9 * AHEAD_S, 1.1 * AHEAD_S))
    few, many = (learned(outcomes(spread(number, 0.7)), NOW_S) for number in (10, 500))
    assert few[1].trust == pytest.approx(0.5)
    assert (is_settled(learned(outcomes(spread(9, 0.7)), NOW_S)), is_settled(few)) == (False, True)
    assert many[1].trust > 0.95
    assert raw[1] < interval(few)[1]
    assert interval(many)[0] < raw[0] < raw[1] < interval(many)[1]


def test_each_side_is_learned_separately() -> None:
    late = interval(learned(outcomes([AHEAD_S * 4] * 60), NOW_S))
    soon = interval(learned(outcomes([AHEAD_S / 4] * 60), NOW_S))
    assert late[0] > 0.9 * AHEAD_S
    assert late[1] > 3 * AHEAD_S
    assert soon[0] < AHEAD_S / 3
    assert soon[1] < 1.1 * AHEAD_S


def test_starts_foreseen_further_ahead_have_their_own_calibration() -> None:
    near = outcomes([60.0] * 200, ahead_s=60.0)
    far = outcomes([8 * 36_000.0] * 200, ahead_s=36_000.0, told_s=NOW_S - 6 * 86_400)
    found = learned(joined(near, far), NOW_S)
    assert interval(found, 60.0)[1] < 4 * 60.0
    assert interval(found, 36_000.0)[1] > 5 * 36_000.0


def test_jobs_of_one_plan_count_less_than_as_many_of_several_plans() -> None:
    several = outcomes([AHEAD_S] * 100)
    one = Outcomes(
        **{name: numpy.full(100, getattr(several, name)[0]) for name in Outcomes.__struct_fields__}
    )
    assert learned(one, NOW_S)[0].trust == pytest.approx(0.5)
    assert learned(several, NOW_S)[0].trust == pytest.approx(100 / 110)


def test_a_job_that_waits_beyond_its_interval_counts_before_it_starts() -> None:
    came = outcomes([AHEAD_S] * 40, told_s=NOW_S - 5 * 86_400)
    waits = outcomes([math.nan] * 40, told_s=NOW_S - 4 * 86_400)
    assert interval(learned(came, NOW_S))[1] < 1.1 * AHEAD_S
    assert interval(learned(joined(came, waits), NOW_S))[1] > 10 * AHEAD_S
    # A job foreseen only just now waits as it should.
    fresh = outcomes([math.nan] * 10, told_s=NOW_S - 660)
    assert interval(learned(joined(came, fresh), NOW_S)) == interval(learned(came, NOW_S))


def test_impossible_rows_and_those_of_a_clock_that_jumped_count_for_nothing() -> None:
    good = outcomes(spread(50, 0.7))
    wrong = [
        outcomes([-AHEAD_S] * 50),
        outcomes([AHEAD_S] * 50, told_s=NOW_S + 3600),
        outcomes([math.nan] * 50, told_s=NOW_S + 3600),
        outcomes([10 * 86_400.0] * 50),
        outcomes([math.inf] * 50),
        outcomes([AHEAD_S] * 50, told_s=NOW_S - LOOKED_BACK_S - 86_400),
        outcomes([AHEAD_S] * 50, ahead_s=math.nan),
        outcomes([AHEAD_S] * 50, ahead_s=math.inf),
        outcomes([AHEAD_S] * 50, told_s=math.nan),
    ]
    for rows in wrong:
        assert learned(joined(rows, good), NOW_S) == learned(good, NOW_S)
        assert learned(rows, NOW_S) == UNCALIBRATED
    # The clock is back by a month: none of this has happened yet.
    assert learned(good, NOW_S - 30 * 86_400) == UNCALIBRATED


reaches = st.builds(Reach, st.floats(0, 5), st.floats(0, 5), st.floats(0, 1))
seconds = st.floats(0, 1e7)


@given(st.tuples(*[reaches] * 4), st.lists(st.tuples(seconds, seconds, seconds), min_size=1, max_size=9))
def test_an_interval_contains_the_foreseen_start_and_is_neither_endless_nor_empty(
    calibration: Calibration, rows: list[tuple[float, float, float]]
) -> None:
    low, start, high = (numpy.array(column) for column in zip(*map(sorted, rows), strict=True))
    low_s, high_s = calibrated(calibration, start, low, high)
    assert (low_s >= 0).all()
    assert (low_s <= start).all()
    assert (start <= high_s).all()
    assert (high_s + GRAIN_S <= 1.0001 * (start + GRAIN_S) * 150).all()
    wide = numpy.log((high + GRAIN_S) / (start + GRAIN_S))
    assert (numpy.log((high_s + GRAIN_S) / (start + GRAIN_S)) >= 0.25 * numpy.minimum(wide, 4.6) - 1e-6).all()


def test_a_start_beyond_the_horizon_stays_beyond_it() -> None:
    calibration = learned(outcomes(spread(100, 0.7)), NOW_S)
    start: Floats = numpy.array([600.0, math.inf])
    low_s, high_s = calibrated(
        calibration, start, numpy.array([500.0, math.inf]), numpy.array([math.inf] * 2)
    )
    assert low_s[0] < 600.0
    assert low_s[1] == high_s[0] == high_s[1] == math.inf


def test_calibration_changes_only_the_intervals_of_a_plan() -> None:
    jobs = tuple(job(at, cpus=4, limit_s=900.0) for at in range(1, 9))
    rolled = plan(Problem(machines=(machine(),), pending=jobs, running=()), Bounds())
    found = calibrated_plan(rolled, learned(outcomes(spread(100, 0.7)), NOW_S))
    assert calibrated_plan(rolled, UNCALIBRATED) is rolled
    assert [(one.low_s, one.high_s) for one in found.jobs] != [(one.low_s, one.high_s) for one in rolled.jobs]
    assert [(one.job_id, one.after, one.start_s) for one in found.jobs] == [
        (one.job_id, one.after, one.start_s) for one in rolled.jobs
    ]
    assert all(one.low_s <= one.start_s <= one.high_s for one in found.jobs)
