"""The shadow, compared with the simulation of the same load without us, whatever really happens in the queue."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy
import pytest

from models.planning.problem import Holding, Machine, Problem
from models.planning.shadow import OLDEST_S, Seen, Shadow, Site, begun_anew, learned, usable
from models.planning.shadow_rolling import foreseen, longest_wait_s, measured, passed_on
from models.scheduling.room import amounts_of
from models.simulation.engine import Policy, simulate
from models.simulation.nodes import Node, cluster_of
from models.simulation.results import Results
from models.simulation.workload import Workload, workload
from tests.models.planning.problems import POOL, job, machine

CLUSTER = cluster_of([Node(cpus=6, mem_mib=6, count=3)])
SITE = Site(
    machines=tuple(
        Machine(amounts=amounts_of(CLUSTER.capacity[:, at]), pools=POOL) for at in range(CLUSTER.own)
    ),
    nodes=tuple(f"n{at}" for at in range(CLUSTER.own)),
)
ONE = Site(machines=(machine(4),), nodes=("n0",))
# Returns the expected run of a job from its number, its true run and how long it has run.
Guess = Callable[[int, float, float], float]


def load(seed: int, jobs: int = 120) -> Workload:
    """Return jobs on too few CPUs, whose limits say little."""
    draw = numpy.random.default_rng(seed)
    run_s = numpy.round(draw.lognormal(5.5, 1.3, jobs)) + 1.0
    cpus = draw.integers(1, 7, jobs)
    return workload(
        numpy.sort(draw.integers(0, 20_000, jobs)).astype(float),
        run_s,
        numpy.stack([cpus * 1000, cpus, 0 * cpus], axis=1),
        limit_s=numpy.round(run_s * draw.uniform(1, 6, jobs)),
        user=numpy.zeros(jobs, dtype=numpy.int64),
    )


def truth(_: int, run_s: float, __: float) -> float:
    return run_s


def poor_guess(number: int, run_s: float, ran_s: float) -> float:
    """Return a third or three times the true run, but longer than it has run already."""
    return max(run_s * (3.0 if number % 2 else 0.3), ran_s + 1)


def seen_at(
    real: Results, now_s: float, since_s: float, guess: Guess, *, all_known: bool = False
) -> list[Seen]:
    """Return what is known of each job that really waits, runs, or has ended since `since_s`."""
    jobs = real.jobs
    found = []
    for number in range(len(jobs)):
        if jobs.submit_s[number] > now_s or real.end_s[number] <= since_s:
            continue
        run_s = float(jobs.run_s[number])
        ran_s = float(max(0.0, now_s - real.start_s[number]))
        ended = real.end_s[number] <= now_s
        expected_s = run_s if ended else guess(number, run_s, ran_s)
        found.append(
            Seen(
                job_id=number,
                phase="ended" if ended else "runs" if real.start_s[number] <= now_s else "waits",
                came_s=float(jobs.submit_s[number]),
                pools=POOL,
                priority=1_000_000 - number,
                tier=1,
                demand=amounts_of(jobs.asked[number]),
                nodes=1,
                limit_s=float(jobs.limit_s[number]),
                run_s=expected_s,
                ran_s=expected_s if ended or all_known else ran_s,
            )
        )
    return found


def runs_at(results: Results, now_s: float) -> dict[int, float]:
    """Return the start of each job that runs at a moment."""
    runs = (results.start_s <= now_s) & (results.end_s > now_s)
    return {int(number): float(results.start_s[number]) for number in runs.nonzero()[0]}


def waits_at(results: Results, now_s: float) -> set[int]:
    waits = (results.jobs.submit_s <= now_s) & (results.start_s > now_s)
    return {int(number) for number in waits.nonzero()[0]}


def assert_is(shadow: Shadow, easy: Results) -> None:
    """Assert that a shadow is what EASY makes of the load, to the second."""
    assert {one.job_id for one in shadow.waiting} == waits_at(easy, shadow.time_s)
    assert {one.job_id: one.start_s for one in shadow.running} == runs_at(easy, shadow.time_s)


def passed(
    real: Results, guess: Guess, step_s: float, *, all_known: bool = False, restart: bool = False
) -> list[tuple[Shadow, Shadow]]:
    """Return the shadow of each cycle, the certain and the expected one, while the real queue takes another course."""
    shadow = begun_anew(SITE, 0.0, seen_at(real, 0.0, 0.0, guess, all_known=all_known), ())
    found = []
    for now_s in numpy.arange(step_s, float(real.end_s.max()) + step_s, step_s).tolist():
        seen = seen_at(real, now_s, shadow.seen_s, guess, all_known=all_known)
        shadow, now = passed_on(shadow, SITE, now_s, seen)
        if restart:
            shadow = msgspec.json.decode(msgspec.json.encode(shadow), type=Shadow)
        found.append((shadow, now))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_with_all_run_times_known_the_shadow_is_the_simulation_without_us(seed: int) -> None:
    jobs = load(seed)
    easy, real = (simulate(jobs, CLUSTER, Policy(start=start)) for start in ("easy", "greedy"))
    assert (easy.start_s != real.start_s).any()
    for certain, now in passed(real, truth, 700.0, all_known=True):
        assert_is(now, easy)
        assert certain.time_s == now.time_s
        waited_s = numpy.minimum(easy.start_s, now.time_s) - jobs.submit_s
        assert longest_wait_s(now) == waited_s[jobs.submit_s <= now.time_s].max(initial=0.0)


@pytest.mark.parametrize("seed", range(8))
def test_the_certain_part_is_the_simulation_without_us_however_poor_the_guesses(seed: int) -> None:
    jobs = load(seed)
    easy, real = (simulate(jobs, CLUSTER, Policy(start=start)) for start in ("easy", "greedy"))
    shadows = passed(real, poor_guess, 700.0)
    for certain, now in shadows:
        assert_is(certain, easy)
        assert certain.time_s <= now.time_s == certain.seen_s
    certain_s = [certain.time_s for certain, _ in shadows]
    assert certain_s == sorted(certain_s)
    # When all jobs have ended, all is known.
    assert shadows[-1][1].time_s == certain_s[-1]


def test_a_restart_in_the_middle_changes_nothing() -> None:
    real = simulate(load(3), CLUSTER, Policy(start="greedy"))
    assert passed(real, poor_guess, 900.0) == passed(real, poor_guess, 900.0, restart=True)


def test_the_number_of_cycles_changes_nothing_that_is_certain() -> None:
    jobs = load(4)
    easy, real = (simulate(jobs, CLUSTER, Policy(start=start)) for start in ("easy", "greedy"))
    for step_s in (60.0, 5000.0):
        assert_is(passed(real, poor_guess, step_s)[-1][0], easy)


def test_more_than_may_be_simulated_again_is_taken_as_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.planning.shadow_rolling.MOST_AGAIN", 5)
    real = simulate(load(5), CLUSTER, Policy(start="greedy"))
    for certain, now in passed(real, poor_guess, 700.0):
        started = {task.job_id for task in now.running if task.start_s > certain.time_s}
        assert len(started) <= 5


def held(job_id: int, ran_s: float, left_s: float) -> Holding:
    return Holding(
        job_id=job_id,
        user=0,
        parts=((0, (4000, 4, 0)),),
        ran_s=ran_s,
        limit_left_s=left_s,
        likely_left_s=left_s,
    )


def record(job_id: int, phase: str = "waits", **others: object) -> Seen:
    given = {
        "came_s": 0.0,
        "pools": POOL,
        "priority": 1000 - job_id,
        "tier": 1,
        "demand": (4000, 4, 0),
        "nodes": 1,
        "limit_s": 1000.0,
        "run_s": 100.0,
    }
    return Seen(job_id=job_id, phase=phase, **(given | others))  # type: ignore[arg-type]


def test_starts_are_those_that_were_and_those_that_are_foreseen() -> None:
    shadow = begun_anew(ONE, 0.0, [record(1), record(2)], [held(9, 0.0, 50.0)])
    assert foreseen(shadow, ONE, math.inf, {1: 1, 2: 1}) == {1: 50.0, 2: 150.0}
    # Really the second was first; without us the first has started meanwhile.
    shadows = passed_on(shadow, ONE, 60.0, [record(1), record(2, "runs", ran_s=10.0)])
    assert foreseen(shadows.now, ONE, math.inf, {1: 1}) == {1: 50.0}
    problem = measured(
        Problem(machines=ONE.machines, pending=(job(1), job(5)), running=()), shadows, ONE, 1e6, {1: 1}
    )
    assert [one.unmoved_start_s for one in problem.pending] == [-10.0, math.inf]
    # The first waited for 50 s; the second, which really runs already, would still wait.
    assert problem.longest_wait_s == 60.0


def test_the_next_task_of_an_array_counts() -> None:
    array = record(1, tasks=3)
    shadow = begun_anew(ONE, 0.0, [array], [])
    assert foreseen(shadow, ONE, math.inf, {1: 3}) == {1: 0.0}
    _, now = passed_on(shadow, ONE, 120.0, [array])
    assert foreseen(now, ONE, math.inf, {1: 3}) == {1: 0.0}
    assert foreseen(now, ONE, math.inf, {1: 2}) == {1: 100.0}
    assert foreseen(now, ONE, math.inf, {1: 1}) == {1: 200.0}


def test_a_record_with_more_waiting_tasks_than_were_first_seen_is_foreseen() -> None:
    shadow = begun_anew(ONE, 0.0, [record(1)], [held(9, 0.0, 50.0)])
    # slurmctld lost its state, and has given the number again, to an array.
    _, now = passed_on(shadow, ONE, 20.0, [record(1, tasks=3), record(9, "runs", run_s=50.0, ran_s=20.0)])
    assert foreseen(now, ONE, math.inf, {1: 3}) == {1: 50.0}


def test_a_cancelled_job_no_longer_waits_and_one_that_has_gone_has_ended() -> None:
    shadow = begun_anew(ONE, 0.0, [record(1), record(2)], [held(9, 10.0, 500.0)])
    seen = [record(2), record(9, "runs", run_s=510.0, ran_s=30.0)]
    shadow, now = passed_on(shadow, ONE, 20.0, seen)
    assert [one.job_id for one in now.waiting] == [2]
    # Job 9 was last seen at 20 and is gone at 40: it has ended at 30.
    _, now = passed_on(shadow, ONE, 40.0, [record(2)])
    assert [(task.job_id, task.start_s) for task in now.running] == [(2, 30.0)]


def test_priorities_that_grow_with_age_also_grow_for_jobs_that_wait_only_in_the_shadow() -> None:
    shadow = begun_anew(ONE, 0.0, [record(1), record(2), record(3)], [held(9, 0.0, 500.0)])
    seen = [record(1, "runs"), record(2, priority=998 + 60), record(3, priority=997 + 60), record(9, "runs")]
    shadow, _ = passed_on(shadow, ONE, 60.0, seen)
    assert {one.job_id: one.priority for one in shadow.waiting} == {1: 1059, 2: 1058, 3: 1057}


def test_a_waiting_job_may_use_the_pools_that_are_open_to_it_now() -> None:
    shadow = begun_anew(ONE, 0.0, [record(1), record(2)], ())
    both = record(1, pools=frozenset({0, 1}))
    ran = msgspec.structs.replace(both, job_id=2, phase="runs", ran_s=1.0)
    assert [one.pools for one in learned(shadow, 60.0, [both, ran]).waiting] == [both.pools, POOL]


def test_a_shadow_is_usable_unless_it_is_old_from_the_future_or_of_other_pools() -> None:
    shadow = begun_anew(ONE, 100.0, [record(1)], [])
    assert usable(shadow, ONE, 100.0)
    assert usable(shadow, ONE, 100.0 + OLDEST_S)
    assert not usable(None, ONE, 100.0)
    assert not usable(shadow, ONE, 99.0)
    assert not usable(shadow, ONE, 101.0 + OLDEST_S)
    assert not usable(shadow, msgspec.structs.replace(ONE, pools="other"), 100.0)


def test_jobs_on_a_node_that_has_gone_are_dropped_and_others_keep_their_places() -> None:
    two = Site(machines=(machine(4), machine(4)), nodes=("a", "b"))
    on_b = msgspec.structs.replace(held(8, 0.0, 500.0), parts=((1, (4000, 4, 0)),))
    shadow = begun_anew(two, 0.0, [record(1)], [held(9, 0.0, 500.0), on_b])
    left = Site(machines=(machine(4),), nodes=("b",))
    _, now = passed_on(shadow, left, 10.0, [record(1), record(8, "runs", run_s=500.0, ran_s=10.0)])
    assert [(task.job_id, task.parts) for task in now.running] == [(8, ((0, (4000, 4, 0)),))]
