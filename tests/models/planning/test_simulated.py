"""The planner as advice: what a plan knows at a moment, what it keeps, and that nothing of the future reaches it."""

from __future__ import annotations

import msgspec
import numpy
import pytest

from bench.advisor_expectations import Learned, Perfect
from models.planning.problem import Bounds, Plan
from models.planning.simulated import TOP_PRIORITY, Asked, PlannedAdvice, asked_of
from models.scheduling.placement import equal_larger
from models.scheduling.room import Room
from models.simulation.engine import Hooks, Policy, simulate
from models.simulation.hooks import Moving
from models.simulation.nodes import Node, cluster_of
from models.simulation.results import Results, bounded_slowdowns
from models.simulation.workload import Workload, workload

CLUSTER = cluster_of([Node(cpus=4, mem_mib=4)])
BOUNDS = Bounds(most_delay_s=7200.0, most_factor=10**8, samples=2)


def load(seed: int = 1, jobs: int = 40) -> Workload:
    """Return short and long jobs on too few CPUs; each user's jobs are alike, and their limits say nothing."""
    draw = numpy.random.default_rng(seed)
    user = draw.integers(0, 4, jobs)
    run_s = numpy.array([30.0, 60.0, 1200.0, 2400.0])[user] * draw.uniform(0.8, 1.2, jobs)
    cpus = draw.integers(1, 3, jobs)
    return workload(
        numpy.sort(draw.integers(0, 6000, jobs)).astype(float),
        run_s,
        numpy.stack([cpus * 1000, cpus, 0 * cpus], axis=1),
        limit_s=numpy.full(jobs, 7200.0),
        user=user,
    )


def advised(
    jobs: Workload, *, forecast: bool = False, perfect: bool = False
) -> tuple[Results, list[tuple[float, Plan]]]:
    """Return the results of a load, and all plans with their moments."""
    plans: list[tuple[float, Plan]] = []
    advice = PlannedAdvice(
        asked_of(jobs, CLUSTER),
        CLUSTER,
        BOUNDS,
        Perfect(jobs.run_s) if perfect else Learned(),
        forecast_s=900.0 if forecast else 0.0,
        period_s=900.0,
        planned=lambda now_s, plan: plans.append((now_s, plan)),
    )
    return simulate(jobs, CLUSTER, Policy(start="easy"), Hooks(advice=advice)), plans


def slowdown(results: Results) -> float:
    """Return the mean bounded slowdown."""
    stayed_s = results.end_s - results.jobs.submit_s
    return float(bounded_slowdowns(stayed_s, results.end_s - results.start_s).mean())


def test_plans_are_better_than_slurms_own_order() -> None:
    jobs = load()
    alone = simulate(jobs, CLUSTER, Policy(start="easy"))
    results, plans = advised(jobs)
    assert any(plan.changes for _, plan in plans)
    assert slowdown(results) < 0.9 * slowdown(alone)
    assert slowdown(advised(jobs, perfect=True)[0]) < 0.9 * slowdown(alone)


@pytest.mark.parametrize("forecast", [False, True])
def test_the_run_time_of_a_job_changes_no_plan_before_the_job_has_ended(forecast: bool) -> None:
    jobs = load()
    results, plans = advised(jobs, forecast=forecast)
    # From that moment on all differs: what runs then, or comes later, runs twice as long.
    now_s = 5000.0
    longer_s = numpy.where(results.end_s >= now_s, jobs.run_s * 2, jobs.run_s)
    assert (longer_s != jobs.run_s).sum() > 10
    _, others = advised(msgspec.structs.replace(jobs, run_s=longer_s), forecast=forecast)
    before = [(at_s, plan) for at_s, plan in plans if at_s < now_s]
    assert len(before) > 3
    assert before == [(at_s, plan) for at_s, plan in others if at_s < now_s]
    assert plans != others


def test_the_same_seed_gives_the_same_plans() -> None:
    jobs = load(2, 20)
    assert advised(jobs, forecast=True)[1] == advised(jobs, forecast=True)[1]


@pytest.mark.parametrize("seed", range(1, 6))
def test_the_course_without_us_is_that_of_easy_also_for_jobs_of_several_nodes(seed: int) -> None:
    cluster, draw, number = cluster_of([Node(cpus=4, mem_mib=4, count=3)]), numpy.random.default_rng(seed), 25
    cpus = draw.integers(1, 13, number)
    jobs = workload(
        [float(job) for job in range(number)],
        draw.integers(10, 1000, number).astype(float),
        numpy.stack([cpus * 1000, cpus, 0 * cpus], axis=1),
        limit_s=numpy.full(number, 1000.0),
    )
    placement = equal_larger(Room.of(cluster.capacity))
    alone = simulate(jobs, cluster, Policy(start="easy", placement=placement))
    asked = asked_of(jobs, cluster)
    assert {job.nodes for job in asked} == {1, 2, 3}
    advice = PlannedAdvice(asked, cluster, BOUNDS, Perfect(jobs.run_s))
    now_s = number * 1.0
    for job in range(number):
        advice.came(job, job * 1.0)
    running = [
        Moving(run.number, run.start_s, run.parts) for run in alone.runs if run.start_s <= now_s < run.end_s
    ]
    waiting = {job: job * 1.0 for job in range(number) if alone.start_s[job] > now_s}
    found = advice.problem(now_s, waiting, running)
    assert {job.job_id: now_s + job.unmoved_start_s for job in found.pending} == pytest.approx(
        {job: alone.start_s[job] for job in waiting}
    )


def advice_on(jobs: list[Asked]) -> PlannedAdvice:
    return PlannedAdvice(jobs, CLUSTER, BOUNDS, Learned())


def asked(number: int, *, cpus: int = 4, limit_s: float = 600.0, user: int = 0) -> Asked:
    return Asked(number, user, (cpus * 1000, cpus, 0), 1, limit_s)


def test_a_problem_says_what_waits_what_runs_and_what_would_be_without_us() -> None:
    advice = advice_on([asked(0, limit_s=100.0), asked(1), asked(2)])
    for number, at_s in enumerate((0.0, 10.0, 20.0)):
        advice.came(number, at_s)
    moving = [Moving(0, 0.0, ((0, (4000, 4, 0)),))]
    waiting = {1: 10.0, 2: 20.0}
    advice.keys(30.0, waiting, moving)
    found = advice.problem(40.0, waiting, moving)
    assert [(job.job_id, job.waited_s, job.priority) for job in found.pending] == [
        (1, 30.0, TOP_PRIORITY - 10),
        (2, 20.0, TOP_PRIORITY - 20),
    ]
    (running,) = found.running
    assert (running.ran_s, running.limit_left_s, running.likely_left_s) == (40.0, 60.0, 60.0)
    # Job 1 is expected at 100, job 2 when job 1 has run for its limit.
    assert [job.unmoved_start_s for job in found.pending] == [60.0, 660.0]
    # That starts in 60 s and 660 s are foreseen for the two says nothing of how long any job has waited.
    assert found.longest_wait_s == 30.0
    # Really job 2 goes first, once job 0 has run for 80 s; without us job 1 would have been running since then.
    advice.ended(0, 80.0, 0.0)
    found = advice.problem(120.0, {1: 10.0}, [Moving(2, 80.0, ((0, (4000, 4, 0)),))])
    assert [job.unmoved_start_s for job in found.pending] == [-40.0]
    # From 80 s on, when job 1 had waited for 70 s, the course without us is uncertain: job 1 has not run yet. As far as
    # is known, job 2 still waits in it.
    assert found.longest_wait_s == 100.0


def test_an_expected_run_is_of_equal_requests_else_of_the_user_else_of_the_limit() -> None:
    expectation = Learned()
    alike, other, stranger = asked(0), asked(1, cpus=1, limit_s=900.0), asked(2, user=1, limit_s=700.0)
    assert expectation.run_s(alike) == (600.0, 600.0)
    for end_s in (100.0, 200.0, 300.0):
        expectation.ended(alike, 50.0, end_s)
    likely_s, upper_s = expectation.run_s(alike)
    assert (likely_s, 50.0 <= upper_s < 600.0) == (50.0, True)
    assert expectation.run_s(other)[0] == 50.0
    assert expectation.run_s(asked(3, user=1))[0] == 50.0
    assert expectation.run_s(stranger) == (700.0, 700.0)
    assert 0 < expectation.left_s(alike, 20.0) < 50.0
    assert expectation.left_s(stranger, 20.0) == 680.0
