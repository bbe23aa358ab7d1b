"""Calibration by week finds what has changed, and is quiet where nothing has."""

from collections import Counter

import msgspec
import numpy
import pytest

from models.demand.features import FEATURES
from models.judging import health
from models.judging.card import card_of, markdown
from models.judging.drift import WEEK_S, WeekCalibration, Word, alarming
from models.judging.health import MOST_FITTED, MOST_WEEKS, GrowthHealth, drawn, health_of, watched_from
from models.past.history import History
from models.training import quantile
from models.training.matrix import Matrix
from models.training.training import Seen, Trained, fit_growth
from tests.builders import DAY_S, T0

JUMP = 0.5


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train few trees and do not shuffle: growth here holds nothing to learn, and offsets are right above any trees."""
    monkeypatch.setattr(quantile, "ROUNDS", 10)
    monkeypatch.setattr(health, "REPEATS", 1)
    monkeypatch.setattr(health, "MOST_ROWS", 1)


def site(
    seed: int,
    jobs: int,
    *,
    days: int = 28,
    users: int = 60,
    busy_spread: float | None = None,
    jumps_from_day: float | None = None,
) -> Matrix:
    """Jobs in the order of their submission, whose growth has a spread of 0.1.

    `busy_spread` gives two jobs in five to one user, whose growth has that spread; from day `jumps_from_day` on, three
    jobs in ten need JUMP more.
    """
    draw = numpy.random.default_rng(seed)
    submit_s = T0 + numpy.sort(draw.integers(0, days * DAY_S, jobs))
    busy = (draw.random(jobs) < 0.4) & (busy_spread is not None)
    user = numpy.where(busy, 0, draw.integers(1, users, jobs))
    growth = draw.normal(0, numpy.where(busy, busy_spread or 0.0, 0.1))
    if jumps_from_day is not None:
        growth += JUMP * ((submit_s >= T0 + jumps_from_day * DAY_S) & (draw.random(jobs) < 0.3))
    return Matrix(
        inputs=draw.random((jobs, len(FEATURES))).astype(numpy.float32),
        targets=growth,
        settled=numpy.ones(jobs, numpy.bool_),
        bounded=numpy.zeros(jobs, numpy.bool_),
        users=user,
        submit_s=submit_s,
        names=[f"u{number}" for number in range(users)],
    )


def trained_on(matrix: Matrix) -> Trained:
    seen = Seen(attempts=len(matrix), users=60, first_submit_s=T0, last_end_s=T0, gpu_sources=())
    return Trained(History(50), {"memory": matrix}, {"memory": fit_growth(matrix)}, seen)


def health_on(matrix: Matrix, most_failures: float = 0.01) -> GrowthHealth:
    (found,) = health_of(trained_on(matrix), most_failures)
    return found


def weeks_on(matrix: Matrix, most_failures: float = 0.01) -> tuple[WeekCalibration, ...]:
    return health_on(matrix, most_failures).weeks


@pytest.mark.parametrize("seed", range(3))
def test_a_change_within_the_jobs_that_set_the_offset_is_found(seed: int) -> None:
    matrix = site(seed, 4000, jumps_from_day=23)
    (week,) = weeks_on(matrix)
    assert week.word == "drifted"
    assert week.observed > 0.2
    assert alarming((), [week]) == (week,)
    # The offset in use covers the changed jobs, as it should: it was made from them.
    known = fit_growth(matrix).known
    assert known.calibrated_on == week.rows == 800
    assert (known.offset(0.01) or 0.0) > JUMP / 2


def test_a_change_older_than_the_jobs_before_is_no_drift_any_more() -> None:
    words = {week.word for week in weeks_on(site(1, 4000, days=84, jumps_from_day=40))}
    assert "drifted" not in words


@pytest.mark.parametrize("busy_spread", [None, 0.12])
def test_where_nothing_changes_hardly_any_week_has_drifted(busy_spread: float | None) -> None:
    """With each job counted as one in a binomial test, the busy user made the newest week drift in a third of these."""
    words: Counter[Word] = Counter()
    for seed in range(8):
        (week,) = weeks_on(site(seed, 12_000, busy_spread=busy_spread))
        words[week.word] += 1
    assert words["drifted"] == 0
    assert words["shifted"] <= 2


def test_a_busy_user_counts_as_little_as_in_the_offset() -> None:
    (week,) = weeks_on(site(1, 4000, busy_spread=0.12))
    assert week.rows == 800
    assert week.jobs < 600


def test_too_few_jobs_are_reported_as_too_few() -> None:
    few = site(1, 300)
    found = health_on(few, 0.05)
    assert [(week.rows, week.word) for week in found.weeks] == [(60, "too few to tell")]
    assert health_on(few, 0.01).weeks == ()
    assert "Too few jobs to judge." in markdown(card_of(trained_on(few), None, 0.01))


def test_the_next_larger_share_is_used_where_too_few_jobs_came_before() -> None:
    """112 jobs give an offset for one per cent; the 90 jobs before the week are too few for it."""
    matrix = site(1, 560)
    assert fit_growth(matrix).known.offset(0.01) is not None
    assert {week.nominal for week in weeks_on(matrix)} == {0.02}
    jumped = weeks_on(site(1, 560, jumps_from_day=23))
    assert [week.word for week in jumped] == ["drifted"]


def test_no_week_is_counted_where_the_jobs_before_are_too_few_for_any_share() -> None:
    matrix = site(1, 110)
    assert fit_growth(matrix).known.offset(0.05) is not None
    assert weeks_on(matrix, 0.05) == ()


def test_jobs_of_families_that_have_not_settled_are_not_counted() -> None:
    matrix = site(1, 4000, jumps_from_day=23)
    settled = matrix.targets < JUMP / 2
    found = health_on(msgspec.structs.replace(matrix, settled=settled))
    kept = int(settled[3200:].sum())
    assert kept < 700
    assert (sum(week.rows or 0 for week in found.weeks), found.calibrated_on) == (kept, kept)
    assert 0 < max(one.jobs for one in found.calibration) <= kept / 2 + 1
    assert "drifted" not in {week.word for week in found.weeks}


def test_bounds_alone_give_no_importance_calibration_or_weeks() -> None:
    matrix = site(1, 4000)
    found = health_on(msgspec.structs.replace(matrix, bounded=numpy.arange(4000) >= 3200))
    assert (found.importance, found.calibration, found.weeks) == ((), (), ())


def test_the_last_fifth_is_counted_but_no_more_than_the_most_weeks() -> None:
    assert watched_from(T0 + numpy.arange(100) * 3600) == 80
    years = T0 + numpy.arange(100) * WEEK_S
    assert watched_from(years) == 100 - MOST_WEEKS


def test_rows_are_sampled_where_there_are_many_and_the_same_every_time() -> None:
    assert drawn(70).all()
    many = drawn(MOST_FITTED + 1000)
    assert (len(many), int(many.sum())) == (MOST_FITTED + 1000, MOST_FITTED)
    assert (many == drawn(MOST_FITTED + 1000)).all()


def test_a_card_shows_rows_and_how_many_jobs_they_count_as() -> None:
    trained = trained_on(site(1, 4000, busy_spread=0.12))
    card = card_of(trained, None, 0.01)
    (week,) = card.growth[0].weeks
    assert f"| {week.rows} | {week.jobs} | 1.0% | {week.observed:.1%} | {week.word} |" in markdown(card)
    assert msgspec.json.decode(msgspec.json.encode(card), type=type(card)) == card
    assert card == card_of(trained, None, 0.01)
