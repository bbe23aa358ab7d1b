"""A plan keeps the site's bounds for any queue, is better than no plan, and is empty where nothing is to be gained."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.planning.factors import order_of
from models.planning.orders import AS_IS, ORDERS
from models.planning.planning import IN_FORCE, plan
from models.planning.problem import Bounds, Coming, Objective, Pending, Plan, Problem
from models.scheduling.availability import Window
from tests.models.planning.problems import POOL, holding, job, machine, problems
from tests.models.planning.test_within_bounds import must_stay_before

LONG_S = 36_000.0


def big_ahead_of_short(**others: Any) -> Problem:
    """One job of ten hours ahead of twenty of one minute; each needs the whole machine, which is free."""
    shorts = [job(2 + at, cpus=4, run_s=60.0, **others) for at in range(20)]
    return Problem(machines=(machine(4),), pending=(job(1, cpus=4, run_s=LONG_S), *shorts), running=())


def order_after(problem: Problem, found: Plan) -> list[int]:
    """Return the ids of the pending jobs in the order that Slurm would have after the plan."""
    after = {at: one.after for at, one in enumerate(found.jobs)}
    return [problem.pending[at].job_id for at in order_of(problem.pending, range(len(after)), after)]


def test_short_jobs_are_moved_ahead_of_a_long_one() -> None:
    problem = big_ahead_of_short()
    found = plan(problem, Bounds())
    assert order_after(problem, found)[-1] == 1
    assert [one.job_id for one in found.changes] == [1]
    assert found.jobs[0].base_start_s == 0.0
    assert found.jobs[0].start_s == 1200.0
    # As it is the short jobs wait for 36,000 s or more: slowdowns of 601, 602, …; without the long job 1, 2, …
    assert found.tried[0].value == pytest.approx((1 + sum(601 + at for at in range(20))) / 21)
    after = (1 + 1200 / LONG_S + sum(1 + at for at in range(20))) / 21
    # No slowdown is below 1, so that this part is not to the credit of any order.
    before = found.tried[0].value
    assert found.gain == pytest.approx((before - after) / (before - 1))
    assert found.order in found.why


def test_only_as_many_jobs_pass_as_the_allowed_delay_permits() -> None:
    problem = big_ahead_of_short()
    found = plan(problem, Bounds(most_delay_s=600.0))
    assert found.changes
    assert 0 < found.jobs[0].start_s <= 600.0


def test_no_allowed_delay_leaves_the_queue_as_it_is() -> None:
    found = plan(big_ahead_of_short(), Bounds(most_delay_s=0.0))
    assert (found.order, found.changes) == (AS_IS, ())


def test_a_kept_job_is_never_passed() -> None:
    problem = big_ahead_of_short()
    first = msgspec.structs.replace(problem.pending[0], kept="top priority")
    found = plan(msgspec.structs.replace(problem, pending=(first, *problem.pending[1:])), Bounds())
    assert (found.order, found.changes) == (AS_IS, ())
    assert found.jobs[0].reason == "kept: top priority"


def test_a_kept_job_is_not_passed_even_where_no_machine_here_holds_it() -> None:
    wide = job(1, cpus=6, run_s=60.0, kept="no node that is there holds it", priority=9_000)
    shorts = [job(3 + at, cpus=4, run_s=60.0, priority=8_000 - at) for at in range(20)]
    problem = Problem(
        machines=(machine(4),),
        pending=(wide, job(2, cpus=4, run_s=LONG_S, priority=8_500), *shorts),
        running=(holding(0, 4, 600.0),),
    )
    order = order_after(problem, plan(problem, Bounds()))
    assert (order[0], order[-1]) == (1, 2)
    ahead = msgspec.structs.replace(problem.pending[1], priority=9_500)
    behind = msgspec.structs.replace(problem, pending=(wide, ahead, *shorts))
    assert order_after(behind, plan(behind, Bounds()))[:2] == [2, 1]


@pytest.mark.parametrize(("most", "allowed"), [(0.1, False), (0.4, False), (0.6, True)])
def test_a_better_fair_share_is_not_put_behind_beyond_the_bound(most: float, allowed: bool) -> None:
    problem = big_ahead_of_short(account=1, fair_share=0.2)
    first = msgspec.structs.replace(problem.pending[0], fair_share=0.7)
    problem = msgspec.structs.replace(problem, pending=(first, *problem.pending[1:]))
    assert bool(plan(problem, Bounds(most_inversion=most)).changes) is allowed


def test_a_job_that_has_waited_too_long_comes_first() -> None:
    problem = big_ahead_of_short()
    first = msgspec.structs.replace(problem.pending[0], waited_s=1000.0)
    aged = msgspec.structs.replace(problem, pending=(first, *problem.pending[1:]))
    assert plan(aged, Bounds(most_wait_s=1001.0)).changes
    assert not plan(aged, Bounds(most_wait_s=1000.0)).changes


@pytest.mark.parametrize(("unmoved_start_s", "overdue"), [(-3000.0, True), (-1000.0, False)])
def test_a_job_that_would_have_started_long_ago_without_us_comes_first(
    unmoved_start_s: float, overdue: bool
) -> None:
    problem = big_ahead_of_short()
    first = msgspec.structs.replace(problem.pending[0], unmoved_start_s=unmoved_start_s, waited_s=4000.0)
    late = msgspec.structs.replace(problem, pending=(first, *problem.pending[1:]), longest_wait_s=1e6)
    found = plan(late, Bounds())
    assert bool(found.changes) is not overdue
    if not overdue:
        assert found.jobs[0].start_s <= unmoved_start_s + Bounds().most_delay_s


@pytest.mark.parametrize(
    ("waited_s", "unmoved_start_s", "longest_s", "first"),
    [
        (9600.0, -10.0, 10_000.0, True),
        (9400.0, -10.0, 10_000.0, False),
        (9600.0, 500.0, 10_000.0, False),  # it would still be waiting
        (5000.0, -10.0, 100.0, False),  # two hours are never too long
        (7000.0, -10.0, 100.0, True),
    ],
)
def test_a_job_that_would_have_started_comes_first_once_its_wait_nears_the_longest(
    waited_s: float, unmoved_start_s: float, longest_s: float, *, first: bool
) -> None:
    problem = big_ahead_of_short()
    big = msgspec.structs.replace(problem.pending[0], unmoved_start_s=unmoved_start_s, waited_s=waited_s)
    queue = msgspec.structs.replace(problem, pending=(big, *problem.pending[1:]), longest_wait_s=longest_s)
    found = plan(queue, Bounds(most_delay_s=10 * 86_400.0))
    assert (order_after(queue, found)[0] == 1) is first


@pytest.mark.parametrize(("left_s", "most_s"), [(600.0, 300.0), (10_000.0, 1200.0), (-60.0, 0.0)])
def test_a_job_with_a_deadline_keeps_half_of_its_time_left_before_slurm_gives_it_up(
    left_s: float, most_s: float
) -> None:
    problem = big_ahead_of_short()
    first = msgspec.structs.replace(problem.pending[0], deadline_s=LONG_S + left_s)
    found = plan(msgspec.structs.replace(problem, pending=(first, *problem.pending[1:])), Bounds())
    assert bool(found.changes) == (most_s > 0)
    assert found.jobs[0].start_s <= most_s


def test_a_job_that_would_miss_its_deadline_comes_first_where_the_objective_is_deadlines() -> None:
    longs = [job(1 + at, run_s=LONG_S, cpus=4) for at in range(6)]
    problem = Problem(
        machines=(machine(4),), pending=(*longs, job(9, run_s=60.0, cpus=4, deadline_s=1800.0)), running=()
    )
    found = plan(problem, Bounds(objective="deadlines", horizon_s=20 * LONG_S))
    assert found.tried[0].value == pytest.approx(1 / 7)
    assert found.order == "earliest deadline"
    assert found.jobs[6].start_s == 0.0


def test_an_order_beyond_the_largest_factor_is_not_made() -> None:
    found = plan(big_ahead_of_short(), Bounds(most_factor=0))
    assert (found.order, found.changes) == (AS_IS, ())
    assert "SiteFactors beyond" in found.why


def test_an_order_that_needs_priorities_below_the_least_is_refused_with_that_reason() -> None:
    queue = big_ahead_of_short()
    jobs = tuple(msgspec.structs.replace(one, priority=1) for one in queue.pending)
    first = msgspec.structs.replace(jobs[0], job_id=0, kept="it is a part of a het job")
    found = plan(msgspec.structs.replace(queue, pending=(first, *jobs)), Bounds())
    assert not found.changes
    assert "it would need priorities that Slurm does not have" in found.why


def test_no_more_factors_change_at_once_than_allowed() -> None:
    shorts = [job(9 + at, run_s=60.0, cpus=4) for at in range(6)]
    bigs = [job(1 + at, run_s=LONG_S / 2, cpus=4) for at in range(6)]
    problem = Problem(machines=(machine(4),), pending=(*bigs, *shorts), running=())
    assert len(plan(problem, Bounds(most_changes=2)).changes) == 2
    assert len(plan(problem, Bounds(most_changes=100)).changes) == 6


def test_a_queue_without_anything_to_gain_is_reported() -> None:
    alike = tuple(job(at, cpus=4) for at in range(1, 9))
    found = plan(Problem(machines=(machine(4),), pending=alike, running=()), Bounds())
    assert (found.order, found.gain, found.changes) == (AS_IS, 0.0, ())
    assert found.why.startswith("every order but Slurm's own treats the waiting jobs alike")
    assert [one.start_s for one in found.jobs] == [60.0 * at for at in range(8)]


def test_without_a_gain_our_factors_are_taken_back() -> None:
    alike = tuple(job(at, cpus=4, factor=50 if at == 8 else 0) for at in range(1, 9))
    found = plan(Problem(machines=(machine(4),), pending=alike, running=()), Bounds())
    assert [(one.job_id, one.after) for one in found.changes] == [(8, 0)]


def test_a_plan_that_still_holds_changes_nothing() -> None:
    problem = big_ahead_of_short()
    first = plan(problem, Bounds())
    again = tuple(
        msgspec.structs.replace(one, factor=planned.after, waited_s=60.0, priority=one.priority + 5)
        for one, planned in zip(problem.pending, first.jobs, strict=True)
    )
    second = plan(msgspec.structs.replace(problem, pending=again), Bounds())
    assert (second.order, second.changes) == (first.order, ())
    assert second.gain > 0.5


def test_time_already_waited_does_not_make_a_gain_small() -> None:
    found = plan(big_ahead_of_short(waited_s=60 * 86_400.0), Bounds())
    assert found.gain > 0.9
    # Of the whole slowdown the gain is less than a hundredth; yet the short jobs come ten hours sooner.
    assert 0.01 * found.tried[0].value > LONG_S / 60.0


def test_the_order_in_force_stays_where_another_is_little_better_and_none_stands() -> None:
    problem = big_ahead_of_short(deadline_s=3000.0)
    first = plan(problem, Bounds(objective="deadlines", horizon_s=30_000.0))
    again = tuple(
        msgspec.structs.replace(one, factor=planned.after)
        for one, planned in zip(problem.pending, first.jobs, strict=True)
    )
    most = Bounds(objective="deadlines", horizon_s=30_000.0, least_gain=0.999)
    assert first.gain > 0.5
    assert plan(msgspec.structs.replace(problem, pending=again), most).order == IN_FORCE


def test_drawn_run_times_do_not_decide_how_slow_a_job_is() -> None:
    """A job that has waited for days and might run for only a second would otherwise outweigh all others."""
    wide = tuple(
        job(1 + at, cpus=4, run_s=600.0, upper_s=LONG_S, waited_s=86_400.0 * (9 - at)) for at in range(6)
    )
    problem = Problem(machines=(machine(4),), pending=wide, running=())
    sunk = sum(86_400.0 * (9 - at) / 600.0 + 1 for at in range(6)) / 6
    for seed in range(1, 6):
        found = plan(problem, Bounds(), seed=seed).tried[0]
        # At most all six are drawn to run for ten hours.
        assert sunk < found.value < sunk + 6 * LONG_S / 600.0


def test_a_plan_counts_the_jobs_that_a_forecast_expects() -> None:
    """A long job is better left behind short jobs that are to come; without a forecast nothing is to be gained."""
    pending = (job(1, cpus=4, run_s=3600.0), job(2, cpus=4, run_s=1800.0))
    alone = Problem(machines=(machine(4),), pending=pending, running=(holding(0, 4, 60.0),))
    coming = tuple(
        Coming(
            at_s=1000.0 + at,
            pools=POOL,
            priority=9000,
            demand=(4000, 4, 0),
            limit_s=60.0,
            likely_s=60.0,
        )
        for at in range(30)
    )
    base = plan(msgspec.structs.replace(alone, coming=(coming,)), Bounds(horizon_s=20_000.0))
    # Both orders of the two pending jobs serve the same short jobs, which come behind both: the value counts them.
    assert base.tried[0].value > 20 > plan(alone, Bounds()).tried[0].value


@pytest.mark.parametrize("objective", ["slowdown", "wait", "utilisation", "deadlines", "energy"])
def test_each_objective_gets_its_plan(objective: Objective) -> None:
    late = big_ahead_of_short(deadline_s=3000.0)
    found = plan(late, Bounds(objective=objective, horizon_s=30_000.0))
    assert objective in found.why
    if objective in {"slowdown", "wait", "deadlines"}:
        assert found.gain > 0
        assert found.order in ORDERS


@given(
    problems(), st.sampled_from([0.0, 0.2]), st.sampled_from([0.0, 600.0, 7200.0]), st.sampled_from([3, 1000])
)
@settings(deadline=None, max_examples=30)
def test_every_plan_keeps_every_bound(
    problem: Problem, inversion: float, delay_s: float, most_changes: int
) -> None:
    bounds = Bounds(
        most_inversion=inversion,
        most_delay_s=delay_s,
        most_factor=800,
        most_changes=most_changes,
        least_gain=0.0,
    )
    found = plan(problem, bounds, seed=5)
    assert plan(problem, bounds, seed=5) == found
    assert len(found.changes) <= most_changes
    for record, planned in zip(problem.pending, found.jobs, strict=True):
        assert planned.job_id == record.job_id
        assert planned.before == record.factor
        assert planned.low_s <= planned.start_s <= planned.high_s
        if record.kept or record.out:
            assert planned.after == planned.before
        if planned.after != planned.before:
            assert abs(planned.after) <= 800
        if found.order != AS_IS and math.isfinite(planned.base_start_s):
            unmoved_s = (
                record.unmoved_start_s if math.isfinite(record.unmoved_start_s) else planned.base_start_s
            )
            latest_s = planned.base_start_s if record.kept else max(planned.base_start_s, unmoved_s + delay_s)
            assert planned.start_s <= latest_s + 1
    if found.order != AS_IS:
        keeps_fair_share(problem.pending, found, inversion)


def keeps_fair_share(pending: tuple[Pending, ...], found: Plan, most_inversion: float) -> None:
    """Fail where the plan puts a better share behind a worse one, other than Slurm's own order does."""
    moved = [at for at, one in enumerate(found.jobs) if one.start_s < math.inf and not pending[at].out]
    base = order_of(pending, moved, {})
    after = order_of(pending, moved, {at: found.jobs[at].after for at in moved})
    for at, one in enumerate(base):
        for other in base[at + 1 :]:
            shared = pending[one].pools & pending[other].pools
            if shared and must_stay_before(pending[one], pending[other], most_inversion):
                assert after.index(one) < after.index(other)


NONSENSE = [
    {"likely_s": math.nan},
    {"likely_s": math.inf},
    {"likely_s": -1.0},
    {"upper_s": math.nan},
    {"limit_s": -5.0},
    {"limit_s": math.nan},
    {"waited_s": math.nan},
    {"waited_s": -1.0},
    {"demand": (-1, 0, 0)},
    {"tasks": 0},
    {"nodes": 0},
    {"priority": -1},
    {"priority": 1 << 32},
    {"fair_share": math.nan},
    {"deadline_s": math.nan},
]


@pytest.mark.parametrize("wrong", NONSENSE)
def test_nonsense_in_a_job_is_refused(wrong: dict[str, object]) -> None:
    record = msgspec.structs.replace(job(1), **wrong)
    with pytest.raises(ModelError, match=r"job 1 .*;"):
        plan(Problem(machines=(machine(),), pending=(record,), running=()), Bounds())


def test_nonsense_in_the_rest_of_a_problem_is_refused() -> None:
    fine = Problem(machines=(machine(),), pending=(job(1), job(2)), running=())
    coming = Coming(at_s=1.0, pools=POOL, priority=1, demand=(1000, 1, 0), limit_s=9.0, likely_s=9.0)
    replace = msgspec.structs.replace
    for wrong, told in (
        (replace(fine, pending=(job(1), job(1))), "one job id"),
        (replace(fine, running=(holding(7, 1, 10.0),)), "machine 7"),
        (replace(fine, running=(holding(0, 1, math.nan),)), "nan s more"),
        (replace(fine, coming=((replace(coming, at_s=math.nan),),)), "no job to expect"),
        (replace(fine, coming=((coming,) * 1_000_000,)), "forecast of 1,000,000"),
        (replace(fine, windows=(Window(node=3, from_s=0.0, to_s=1.0, amounts=(1, 1, 1)),)), "no window"),
    ):
        with pytest.raises(ModelError, match=told):
            plan(wrong, Bounds())


def test_where_nothing_can_be_planned_nothing_is_changed() -> None:
    for problem, told in (
        (Problem(machines=(machine(),), pending=(), running=()), "nothing waits"),
        (Problem(machines=(), pending=(job(1, factor=3),), running=()), "no machines"),
        (Problem(machines=(machine(2),), pending=(job(1, cpus=3),), running=()), "can start"),
        (Problem(machines=(machine(2),), pending=(job(1, pools=frozenset()),), running=()), "can start"),
    ):
        found = plan(problem, Bounds())
        assert told in found.why
        assert found.order == AS_IS
        assert len(found.jobs) == len(problem.pending)


def test_a_demand_beyond_any_machine_delays_no_other_job() -> None:
    huge = job(1, cpus=500)
    problem = big_ahead_of_short()
    found = plan(
        msgspec.structs.replace(
            problem, pending=(msgspec.structs.replace(huge, job_id=99), *problem.pending)
        ),
        Bounds(),
    )
    assert found.jobs[0].start_s == math.inf
    assert numpy.isfinite([one.start_s for one in found.jobs[1:]]).all()
    assert found.gain > 0.5


def test_no_job_waits_longer_than_the_longest_wait_without_us() -> None:
    found = plan(big_ahead_of_short(), Bounds(most_delay_s=86_400.0))
    pending = big_ahead_of_short().pending
    longest_s = max(job.waited_s + told.base_start_s for job, told in zip(pending, found.jobs, strict=True))
    assert found.changes
    assert all(
        job.waited_s + told.start_s <= longest_s for job, told in zip(pending, found.jobs, strict=True)
    )
