"""The factors make the wished order, with as few changes as any could."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy
from hypothesis import given
from hypothesis import strategies as st

from models.planning.cells import slurm_order
from models.planning.factors import LEAST, MOST, effective, factors_of, order_of
from models.planning.orders import AS_IS
from models.planning.planning import plan
from models.planning.problem import Bounds, Pending, PlannedJob, Problem
from models.planning.telling import bounded
from models.planning.within_bounds import arranged
from tests.models.planning.problems import holding, job, machine, pending_jobs

UNBOUNDED = 1 << 31
orders = st.permutations(range(8))


def changed(pending: tuple[Pending, ...], factors: dict[int, int]) -> set[int]:
    return {number for number, factor in factors.items() if factor != pending[number].factor}


@given(st.lists(st.tuples(st.integers(50, 90), st.integers(-5, 5)), min_size=8, max_size=8), orders)
def test_the_wished_order_is_made_with_the_fewest_changes(
    values: list[tuple[int, int]], order: list[int]
) -> None:
    pending = tuple(
        job(at + 1, priority=priority, factor=factor) for at, (priority, factor) in enumerate(values)
    )
    factors = factors_of(pending, order, UNBOUNDED)
    assert order_of(pending, order, factors) == order
    assert len(changed(pending, factors)) == 8 - most_unchanged(pending, order)


def most_unchanged(pending: tuple[Pending, ...], order: list[int]) -> int:
    """Return how many jobs of an order can keep their factor, by trying all subsets.

    Each changed job gets a level of its own; neighbours that their ids already order as wished share one.
    """
    levels = [0]
    for one, other in pairwise(order):
        tied = now(pending[one]) == now(pending[other]) and pending[one].job_id < pending[other].job_id
        levels.append(levels[-1] + (0 if tied else 1))
    for size in range(len(order), 0, -1):
        for kept in combinations(range(len(order)), size):
            if all(
                now(pending[order[one]]) - now(pending[order[other]]) >= levels[other] - levels[one]
                for one, other in combinations(kept, 2)
            ):
                return size
    return 0


def now(record: Pending) -> int:
    return record.priority + record.factor


@given(pending_jobs(kept=False), st.lists(st.integers(0, 9), min_size=14, max_size=14))
def test_any_order_within_a_tier_comes_out_as_wished(pending: tuple[Pending, ...], keys: list[int]) -> None:
    members = slurm_order(pending)
    order = arranged(pending, members, numpy.array(keys, dtype=numpy.float64), set(), 1.0)
    factors = factors_of(pending, order, UNBOUNDED)
    assert order_of(pending, members, factors) == order
    for number, factor in factors.items():
        assert LEAST <= effective(pending[number], factor) <= MOST
        if number in changed(pending, factors):
            assert LEAST <= pending[number].priority + factor <= MOST


@given(pending_jobs(kept=False), st.lists(st.integers(0, 9), min_size=14, max_size=14))
def test_a_plan_that_holds_changes_nothing_as_all_jobs_age(
    pending: tuple[Pending, ...], keys: list[int]
) -> None:
    members = slurm_order(pending)
    order = arranged(pending, members, numpy.array(keys, dtype=numpy.float64), set(), 1.0)
    factors = factors_of(pending, order, UNBOUNDED)
    older = tuple(
        job(
            record.job_id,
            priority=record.priority + 37,
            factor=factors[number],
            tier=record.tier,
        )
        for number, record in enumerate(pending)
    )
    assert not changed(older, factors_of(older, order, UNBOUNDED))


@given(pending_jobs(), st.integers(0, 20))
def test_no_factor_exceeds_its_bound_and_kept_jobs_keep_theirs(
    pending: tuple[Pending, ...], most: int
) -> None:
    order = arranged(pending, slurm_order(pending), numpy.array([-float(at) for at in range(14)]), set(), 1.0)
    factors = factors_of(pending, order, most)
    for number in changed(pending, factors):
        assert abs(factors[number]) <= most
        assert not pending[number].kept


def test_a_job_that_is_moved_ahead_is_the_only_change() -> None:
    pending = tuple(job(at + 1, priority=1000) for at in range(5))
    factors = factors_of(pending, [4, 0, 1, 2, 3], UNBOUNDED)
    assert changed(pending, factors) == {4}
    assert factors[4] > 0


def test_a_job_moved_between_two_others_finds_room() -> None:
    pending = (job(1, priority=100), job(2, priority=90), job(3, priority=10))
    factors = factors_of(pending, [0, 2, 1], UNBOUNDED)
    assert changed(pending, factors) == {2}
    assert 90 < 10 + factors[2] < 100


def test_nothing_leaves_its_place_between_barriers() -> None:
    pending = (
        job(1, priority=100, kept="top"),
        job(2, priority=60),
        job(3, priority=50),
        job(4, priority=20, kept="x"),
    )
    factors = factors_of(pending, [0, 2, 1, 3], UNBOUNDED)
    assert order_of(pending, range(4), factors) == [0, 2, 1, 3]
    assert factors[0] == factors[3] == 0


@given(pending_jobs(), st.integers(0, 4))
def test_factors_taken_back_step_by_step_swap_no_jobs_that_keep_their_order_in_the_end(
    pending: tuple[Pending, ...], most_changes: int
) -> None:
    base = slurm_order(pending)
    in_force = {at: job.factor for at, job in enumerate(pending)}
    jobs = tuple(
        PlannedJob(
            job_id=job.job_id,
            before=job.factor,
            after=0,
            reason="",
            base_start_s=0,
            start_s=0,
            low_s=0,
            high_s=0,
        )
        for job in pending
    )
    found = bounded(jobs, base, most_changes)
    assert sum(job.before != job.after for job in found) <= most_changes
    before, between = (
        order_of(pending, base, factors)
        for factors in (in_force, {at: job.after for at, job in enumerate(found)})
    )
    for at, one in enumerate(base):
        for other in base[at + 1 :]:
            if before.index(one) < before.index(other):
                assert between.index(one) < between.index(other)


def test_a_job_with_a_lower_nice_is_not_put_behind_while_factors_are_taken_back() -> None:
    pending = (
        job(2, cpus=4, priority=90, factor=-60, nice=10),
        job(1, cpus=4, priority=100, factor=-50, nice=0),
    )
    problem = Problem(machines=(machine(4),), pending=pending, running=(holding(0, 4, 600.0),))
    found = plan(problem, Bounds(most_changes=1))
    assert (found.order, len(found.changes)) == (AS_IS, 1)
    after = {at: one.after for at, one in enumerate(found.jobs)}
    assert order_of(pending, [0, 1], after) == [1, 0]
