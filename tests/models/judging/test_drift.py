"""Drift in words, and calibration by week."""

import math
import random

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.frames import Ints
from models.demand.features import FEATURES, OF_AGE
from models.judging.drift import (
    LEAST_ROWS,
    SHIFTED,
    WEEK_S,
    Allowance,
    FeatureDrift,
    WeekCalibration,
    Word,
    alarming,
    calibration_by_week,
    feature_drift,
    in_words,
    latest_from,
    stability,
)
from tests.builders import T0

FLOATS = st.lists(
    st.one_of(st.floats(-1e6, 1e6), st.just(math.nan), st.sampled_from([0.0, 1.0])), max_size=60
)


@given(FLOATS, FLOATS)
def test_an_index_is_finite_and_never_negative(before: list[float], latest: list[float]) -> None:
    psi, bins = stability(numpy.array(before, dtype=float), numpy.array(latest, dtype=float))
    assert 0 <= psi < math.inf
    assert bins >= 1


@given(FLOATS.filter(bool))
def test_the_same_values_have_not_drifted(values: list[float]) -> None:
    column = numpy.array(values)
    assert stability(column, column)[0] == 0


def test_the_index_is_that_of_its_definition() -> None:
    before, latest = numpy.array([0.0] * 800 + [1.0] * 200), numpy.array([0.0] * 200 + [1.0] * 800)
    shares = [((800.5 / 1001), (200.5 / 1001)), ((200.5 / 1001), (800.5 / 1001))]
    by_hand = sum((second - first) * math.log(second / first) for first, second in zip(*shares, strict=True))
    psi, bins = stability(before, latest)
    assert bins == 2
    assert psi == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("psi", "word"),
    [(-0.1, "stable"), (0.099, "stable"), (0.1, "shifted"), (0.249, "shifted"), (0.25, "drifted")],
)
def test_words(psi: float, word: str) -> None:
    assert in_words(psi) == word


def weeks(jobs: int, weeks: int = 10) -> Ints:
    return T0 + numpy.arange(jobs) * weeks * WEEK_S // jobs


def test_what_chance_gives_so_few_rows_is_no_drift() -> None:
    draw, submit_s = random.Random(5), weeks(600, weeks=5)
    [found] = feature_drift(["same"], numpy.array([[draw.gauss(0, 1)] for _ in submit_s]), submit_s)
    assert SHIFTED < found.psi < SHIFTED + found.by_chance
    assert found.word == "stable"


def test_the_same_distribution_is_stable_and_another_has_drifted() -> None:
    draw, submit_s = random.Random(5), weeks(3000)
    latest = latest_from(submit_s)
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
    assert found["constant"].psi == 0
    assert alarming(found.values(), ()) == (found["lost"], found["moved"])
    assert alarming([found["same"], found["constant"]], ()) == ()


def test_what_moves_with_age_alarms_only_where_calibration_has_moved_too() -> None:
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


def test_the_features_of_age_are_features() -> None:
    assert set(FEATURES) > OF_AGE


def test_few_rows_are_too_few_to_tell() -> None:
    submit_s = weeks(LEAST_ROWS)
    found = feature_drift(["one"], numpy.arange(LEAST_ROWS, dtype=float)[:, None], submit_s)
    assert found[0].word == "too few to tell"
    assert feature_drift(["one"], numpy.zeros((0, 1)), submit_s[:0]) == ()
    (alone,) = feature_drift(["one"], numpy.ones((1, 1)), numpy.array([T0]))
    assert (alone.word, alone.psi) == ("too few to tell", 0)


def test_a_short_past_is_split_at_its_last_fifth() -> None:
    assert latest_from(T0 + numpy.arange(100)) == T0 + 80
    assert latest_from(numpy.array([T0, T0 + 3 * WEEK_S])) == T0 + 2 * WEEK_S


def test_each_week_is_counted_and_a_bad_one_found() -> None:
    submit_s = weeks(2000, weeks=4)
    bad = T0 + 3 * WEEK_S
    number = numpy.arange(len(submit_s))
    exceeded = numpy.where(submit_s >= bad, number % 10 == 0, number % 200 == 0)
    allowed, equal = Allowance(nominal=0.01, made_from=500), numpy.full(len(submit_s), 0.7)
    found = calibration_by_week(exceeded, submit_s, equal, allowed)
    assert [(week.jobs, week.exceeded, week.word) for week in found] == [
        (500, 3, "stable"),
        (500, 2, "stable"),
        (500, 3, "stable"),
        (500, 50, "drifted"),
    ]
    assert found[3].error == pytest.approx(0.09)
    assert calibration_by_week(exceeded[:0], submit_s[:0], equal[:0], allowed) == ()
    (few,) = calibration_by_week(exceeded[1:6], submit_s[1:6], equal[1:6], allowed)
    assert few.word == "too few to tell"


def test_a_week_is_counted_in_the_weights_of_its_rows() -> None:
    """Half of the rows weigh a tenth, and all that exceeded are among them."""
    light = numpy.arange(1000) % 2 == 1
    weights, submit_s = numpy.where(light, 0.1, 1.0), T0 + numpy.arange(1000)
    exceeded = light & (numpy.arange(1000) % 20 == 1)
    allowed = Allowance(nominal=0.01, made_from=400)
    (week,) = calibration_by_week(exceeded, submit_s, weights, allowed)
    assert (week.rows, week.jobs, week.exceeded, week.word) == (1000, 599, 5, "stable")
    (equal,) = calibration_by_week(exceeded, submit_s, numpy.ones(1000), allowed)
    assert (equal.rows, equal.jobs, equal.exceeded, equal.word) == (1000, 1000, 50, "drifted")
    # Four heavy rows say little, however many light ones are beside them.
    alone = numpy.where(numpy.arange(1000) < 4, 1.0, 0.001)
    (few,) = calibration_by_week(numpy.zeros(1000, numpy.bool_), submit_s, alone, allowed)
    assert (few.jobs, few.word) == (6, "too few to tell")


def test_a_week_of_an_earlier_releases_card_is_read() -> None:
    told = b'{"from_s":1700000000,"jobs":300,"exceeded":9,"nominal":0.01,"word":"shifted"}'
    week = msgspec.json.decode(told, type=WeekCalibration)
    assert (week.jobs, week.exceeded, week.rows) == (300, 9, None)
