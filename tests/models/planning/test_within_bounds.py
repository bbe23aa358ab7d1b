"""The bounds hold for any wish: kept jobs stay, urgent jobs come first, fair share is not inverted."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.planning.cells import slurm_order
from models.planning.problem import Bounds, Pending
from models.planning.within_bounds import arranged, segments, urgent_ones
from models.scheduling.room import Floats
from tests.models.planning.problems import job, pending_jobs


def arrange(pending: tuple[Pending, ...], wished: Floats, urgent: set[int], most: float) -> list[int]:
    return arranged(pending, slurm_order(pending), wished, urgent, most)


wishes = st.lists(st.integers(0, 6), min_size=14, max_size=14).map(
    lambda keys: numpy.array(keys, dtype=numpy.float64)
)
urgents = st.sets(st.integers(0, 13), max_size=4)
inversions = st.sampled_from([0.0, 0.1, 0.3, 1.0])


def must_stay_before(one: Pending, other: Pending, most_inversion: float) -> bool:
    """Whether the site, or the user of both, forbids putting `one` behind `other`, which Slurm has behind it."""
    if one.user == other.user and one.nice < other.nice:
        return True
    if one.fair_share is None or other.fair_share is None or one.account == other.account:
        return False
    return one.fair_share > other.fair_share + most_inversion


@given(pending_jobs(), wishes, urgents, inversions)
def test_no_better_fair_share_of_another_account_and_no_lower_nice_of_a_user_is_put_behind(
    pending: tuple[Pending, ...], wished: Floats, urgent: set[int], most: float
) -> None:
    found = arrange(pending, wished, urgent, most)
    place = {number: at for at, number in enumerate(found)}
    order = slurm_order(pending)
    assert sorted(found) == sorted(order)
    for at, one in enumerate(order):
        for other in order[at + 1 :]:
            if must_stay_before(pending[one], pending[other], most):
                assert place[one] < place[other]


@given(pending_jobs(), wishes, urgents, inversions)
def test_nothing_passes_a_kept_job_or_one_of_a_higher_tier(
    pending: tuple[Pending, ...], wished: Floats, urgent: set[int], most: float
) -> None:
    found = arrange(pending, wished, urgent, most)
    order = slurm_order(pending)
    for at, number in enumerate(order):
        if pending[number].kept:
            assert set(found[: found.index(number)]) == set(order[:at])
    tiers = [pending[number].tier for number in found]
    assert tiers == sorted(tiers, reverse=True)


@given(pending_jobs(), wishes, urgents, inversions)
def test_an_urgent_job_is_behind_none_but_those_that_slurm_has_before_it(
    pending: tuple[Pending, ...], wished: Floats, urgent: set[int], most: float
) -> None:
    found = arrange(pending, wished, urgent, most)
    order = slurm_order(pending)
    for number in urgent & set(order):
        assert set(found[: found.index(number)]) <= set(order[: order.index(number)])


@given(pending_jobs(), wishes, urgents, inversions)
def test_an_order_within_the_bounds_stays_as_it_is(
    pending: tuple[Pending, ...], wished: Floats, urgent: set[int], most: float
) -> None:
    found = arrange(pending, wished, urgent, most)
    places = numpy.empty(len(found))
    places[found] = numpy.arange(len(found))
    assert arrange(pending, places, urgent, most) == found
    assert arrange(pending, numpy.zeros(len(found)), set(), most) == slurm_order(pending)


def test_without_bounds_the_wish_is_granted() -> None:
    pending = tuple(job(number, account=number) for number in range(4))
    assert arrange(pending, numpy.array([3.0, 2.0, 1.0, 0.0]), set(), 0.0) == [3, 2, 1, 0]


def test_a_job_that_is_held_back_comes_right_behind_the_one_that_holds_it() -> None:
    shares = (0.9, 0.2, 0.5, 0.2)
    pending = tuple(job(at, account=at, fair_share=share) for at, share in enumerate(shares))
    # 0 is wished last: of the others, only 2 differs from it by no more than 0.5.
    assert arrange(pending, numpy.array([9.0, 0.0, 1.0, 2.0]), set(), 0.5) == [2, 0, 1, 3]


def test_users_of_one_account_may_change_places() -> None:
    pending = tuple(job(at, account=1, fair_share=share) for at, share in enumerate((0.9, 0.1)))
    assert arrange(pending, numpy.array([1.0, 0.0]), set(), 0.0) == [1, 0]


def test_an_urgent_job_takes_along_the_better_fair_share_that_it_may_not_pass() -> None:
    pending = (job(0, account=0, fair_share=0.9), job(1, account=1), job(2, account=2, fair_share=0.1))
    assert arrange(pending, numpy.array([9.0, 0.0, 5.0]), {2}, 0.1) == [0, 2, 1]


def test_an_urgent_job_passes_a_fair_share_that_is_only_a_little_better() -> None:
    pending = (job(0, account=0, fair_share=0.5), job(1, account=1, fair_share=0.45))
    assert arrange(pending, numpy.array([9.0, 0.0]), {1}, 0.1) == [1, 0]


@pytest.mark.parametrize("behind", [((1, 0.5), (2, 0.1)), ((2, 0.1), (1, 0.5)), ((1, 0.1), (1, 0.3))])
def test_the_least_fair_share_of_several_urgent_jobs_says_what_they_take_along(
    behind: tuple[tuple[int, float], ...],
) -> None:
    shares = ((0, 0.25), *behind)
    pending = (*(job(at, account=one, fair_share=share) for at, (one, share) in enumerate(shares)), job(3))
    assert arrange(pending, numpy.array([9.0, 5.0, 5.0, 0.0]), {1, 2}, 0.1) == [0, 1, 2, 3]


def test_users_order_their_own_jobs_by_nice() -> None:
    pending = tuple(
        job(at, user=user, nice=nice) for at, (user, nice) in enumerate([(0, 0), (0, 50), (1, 0), (0, -9)])
    )
    # 1 may not pass 0, which is wished last; the other user's job may, and so may 3, whose nice value is lower.
    assert arrange(pending, numpy.array([9.0, 0.0, 1.0, 2.0]), set(), 0.0) == [2, 3, 0, 1]
    # An urgent job takes along the jobs that its user has before it.
    assert arrange(pending, numpy.array([9.0, 8.0, 1.0, 2.0]), {1}, 0.0) == [0, 1, 2, 3]


def test_nice_and_fair_share_together_decide_what_stays_before_a_job() -> None:
    pending = (
        job(0, user=0, account=0, fair_share=0.9),
        job(1, user=1, account=1, fair_share=0.1, nice=0),
        job(2, user=1, account=1, fair_share=0.1, nice=7),
    )
    assert arrange(pending, numpy.array([9.0, 5.0, 0.0]), set(), 0.1) == [0, 1, 2]


def test_jobs_that_have_waited_long_or_are_overdue_are_urgent() -> None:
    pending = (
        job(0, waited_s=50.0),
        job(1, waited_s=100.0),
        job(2),
        job(3),
    )
    turn_s = [1.0, 1.0, 0.0, 1.0]
    assert urgent_ones(pending, range(4), Bounds(most_wait_s=100.0), turn_s) == {1, 2}


def test_a_kept_job_is_a_segment_of_its_own() -> None:
    pending = (job(0), job(1, kept="reserved"), job(2), job(3, tier=0), job(4, tier=0))
    assert segments(pending, slurm_order(pending)) == [[0], [1], [2], [3, 4]]
