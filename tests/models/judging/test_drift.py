"""Drift of features, in words, and calibration by week."""

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from accounting.frames import Ints
from models.demand.features import FEATURES, OF_AGE
from models.judging.drift import (
    LEAST_ROWS,
    MOST_PERIODS,
    SHIFTED,
    WEEK_S,
    Allowance,
    FeatureDrift,
    WeekCalibration,
    Word,
    alarming,
    calibration_by_week,
    edges_of,
    feature_drift,
    in_words,
    independent_jobs,
    index_of,
    periods_back,
    tallies,
)
from tests.builders import DAY_S, T0

FLOATS = st.lists(
    st.one_of(st.floats(-1e6, 1e6), st.just(math.nan), st.sampled_from([0.0, 1.0])), max_size=60
)


@given(FLOATS, FLOATS)
def test_an_index_is_finite_and_never_negative(before: list[float], latest: list[float]) -> None:
    psi, chance = stability(before, latest)
    assert 0 <= psi < math.inf
    assert 0 <= chance < math.inf


@given(FLOATS.filter(bool))
def test_the_same_values_have_not_drifted(values: list[float]) -> None:
    assert stability(values, values)[0] == 0


def test_the_index_follows_its_definition() -> None:
    shares = [((800.5 / 1001), (200.5 / 1001)), ((200.5 / 1001), (800.5 / 1001))]
    by_hand = sum((second - first) * math.log(second / first) for first, second in zip(*shares, strict=True))
    psi, chance = stability([0.0] * 800 + [1.0] * 200, [0.0] * 200 + [1.0] * 800)
    assert psi == pytest.approx(by_hand)
    assert chance == pytest.approx(1 / 1000 + 1 / 1000)  # of two bins


def stability(before: list[float], latest: list[float]) -> tuple[float, float]:
    """The index of rows of equal weight, and what chance alone gives."""
    values, weights = numpy.array([*latest, *before]), numpy.ones(len(latest) + len(before))
    back = numpy.array([0] * len(latest) + [1] * len(before), dtype=numpy.int64)
    edges = edges_of(values[back > 0], weights[back > 0])
    newest, old = tallies(values, weights, back, edges)[:2]
    return index_of(old, newest)


def test_edges_are_tenths_of_the_weight_not_of_the_rows() -> None:
    values = numpy.arange(19.0)
    assert list(edges_of(values, numpy.ones(19))) == [1, 3, 5, 7, 9, 11, 13, 15, 17]
    # The lower half of the rows weighs less than one row of the upper half.
    weights = numpy.where(values < 9, 0.1, 1.0)
    assert list(edges_of(values, weights)) == [9, 10, 11, 12, 13, 14, 15, 16, 17]


@pytest.mark.parametrize(
    ("psi", "word"),
    [(-0.1, "stable"), (0.099, "stable"), (0.1, "shifted"), (0.249, "shifted"), (0.25, "drifted")],
)
def test_the_size_of_an_index_decides_its_word(psi: float, word: str) -> None:
    assert in_words(psi) == word


def weeks(jobs: int, weeks: int = 10) -> Ints:
    return T0 + numpy.arange(jobs) * weeks * WEEK_S // jobs


def test_what_chance_gives_in_so_few_rows_is_no_drift() -> None:
    draw, submit_s = random.Random(5), weeks(600, weeks=5)
    [found] = feature_drift(["same"], numpy.array([[draw.gauss(0, 1)] for _ in submit_s]), submit_s)
    assert SHIFTED < found.psi < SHIFTED + found.by_chance
    assert found.word == "stable"


def test_the_same_distribution_is_stable_and_another_has_drifted() -> None:
    draw, submit_s = random.Random(5), weeks(3000)
    latest = submit_s[-1] - WEEK_S + 1
    rows = [
        [draw.gauss(0, 1), draw.gauss(0, 1) + (at_s >= latest), math.nan if at_s >= latest else 1.0, 7.0]
        for at_s in submit_s
    ]
    names = ["same", "moved", "lost", "constant"]
    found = {one.feature: one for one in feature_drift(names, numpy.array(rows), submit_s)}
    assert {name: one.word for name, one in found.items()} == {
        "lost": "drifted",
        "moved": "drifted",
        "same": "stable",
        "constant": "stable",
    }
    assert next(iter(found)) == "lost"
    assert found["same"].latest == pytest.approx(300, abs=2)
    assert found["same"].by_chance < 0.1, "weeks that differ by chance alone add little to it"
    assert found["constant"].psi == 0
    assert alarming(found.values(), ()) == (found["lost"], found["moved"])
    assert alarming([found["same"], found["constant"]], ()) == ()


def test_drift_of_features_that_age_alarms_only_where_calibration_has_moved_too() -> None:
    def feature(name: str) -> FeatureDrift:
        return FeatureDrift(feature=name, psi=1.0, by_chance=0.0, before=900, latest=300, word="drifted")

    def week(word: Word) -> WeekCalibration:
        return WeekCalibration(from_s=T0, jobs=300, exceeded=9, nominal=0.01, word=word)

    aged, asked = feature("jobs_seen"), feature("log_asked")
    for calm in ((), (week("stable"),), (week("too few to tell"),)):
        assert alarming([aged], calm) == ()
        assert alarming([aged, asked], calm) == (asked,)
    assert alarming([aged], (week("stable"), week("shifted"))) == (aged,)
    assert alarming([], (week("drifted"),)) == (week("drifted"),)


def test_every_feature_named_as_ageing_is_a_feature() -> None:
    assert set(FEATURES) > OF_AGE


def test_few_rows_are_too_few_to_tell() -> None:
    submit_s = weeks(LEAST_ROWS)
    found = feature_drift(["one"], numpy.arange(LEAST_ROWS, dtype=float)[:, None], submit_s)
    assert found[0].word == "too few to tell"
    assert feature_drift(["one"], numpy.zeros((0, 1)), submit_s[:0]) == ()
    (alone,) = feature_drift(["one"], numpy.ones((1, 1)), numpy.array([T0]))
    assert (alone.word, alone.psi) == ("too few to tell", 0)


def test_periods_are_weeks_or_fifths_of_a_short_past() -> None:
    assert list(numpy.bincount(periods_back(T0 + numpy.arange(101)))) == [20, 20, 20, 20, 20, 1]
    ten_weeks = periods_back(T0 + numpy.arange(10 * 7) * DAY_S)
    assert list(numpy.bincount(ten_weeks)) == [7] * 10
    years = periods_back(T0 + numpy.arange(730) * DAY_S)
    assert list(numpy.bincount(years)) == [7] * (MOST_PERIODS + 1) + [730 - 7 * (MOST_PERIODS + 1)]
    assert list(periods_back(numpy.array([T0]))) == [0]


def campaigns(seed: int, users: int, asked_more: float = 0.0) -> tuple[NDArray[numpy.float64], Ints, Ints]:
    """Twenty weeks in which two users in five come, request what they always do, and run from a few to a thousand jobs.

    In the last week all request `asked_more` more. Returns the requests (logarithms), submit times and users.
    """
    draw = numpy.random.default_rng(seed)
    usual = draw.normal(8, 1, users)
    asked, submit_s, owners = list[float](), list[int](), list[int]()
    for week in range(20):
        for user in numpy.flatnonzero(draw.random(users) < 0.4).tolist():
            jobs = int(draw.lognormal(3, 1.5)) + 1
            begin_s = T0 + week * WEEK_S + int(draw.integers(0, WEEK_S - 20_000))
            asked += [usual[user] + asked_more * (week == 19)] * jobs
            submit_s += range(begin_s, begin_s + jobs)
            owners += [user] * jobs
    order = numpy.argsort(submit_s, kind="stable")
    return numpy.array(asked)[order][:, None], numpy.array(submit_s)[order], numpy.array(owners)[order]


@pytest.mark.parametrize("users", [20, 60, 300])
def test_campaigns_are_no_drift(users: int) -> None:
    words = Counter(feature_drift(["asked"], *campaigns(seed, users))[0].word for seed in range(20))
    assert words["drifted"] <= 1, "all but a few, where users and what they ask are the same as ever"


def test_a_change_of_all_users_is_found_among_campaigns() -> None:
    for users, least in ((60, 16), (300, 20)):
        found = [feature_drift(["asked"], *campaigns(seed, users, 1.5))[0].word for seed in range(20)]
        assert found.count("drifted") >= least


def test_a_change_of_one_user_is_no_drift_of_all() -> None:
    draw = numpy.random.default_rng(3)
    jobs = 20_000
    submit_s, users = weeks(jobs), draw.integers(0, 200, jobs)
    asked = draw.normal(8, 1, jobs)
    # One new user submits half of the last week's jobs, all with a request that nobody had: as jobs that is drift,
    # by user it is not.
    is_last = submit_s > submit_s[-1] - WEEK_S
    one = numpy.where(is_last & (numpy.arange(jobs) % 2 == 0), 200, users)
    moved = numpy.where(one == 200, 12.0, asked)[:, None]
    assert feature_drift(["asked"], moved, submit_s)[0].word == "drifted"
    assert feature_drift(["asked"], moved, submit_s, one)[0].word == "stable"


@pytest.mark.parametrize(
    ("exceeded", "users", "independent"),
    [
        # Each of a hundred users exceeds in one job of ten: users tell no less than jobs do.
        (lambda job: job % 10 == 0, lambda job: job // 10, 1000),
        # Ten users exceed in all of their jobs, ninety in none: a user's ten jobs tell what one would.
        (lambda job: job < 100, lambda job: job // 10, 100),
        (lambda job: job % 10 == 0, lambda job: job, 1000),
        (lambda job: job % 10 == 0, lambda job: 0 * job, 1000),
        (lambda job: job < 0, lambda job: job // 10, 1000),
        (lambda job: job >= 0, lambda job: job // 10, 1000),
    ],
    ids=["even", "by user", "alone", "one user", "none", "all"],
)
def test_independent_jobs_are_as_many_as_would_tell_as_much(
    exceeded: Callable[[Ints], Any], users: Callable[[Ints], Ints], independent: int
) -> None:
    job = numpy.arange(1000)
    assert round(independent_jobs(exceeded(job), numpy.ones(1000), users(job))) == independent
    assert independent_jobs(numpy.zeros(0, numpy.bool_), numpy.zeros(0), job[:0]) == 0


def test_one_campaign_that_grew_is_no_drift_and_many_are() -> None:
    job = numpy.arange(1000)
    submit_s, equal, users = T0 + job, numpy.ones(1000), job // 20
    allowed = Allowance(nominal=0.01, made_from=2000)
    (one,) = calibration_by_week(users == 7, submit_s, equal, users, allowed)
    assert (one.rows, one.word) == (1000, "stable")
    # Of the 51 jobs that these are worth, 1.02 exceeded.
    assert (one.jobs, one.exceeded) == (50, 1)
    assert one.observed == pytest.approx(0.02)
    assert calibration_by_week(users == 7, submit_s, equal, job, allowed)[0].word == "shifted"
    (many,) = calibration_by_week(users % 5 == 0, submit_s, equal, users, allowed)
    assert many.word == "drifted"


def test_each_week_is_counted_and_a_bad_one_is_found() -> None:
    submit_s = weeks(2000, weeks=4)
    bad = T0 + 3 * WEEK_S
    number = numpy.arange(len(submit_s))
    exceeded = numpy.where(submit_s >= bad, number % 10 == 0, number % 200 == 0)
    allowed, equal = Allowance(nominal=0.01, made_from=500), numpy.full(len(submit_s), 0.7)
    found = calibration_by_week(exceeded, submit_s, equal, number, allowed)
    assert [(week.jobs, week.exceeded, week.word) for week in found] == [
        (500, 3, "stable"),
        (500, 2, "stable"),
        (500, 3, "stable"),
        (500, 50, "drifted"),
    ]
    assert found[3].observed == pytest.approx(0.1)
    assert calibration_by_week(exceeded[:0], submit_s[:0], equal[:0], number[:0], allowed) == ()
    (few,) = calibration_by_week(exceeded[1:6], submit_s[1:6], equal[1:6], number[1:6], allowed)
    assert few.word == "too few to tell"


def test_a_week_is_counted_in_the_weights_of_its_rows() -> None:
    """Half of the rows weigh a tenth each, and all that exceeded are among them."""
    light = numpy.arange(1000) % 2 == 1
    weights, submit_s = numpy.where(light, 0.1, 1.0), T0 + numpy.arange(1000)
    exceeded = light & (numpy.arange(1000) % 20 == 1)
    allowed = Allowance(nominal=0.01, made_from=400)
    (week,) = calibration_by_week(exceeded, submit_s, weights, numpy.arange(1000), allowed)
    assert (week.rows, week.jobs, week.exceeded, week.word) == (1000, 599, 5, "stable")
    (equal,) = calibration_by_week(exceeded, submit_s, numpy.ones(1000), numpy.arange(1000), allowed)
    assert (equal.rows, equal.jobs, equal.exceeded, equal.word) == (1000, 1000, 50, "drifted")
    # Four heavy rows say little, however many light ones there are in addition.
    alone = numpy.where(numpy.arange(1000) < 4, 1.0, 0.001)
    (few,) = calibration_by_week(numpy.zeros(1000, numpy.bool_), submit_s, alone, numpy.arange(1000), allowed)
    assert (few.jobs, few.word) == (6, "too few to tell")


def test_a_week_from_the_card_of_an_earlier_release_is_read() -> None:
    told = b'{"from_s":1700000000,"jobs":300,"exceeded":9,"nominal":0.01,"word":"shifted"}'
    week = msgspec.json.decode(told, type=WeekCalibration)
    assert (week.jobs, week.exceeded, week.rows, week.observed) == (300, 9, None, 0.03)
