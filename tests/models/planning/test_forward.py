"""A rollout starts the jobs that the simulator starts, at the same times, also where jobs run at its beginning."""

from __future__ import annotations

import math

import numpy
import pytest
from hypothesis import given, settings

from models.planning.cells import cells_of, slurm_order
from models.planning.forward import Until
from models.planning.futures import BY_ITSELF, IN_ALL, Doubt, drawn_future, likely_future, look_ahead
from models.planning.problem import Coming, Machine, Problem
from models.planning.rollout import expected_starts, places_of, shared_out
from models.scheduling.availability import Window
from models.scheduling.backfill import Promise
from models.scheduling.room import amounts_of
from models.simulation.engine import Policy, simulate
from models.simulation.nodes import Node, cluster_of
from tests.models.planning.problems import POOL, holding, job, machine, problems
from tests.models.simulation.loads import Job, jobs_strategy, load_of, nodes_strategy


def first_starts(problem: Problem) -> list[float]:
    """Return when each job starts if all run for their likely time and Slurm is left alone."""
    return [span.start_s for span in expected_starts(problem, samples=0)]


def problem_of(*pending: object, machines: int = 1, cpus: int = 4, **others: object) -> Problem:
    given = {"machines": (machine(cpus),) * machines, "pending": pending, "running": ()}
    return Problem(**(given | others))  # type: ignore[arg-type]


@given(jobs_strategy, nodes_strategy)
@settings(deadline=None)
def test_a_rollout_starts_what_the_simulator_starts(jobs: list[Job], nodes: list[Node]) -> None:
    load = load_of(jobs, unit_s=60.0)
    even = [Node(cpus=node.cpus, mem_mib=node.mem_mib, gpus=node.gpus) for node in nodes]
    cluster = cluster_of(even)
    results = simulate(load, cluster, Policy(start="easy"))
    asked = [amounts_of(row) for row in load.asked]
    rows = list(zip(asked, load.limit_s.tolist(), load.run_s.tolist(), strict=True))
    at_once = load.submit_s == load.submit_s[0]
    machines = tuple(Machine(amounts=amounts_of(column), pools=POOL) for column in cluster.capacity.T)
    pending = tuple(
        job(number, run_s=run_s, limit_s=limit_s, demand=demand, priority=1_000_000 - number)
        for number, (demand, limit_s, run_s) in enumerate(rows)
        if at_once[number]
    )
    coming = tuple(
        Coming(
            at_s=float(load.submit_s[number] - load.submit_s[0]),
            pools=POOL,
            priority=1_000_000 - number,
            demand=demand,
            limit_s=limit_s,
            likely_s=run_s,
        )
        for number, (demand, limit_s, run_s) in enumerate(rows)
        if not at_once[number]
    )
    problem = Problem(machines=machines, pending=pending, running=(), coming=(coming,))
    cells = cells_of(problem)
    future = likely_future(problem, cells)
    found = look_ahead(cells, places_of(slurm_order(pending)), future, [Until()] * len(cells))
    expected = results.first_start_s[at_once] - load.submit_s[0]
    fitting = [number for number in range(len(pending)) if number not in cells[0].stuck]
    assert found.first_s[fitting].tolist() == expected[fitting].tolist()
    later = {
        number: at_s
        for rolled in found.rolled
        for number, at_s in zip(rolled.numbers, rolled.starts_s, strict=True)
    }
    for at, number in enumerate((~at_once).nonzero()[0].tolist()):
        came = not math.isnan(results.first_start_s[number])
        assert later.get(len(pending) + at, math.nan) == pytest.approx(
            results.first_start_s[number] - load.submit_s[0], nan_ok=not came
        )


@given(problems())
@settings(deadline=None)
def test_no_machine_ever_holds_more_than_it_has(problem: Problem) -> None:
    # Room.take refuses what does not fit, so it is enough to roll each cell to its end.
    spans = expected_starts(problem, samples=2, seed=3)
    for record, span in zip(problem.pending, spans, strict=True):
        assert span.low_s <= span.start_s <= span.high_s
        assert span.start_s >= 0
        if record.out or not any(record.pools & one.pools for one in problem.machines):
            assert span.start_s == math.inf
    assert spans == expected_starts(problem, samples=2, seed=3)


@pytest.mark.parametrize("seed", range(6))
def test_a_promise_that_is_kept_equals_one_worked_out_anew(seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    pending = []
    for number in range(1, 61):
        nodes, run_s = int(draw.choice([1, 1, 2, 3])), float(draw.integers(1, 60) * 60)
        cpus = nodes * int(draw.integers(1, 7))
        limit_s = run_s * float(draw.uniform(1, 4))
        pool = frozenset([int(draw.integers(0, 2))])
        pending.append(job(number, cpus=cpus, nodes=nodes, run_s=run_s, limit_s=limit_s, pools=pool))
    machines = tuple(machine(8, frozenset([0, 1] if at % 2 else [0])) for at in range(6))
    problem = Problem(machines=machines, pending=tuple(pending), running=())
    starts = first_starts(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Promise, "holds", lambda *_: False)
        assert first_starts(problem) == starts


def test_running_jobs_end_at_their_likely_time_and_backfill_counts_their_limit() -> None:
    # The first job needs all CPUs. The running job may last 1000 s, so a job of 900 s may pass, one of 1100 s not.
    problem = problem_of(
        job(1, cpus=4),
        job(2, run_s=50.0, limit_s=1100.0),
        job(3, run_s=50.0, limit_s=900.0),
        running=(holding(0, 3, left_s=200.0, limit_left_s=1000.0),),
    )
    assert first_starts(problem) == [200.0, 260.0, 0.0]


def test_an_array_counts_as_many_jobs() -> None:
    problem = problem_of(job(1, tasks=10, cpus=2, run_s=100.0), job(2, cpus=4, run_s=10.0))
    # Two tasks run at once: the last two of ten start at 400 s.
    assert first_starts(problem) == [0.0, 500.0]


def test_an_array_of_more_tasks_than_are_admitted_at_once_keeps_its_place() -> None:
    problem = problem_of(job(1, tasks=100, run_s=100.0), job(2, run_s=10.0), cpus=1)
    assert first_starts(problem) == [0.0, 10_000.0]


def test_a_job_on_several_nodes_waits_until_enough_nodes_hold_its_part() -> None:
    # Four CPUs over two nodes are two on each: three free CPUs of one node are of no use.
    problem = problem_of(
        job(1, cpus=4, nodes=2),
        job(2, cpus=3, run_s=400.0),
        machines=2,
        running=(holding(0, 1, 100.0), holding(1, 3, 300.0)),
    )
    assert first_starts(problem) == [300.0, 360.0]


def test_jobs_use_only_machines_of_their_pools() -> None:
    problem = Problem(
        machines=(
            machine(2, frozenset([0])),
            machine(2, frozenset([0, 1])),
            machine(2, frozenset([2])),
            machine(2, frozenset()),  # a node of no partition
        ),
        pending=(
            job(1, cpus=2, run_s=100.0, pools=frozenset([1])),
            job(2, cpus=2, run_s=100.0, pools=frozenset([1])),
            job(3, cpus=2, run_s=100.0, pools=frozenset([0])),
            job(4, cpus=2, run_s=100.0, pools=frozenset([0])),
            job(5, cpus=2, run_s=100.0, pools=frozenset([2])),
            job(6, pools=frozenset([7])),
        ),
        running=(),
    )
    assert len(cells_of(problem)) == 2
    assert first_starts(problem) == [0.0, 100.0, 0.0, 100.0, 0.0, math.inf]


def test_a_job_that_may_come_competes_in_all_its_pools() -> None:
    comes = Coming(
        at_s=0.0, pools=frozenset([0, 1]), priority=20_000, demand=(4000, 4, 0), limit_s=100.0,
        likely_s=100.0,
    )  # fmt: skip
    problem = Problem(
        machines=(machine(2, frozenset([0])), machine(4, frozenset([1]))),
        pending=tuple(job(at, cpus=2, run_s=60.0, pools=frozenset([at])) for at in (0, 1)),
        running=(),
        coming=((comes,),),
    )
    assert len(cells_of(problem)) == 1


def test_starts_beyond_those_that_are_simulated_are_estimated() -> None:
    long = [job(at, run_s=60.0, priority=10_000 - at) for at in range(1, 3_001)]
    other = frozenset([1])
    few = [job(10_000 + at, run_s=600.0, cpus=4, pools=other, priority=5) for at in range(60)]
    both = Problem(machines=(machine(4), machine(4, pools=other)), pending=(*long, *few), running=())
    spans = expected_starts(both, samples=19)
    for at in (99, 999, 2_999):
        assert spans[at].start_s == pytest.approx(at * 60.0 / 4, abs=60.0)
    # A short queue elsewhere is simulated to its end, however long another queue is.
    assert [span.start_s for span in spans[3_000:]] == [600.0 * at for at in range(60)]


def test_a_scarce_budget_is_shared_equally_among_those_that_need_more() -> None:
    assert shared_out([10, 1000, 3, 1000], 113) == [10, 50, 3, 50]
    assert shared_out([1, 2], 100) == [1, 2]


def test_nothing_starts_that_could_run_into_a_window() -> None:
    maintenance = Window(node=0, from_s=500.0, to_s=800.0, amounts=(4000, 4, 0))
    problem = problem_of(
        job(1, run_s=60.0, limit_s=600.0), job(2, run_s=60.0, limit_s=500.0), windows=(maintenance,)
    )
    assert first_starts(problem) == [800.0, 0.0]


def test_a_machine_that_is_down_holds_no_job_and_delays_none() -> None:
    down = Window(node=0, from_s=0.0, to_s=math.inf, amounts=(4000, 4, 0))
    problem = problem_of(
        job(1, cpus=4),
        job(2, cpus=2),
        machines=1,
        cpus=4,
        windows=(down,),
    )
    assert first_starts(problem) == [math.inf, math.inf]
    two = Problem(
        machines=(machine(4), machine(2)),
        pending=(job(1, cpus=4), job(2, cpus=2)),
        running=(),
        windows=(down,),
    )
    assert first_starts(two) == [math.inf, 0.0]


def test_a_job_on_a_draining_machine_gives_nothing_back_when_it_ends() -> None:
    drained = Window(node=0, from_s=0.0, to_s=math.inf, amounts=(4000, 4, 0))
    problem = Problem(
        machines=(machine(4), machine(1)),
        pending=(job(1, run_s=100.0), job(2)),
        running=(holding(0, 3, 50.0),),
        windows=(drained,),
    )
    assert first_starts(problem) == [0.0, 100.0]


def test_a_later_job_passes_those_of_lower_priority() -> None:
    urgent = Coming(
        at_s=10.0,
        pools=POOL,
        priority=20_000,
        demand=(4000, 4, 0),
        limit_s=500.0,
        likely_s=500.0,
    )
    problem = problem_of(job(1, cpus=4, run_s=100.0), running=(holding(0, 4, 50.0),), coming=((urgent,),))
    assert first_starts(problem) == [550.0]
    assert first_starts(problem_of(job(1, cpus=4, run_s=100.0), running=(holding(0, 4, 50.0),))) == [50.0]


def test_a_job_that_is_to_come_first_from_a_moment_on_does_so() -> None:
    pending = (job(1, cpus=4, run_s=100.0), job(2, cpus=4, run_s=100.0), job(3, cpus=4, run_s=100.0))
    problem = problem_of(*pending)
    cells = cells_of(problem)
    future = likely_future(problem, cells)
    found = look_ahead(cells, numpy.arange(3.0), future, [Until()], numpy.array([math.inf, math.inf, 50.0]))
    assert found.first_s.tolist() == [0.0, 200.0, 100.0]


def test_a_rollout_ends_after_its_work_or_when_it_has_seen_enough() -> None:
    problem = problem_of(*(job(at, cpus=4, run_s=100.0) for at in range(1, 9)))
    cells, places = cells_of(problem), numpy.arange(8.0)
    future = likely_future(problem, cells)
    bounded = look_ahead(cells, places, future, [Until(most_starts=3)])
    assert bounded.rolled[0].until_s == 200.0
    assert numpy.isinf(bounded.first_s).sum() == 5
    enough = look_ahead(cells, places, future, [Until(enough_s=150.0, must=frozenset([4]))])
    assert numpy.isfinite(enough.first_s).sum() == 5


def test_intervals_widen_with_uncertainty() -> None:
    known = problem_of(job(1, cpus=4, run_s=100.0), job(2, cpus=4))
    wide = problem_of(job(1, cpus=4, run_s=100.0, limit_s=1000.0), job(2, cpus=4))
    assert expected_starts(known, 20)[1].high_s == 100.0
    span = expected_starts(wide, 20)[1]
    assert span.low_s < span.start_s == 100.0 < span.high_s <= 1000.0


def test_a_wrong_guess_about_a_user_affects_all_of_this_users_jobs() -> None:
    jobs = [job(at, user=at % 2, run_s=100.0, limit_s=10_000.0) for at in range(1, 201)]
    problem = problem_of(*jobs)
    cells, draw = cells_of(problem), numpy.random.default_rng(1)

    def alike(doubt: Doubt) -> float:
        """Return the correlation of two jobs of one user, each drawn without what all draws have in common."""
        runs = numpy.log([drawn_future(problem, cells, 0, draw, doubt).run_s[:4] for _ in range(400)])
        assert abs(numpy.corrcoef(runs[:, 0], runs[:, 1])[0, 1]) < 0.15
        return float(numpy.corrcoef(runs[:, 0], runs[:, 2])[0, 1])

    assert abs(alike(BY_ITSELF)) < 0.15
    assert 0.3 < alike(IN_ALL) < 0.7


def test_a_running_job_may_end_far_sooner_or_later_than_likely() -> None:
    problem = problem_of(job(1, cpus=4), running=(holding(0, 4, 600.0, 86_400.0),))
    cells, draw = cells_of(problem), numpy.random.default_rng(1)
    left_s = [drawn_future(problem, cells, 0, draw, IN_ALL).ends_s[0][0] for _ in range(400)]
    assert numpy.quantile(left_s, 0.05) < 600.0 / 4
    assert 600.0 * 4 < numpy.quantile(left_s, 0.95) < 600.0 * 12
