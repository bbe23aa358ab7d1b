"""The test whose evidence may be looked at after every job: fair odds, no verdict without others, quick if all fail."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.sequential import (
    ALONE,
    COMPARED,
    Range,
    Wealth,
    anew,
    beginning,
    evidence_log,
    is_enough_without_most,
    judged,
    other,
    without_most,
)

BOUND = 0.02
ENOUGH_LOG = math.log(1e4)


def run(
    ranges: tuple[Range, ...],
    outcomes: list[float],
    others: list[float] | None = None,
    start: Wealth | None = None,
) -> Wealth:
    wealth = start or beginning(ranges)
    for failed in others or []:
        wealth = other(wealth, ranges, failed)
    for failed in outcomes:
        wealth = judged(wealth, ranges, failed, BOUND)
    return wealth


def mean_growth(grown: tuple[Wealth, Wealth], share: float, side: str) -> list[float]:
    """How much each bet grows on average where `share` of jobs fail, given its growth on a failure and a success."""
    on_failure, on_success = (
        [math.exp(log) for bets in getattr(wealth, side) for log in bets] for wealth in grown
    )
    return [share * up + (1 - share) * down for up, down in zip(on_failure, on_success, strict=True)]


@given(st.floats(0, 1))
def test_no_bet_grows_on_average_where_what_it_bets_against_is_true(share: float) -> None:
    for one in COMPARED:
        ranges, (low, high) = (one,), one
        bets = run(ranges, [1.0]), run(ranges, [0.0])
        if share <= high + BOUND:
            assert max(mean_growth(bets, share, "judged")) <= 1 + 1e-9
        else:
            assert max(mean_growth(bets, share, "judged")) > 1
        if share >= low:
            others = run(ranges, [], [1.0]), run(ranges, [], [0.0])
            assert max(mean_growth(others, share, "others")) <= 1 + 1e-9


@given(st.lists(st.floats(0, 1), max_size=200))
def test_without_other_jobs_nothing_is_ever_concluded(outcomes: list[float]) -> None:
    assert evidence_log(run(COMPARED, outcomes)) <= 1e-9


def test_against_the_bound_alone_a_few_failures_in_a_row_are_enough() -> None:
    assert evidence_log(run(ALONE, [1.0] * 2)) < ENOUGH_LOG
    assert evidence_log(run(ALONE, [1.0] * 3)) >= ENOUGH_LOG


def test_a_long_good_past_hides_nothing() -> None:
    good = run(ALONE, [0.0] * 10_000)
    assert evidence_log(run(ALONE, [1.0] * 4, start=good)) >= ENOUGH_LOG


@pytest.mark.parametrize("anyhow", [0.02, 0.3])
def test_jobs_that_fail_as_often_as_the_others_are_not_stopped(anyhow: float) -> None:
    for number in range(10):
        draw = random.Random(number)
        wealth = run(COMPARED, [], [float(draw.random() < anyhow) for _ in range(50)])
        for _ in range(150):
            wealth = judged(wealth, COMPARED, float(draw.random() < anyhow), BOUND)
            assert evidence_log(wealth) < ENOUGH_LOG


def test_starting_again_keeps_what_is_known_of_the_others() -> None:
    known = run(COMPARED, [1.0] * 20, [0.0] * 50)
    assert evidence_log(known) > ENOUGH_LOG
    again = anew(known)
    assert again == run(COMPARED, [], [0.0] * 50)
    assert evidence_log(run(COMPARED, [1.0] * 20, start=again)) == pytest.approx(evidence_log(known))


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.lists(st.booleans(), max_size=60), st.data())
def test_one_failure_more_is_never_less_evidence(
    outcomes: list[bool], others: list[bool], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(outcomes) - 1))
    more = [*outcomes[:place], True, *outcomes[place + 1 :]]
    beside = list(map(float, others))
    assert evidence_log(run(COMPARED, list(map(float, more)), beside)) >= evidence_log(
        run(COMPARED, list(map(float, outcomes)), beside)
    )


SHARES = st.floats(0, 1) | st.sampled_from([0.0, 1.0])
PARTIES = st.dictionaries(st.sampled_from("abcd"), st.lists(SHARES, max_size=30))


def by_party(others: dict[str, list[float]]) -> list[tuple[int, float]]:
    return [(len(outcomes), sum(outcomes)) for outcomes in others.values()]


@given(st.lists(st.tuples(st.sampled_from("abcd"), SHARES), max_size=100), PARTIES)
def test_the_remaining_evidence_is_never_more_than_that_without_any_two_parties(
    outcomes: list[tuple[str, float]], others: dict[str, list[float]]
) -> None:
    for ranges in (ALONE, COMPARED):
        left = without_most(outcomes, by_party(others), ranges, BOUND, 2)
        assert is_enough_without_most(outcomes, by_party(others), ranges, BOUND, 2, evidence_log(left))
        for pair in itertools.combinations("abcd", 2):
            without = run(
                ranges,
                [failed for who, failed in outcomes if who not in pair],
                [failed for who, shares in others.items() if who not in pair for failed in shares],
            )
            for side in ("judged", "others"):
                least = 0.0 if side == "judged" else -math.inf
                for bets, all_bets in zip(getattr(left, side), getattr(without, side), strict=True):
                    for log, more in zip(bets, all_bets, strict=True):
                        assert log <= max(least, more) + 1e-6


@given(st.lists(st.tuples(st.sampled_from("abcd"), SHARES), max_size=100), st.lists(st.booleans()))
def test_where_no_party_is_left_out_the_remaining_evidence_is_the_wealth(
    outcomes: list[tuple[str, float]], others: list[bool]
) -> None:
    left = without_most(outcomes, [(len(others), float(sum(others)))], COMPARED, BOUND, 0)
    whole = run(COMPARED, [failed for _, failed in outcomes], list(map(float, others)))
    for bets, all_bets in zip(left.judged, whole.judged, strict=True):
        assert bets == pytest.approx([max(0.0, log) for log in all_bets], abs=1e-6)
    for bets, all_bets in zip(left.others, whole.others, strict=True):
        assert bets == pytest.approx(all_bets, abs=1e-6)
