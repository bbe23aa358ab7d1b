"""What no policy may break, what each promises, and EASY compared with a plain second implementation."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from unittest import mock

import numpy
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.scheduling.backfill import Promise
from models.scheduling.ordering import FIFO, ORDERINGS, Ordering, Waiting, by_submit
from models.scheduling.placement import PLACEMENTS, WHOLE
from models.scheduling.room import Amounts, Room, amounts_of
from models.scheduling.run_time_guess import ByLimit, LastTwo
from models.simulation.engine import Hooks, Policy, simulate
from models.simulation.hooks import slowed_by_cpus
from models.simulation.nodes import Node, cluster_of
from models.simulation.results import Outcome, Run, figures
from models.simulation.rounds import ROUNDS
from models.simulation.workload import poisson_arrivals, workload
from tests.models.simulation.loads import Job, even_cluster, jobs_strategy, load_of, most_held, nodes_strategy
from tests.models.simulation.naive_easy import naive_easy
from tests.traces import TRACES, needs_traces

POLICIES = {
    f"{ordering}, {start}, {placement}": Policy(
        ordering=ORDERINGS[ordering], start=start, placement=PLACEMENTS[placement]
    )
    for ordering in ORDERINGS
    for start in ROUNDS
    for placement in PLACEMENTS
} | {"easy++": Policy(start="easy", guess=LastTwo)}


class Always:
    """A sizing that grants every job the same amounts, and records what is reported."""

    def __init__(self, amounts: Amounts) -> None:
        self.amounts = amounts
        self.told: list[tuple[float, Amounts, bool]] = []

    def grant(self, number: int, now_s: float) -> Amounts:  # noqa: ARG002
        return self.amounts

    def ended(self, number: int, now_s: float, start_s: float, granted: Amounts, *, enough: bool) -> None:  # noqa: ARG002
        self.told.append((now_s, granted, enough))


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25, deadline=None)
@given(jobs=jobs_strategy, nodes=nodes_strategy)
def test_no_capacity_is_exceeded_and_all_that_fits_runs_once(
    name: str, jobs: list[Job], nodes: list[Node]
) -> None:
    policy, load, cluster = POLICIES[name], load_of(jobs), cluster_of(nodes)
    results = simulate(load, cluster, policy)
    assert most_held(results, cluster)
    fits = [job for job in range(len(load)) if results.outcome[job] != Outcome.UNFIT]
    assert sorted(run.number for run in results.runs) == fits
    assert all(results.outcome[job] == Outcome.COMPLETED for job in fits)
    assert (results.start_s[fits] >= load.submit_s[fits]).all()
    for run in results.runs:
        beyond = numpy.array([amounts for _, amounts in run.parts]).sum(axis=0) - load.asked[run.number]
        # Each part is rounded up, so the sum may exceed the request by less than one unit per part.
        assert ((beyond >= 0) & (beyond < len(run.parts))).all()
    assert results.moments[-1].allocated == (0, 0, 0)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=5, deadline=None)
@given(jobs=jobs_strategy, nodes=nodes_strategy)
def test_two_simulations_are_the_same_to_the_bit(name: str, jobs: list[Job], nodes: list[Node]) -> None:
    one, other = (simulate(load_of(jobs), cluster_of(nodes), POLICIES[name]) for _ in range(2))
    assert one.runs == other.runs
    assert one.moments == other.moments


@given(jobs=jobs_strategy, nodes=nodes_strategy)
@settings(deadline=None)
def test_strict_fifo_starts_in_order(jobs: list[Job], nodes: list[Node]) -> None:
    results = simulate(load_of(jobs), cluster_of(nodes))
    numbers = [run.number for run in results.runs]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("ordering", ["fifo", "srtf", "sjf", "edf"])
@pytest.mark.parametrize("placement", PLACEMENTS)
@given(jobs=jobs_strategy, nodes=nodes_strategy)
@settings(max_examples=25, deadline=None)
def test_greedy_leaves_nothing_waiting_that_fits(
    ordering: str, placement: str, jobs: list[Job], nodes: list[Node]
) -> None:
    load, cluster = load_of(jobs), cluster_of(nodes)
    policy = Policy(ordering=ORDERINGS[ordering], start="greedy", placement=PLACEMENTS[placement])
    results = simulate(load, cluster, policy)
    for moment in results.moments:
        free = cluster.capacity.copy()
        for run in results.runs:
            if run.start_s <= moment.at_s < run.end_s:
                for node, amounts in run.parts:
                    free[:, node] -= amounts
        came = (load.submit_s <= moment.at_s) & (results.start_s > moment.at_s)
        for job in numpy.flatnonzero(came):
            assert not (free >= load.asked[job][:, None]).all(axis=0).any()


@given(jobs=jobs_strategy, pool=st.integers(4, 12))
@settings(deadline=None, max_examples=200)
def test_easy_starts_every_job_when_the_plain_implementation_does(jobs: list[Job], pool: int) -> None:
    on_cpus = [(gap, run, spare, cpus, 0, 0, user) for gap, run, spare, cpus, _, _, user in jobs]
    load = load_of(on_cpus)
    results = simulate(load, even_cluster(1, cpus=pool), Policy(start="easy"))
    expected = naive_easy(
        [int(value) for value in load.submit_s],
        [int(value) for value in load.run_s],
        [int(value) for value in load.limit_s],
        [job[3] for job in on_cpus],
        pool,
    )
    assert [None if math.isnan(start) else int(start) for start in results.start_s] == expected


@pytest.mark.parametrize("guess", [ByLimit, LastTwo])
@pytest.mark.parametrize("placement", PLACEMENTS)
@given(jobs=jobs_strategy, nodes=nodes_strategy)
@settings(deadline=None, max_examples=60)
def test_a_promise_that_is_kept_equals_one_worked_out_anew(
    guess: type[ByLimit] | type[LastTwo], placement: str, jobs: list[Job], nodes: list[Node]
) -> None:
    policy = Policy(start="easy", guess=guess, placement=PLACEMENTS[placement])
    kept = simulate(load_of(jobs), cluster_of(nodes), policy)
    with mock.patch.object(Promise, "holds", return_value=False):
        anew = simulate(load_of(jobs), cluster_of(nodes), policy)
    assert kept.runs == anew.runs


@pytest.mark.parametrize("placement", PLACEMENTS)
@given(jobs=jobs_strategy, nodes=nodes_strategy)
@settings(deadline=None)
def test_a_job_fits_exactly_where_it_can_be_placed(
    placement: str, jobs: list[Job], nodes: list[Node]
) -> None:
    room, asked = Room.of(cluster_of(nodes).capacity), load_of(jobs).asked
    each = [PLACEMENTS[placement].place(room, amounts_of(row)) is not None for row in asked]
    assert PLACEMENTS[placement].fits(room, asked.T).tolist() == each


def test_easy_agrees_with_the_plain_implementation_on_a_long_load() -> None:
    draw = random.Random(7)
    jobs: list[Job] = [
        (
            draw.randint(0, 9),
            draw.randint(1, 60),
            draw.randint(0, 99),
            draw.choice([1, 1, 2, 4, 8, 16, 32]),
            0,
            0,
            0,
        )
        for _ in range(1500)
    ]
    load = load_of(jobs)
    results = simulate(load, even_cluster(1, cpus=32), Policy(start="easy"))
    expected = naive_easy(
        load.submit_s.astype(int).tolist(),
        load.run_s.astype(int).tolist(),
        load.limit_s.astype(int).tolist(),
        [job[3] for job in jobs],
        32,
    )
    assert results.start_s.astype(int).tolist() == expected
    assert max(moment.waiting for moment in results.moments) > 50, "the load must queue"


@pytest.mark.parametrize("start", ["easy", "conservative"])
@given(jobs=jobs_strategy)
@settings(deadline=None, max_examples=50)
def test_nothing_delays_the_first_waiting_job(start: str, jobs: list[Job]) -> None:
    """Limits are exact here, so the first waiting job starts when it was promised to as it became the first."""
    exact = [(gap, run, 0, cpus, 0, 0, user) for gap, run, _, cpus, _, _, user in jobs]
    load = load_of(exact)
    results = simulate(load, even_cluster(1, cpus=9), Policy(start=start))
    for job in range(len(load)):
        # Without any job that came later, it would not have started earlier once it was the first.
        before = [other for other in range(job) if results.start_s[other] > load.submit_s[job]]
        if before:
            continue
        alone = [run for run in results.runs if run.start_s < load.submit_s[job] or run.number < job]
        assert results.start_s[job] == _earliest(load.submit_s[job], int(exact[job][3]), alone, exact)


def _earliest(submit_s: float, cpus: int, runs: Sequence[Run], jobs: list[Job]) -> float:
    moments = sorted({submit_s} | {run.end_s for run in runs if run.end_s > submit_s})
    for moment in moments:
        held = sum(jobs[run.number][3] for run in runs if run.start_s <= moment < run.end_s)
        if held + cpus <= 9:
            return moment
    raise AssertionError("it fits an empty pool")


def test_backfill_uses_a_gap_that_strict_leaves() -> None:
    load = workload([0, 1, 2], [10, 5, 3], [[3000, 0, 0], [4000, 0, 0], [1000, 0, 0]], limit_s=[10, 5, 3])
    cluster = even_cluster(1, cpus=4)
    starts = {start: simulate(load, cluster, Policy(start=start)).start_s.tolist() for start in ROUNDS}
    assert starts == {
        "strict": [0, 10, 15],
        "greedy": [0, 10, 2],
        "easy": [0, 10, 2],
        "easy shortest": [0, 10, 2],
        "conservative": [0, 10, 2],
        "deadlines": [0, 10, 2],
    }


def test_conservative_keeps_the_second_reservation_that_easy_breaks() -> None:
    """The last job takes for good what the first waiting job leaves, and the second waiting job needs it."""
    load = workload(
        [0, 0, 1, 2, 3],
        [10, 20, 10, 10, 100],
        [[cpus * 1000, 0, 0] for cpus in (3, 1, 4, 6, 1)],
        limit_s=[10, 20, 10, 10, 100],
    )
    starts = {
        start: simulate(load, even_cluster(1, cpus=6), Policy(start=start)).start_s.tolist()
        for start in ("easy", "conservative")
    }
    assert starts == {"easy": [0, 0, 10, 103, 3], "conservative": [0, 0, 10, 20, 30]}


def test_a_user_with_little_goes_before_one_with_much() -> None:
    load = workload(
        [0, 0, 0, 0, 1],
        [5, 5, 5, 5, 5],
        [[2000, 0, 0]] * 4 + [[2000, 0, 0]],
        user=[0, 0, 0, 0, 1],
    )
    drf = simulate(load, even_cluster(1, cpus=4), Policy(ordering=ORDERINGS["drf"]))
    fifo = simulate(load, even_cluster(1, cpus=4))
    assert drf.start_s.tolist() == [0, 0, 5, 10, 5]
    assert fifo.start_s.tolist() == [0, 0, 5, 5, 10]


def test_a_job_short_of_memory_fails_and_comes_back_with_its_request() -> None:
    halved = Always((1000, 50, 0))
    load = workload([0], [10], [[1000, 100, 0]], used=[[1000, 60, 0]])
    results = simulate(load, even_cluster(1, mem_mib=100), hooks=Hooks(sizing=halved))
    assert halved.told == [(5, (1000, 50, 0), False), (15, (1000, 100, 0), True)]
    assert results.failures.tolist() == [1]
    assert (results.first_start_s[0], results.start_s[0], results.end_s[0]) == (0, 5, 15)


def test_a_job_whose_own_request_is_too_small_fails_for_good() -> None:
    load = workload([0], [10], [[1000, 50, 0]], used=[[1000, 60, 0]])
    results = simulate(load, even_cluster(1))
    assert results.outcome.tolist() == [Outcome.FAILED]
    assert len(results.runs) == 1


def test_a_grant_above_the_request_is_refused() -> None:
    with pytest.raises(ModelError, match="grant no more than was asked"):
        simulate(
            workload([0], [1], [[1000, 0, 0]]), even_cluster(1), hooks=Hooks(sizing=Always((2000, 0, 0)))
        )


def test_limits_end_jobs_and_speeds_shorten_them() -> None:
    load = workload([0, 0], [10, 10], [[8000, 0, 0]] * 2, limit_s=[7, 100])
    results = simulate(load, cluster_of([Node(cpus=8, mem_mib=1), Node(cpus=8, mem_mib=1, speed=2.0)]))
    assert results.end_s.tolist() == [7, 5]
    assert results.outcome.tolist() == [Outcome.TIMEOUT, Outcome.COMPLETED]


def test_a_job_takes_longer_with_fewer_cores_than_are_busy() -> None:
    load = workload([0], [10], [[4000, 0, 1000]], used=[[2000, 0, 500]])
    run_time = slowed_by_cpus(load)
    assert run_time(0, (2000, 0, 500)) == 10
    assert run_time(0, (1000, 0, 500)) == 20
    assert run_time(0, (1000, 0, 125)) == 40


def test_with_its_whole_request_a_job_takes_as_long_whatever_was_busy() -> None:
    """Hyperthreads, or a process that the limit does not contain: more was busy than was requested."""
    load = workload([0], [10], [[2000, 0, 500]], used=[[2100, 0, 750]], limit_s=[10])
    run_time = slowed_by_cpus(load)
    assert run_time(0, (2000, 0, 500)) == 10
    assert run_time(0, (1000, 0, 500)) == 20
    results = simulate(load, cluster_of([Node(cpus=8, mem_mib=1, gpus=1)]), hooks=Hooks(run_time=run_time))
    assert results.outcome.tolist() == [Outcome.COMPLETED]


def test_easy_plus_plus_corrects_an_estimate_that_is_outrun() -> None:
    """Two short runs teach 1 s; the third takes 100 s. The job behind it is promised later and later, but not lost."""
    load = workload(
        [0, 2, 4, 5, 6],
        [1, 1, 100, 10, 50],
        [[4000, 0, 0]] * 3 + [[4000, 0, 0], [4000, 0, 0]],
        limit_s=[200] * 5,
    )
    results = simulate(load, even_cluster(1, cpus=4), Policy(start="easy", guess=LastTwo))
    assert results.start_s.tolist() == [0, 2, 4, 104, 114]


def test_an_arrangement_of_the_queue_is_followed() -> None:
    def last_first(queue: Sequence[Waiting]) -> list[int]:
        return list(range(len(queue)))[::-1]

    load = workload([0, 1, 2, 3], [10, 1, 1, 1], [[4000, 0, 0]] * 4)
    policy = Policy(ordering=Ordering(key=by_submit, arrangement=lambda _: last_first))
    results = simulate(load, even_cluster(1, cpus=4), policy)
    assert results.runs[0].number == 0
    assert sorted(results.start_s.tolist()) == [0, 10, 11, 12]
    assert results.start_s.tolist() != simulate(load, even_cluster(1, cpus=4)).start_s.tolist()


def test_figures_of_a_load_that_is_cut_off() -> None:
    load = workload([0, 0, 0], [10, 10, 10], [[4000, 32, 1000]] * 3, used=[[2000, 16, 250]] * 3)
    found = figures(simulate(load, even_cluster(1, cpus=4, mem_mib=64), until_s=15))
    assert (found.jobs, found.deployed, found.finished, found.queued, found.running) == (3, 2, 1, 1, 1)
    assert found.completion == pytest.approx(1 / 2)
    assert found.finished_of_all == pytest.approx(1 / 3)
    assert found.cpu_allocated == pytest.approx(1.0)
    assert found.cpu_used == pytest.approx(0.5)
    assert found.mem_allocated == pytest.approx(0.5)
    assert found.gpu_allocated == pytest.approx(0.5)
    assert found.mean_wait_s == pytest.approx(5)


def test_poisson_arrivals_follow_their_rate_and_seed() -> None:
    one, other = (poisson_arrivals(70, 1000, numpy.random.default_rng(3)) for _ in range(2))
    assert (one == other).all()
    assert len(one) == pytest.approx(70_000, rel=0.02)
    assert numpy.diff(one).mean() == pytest.approx(3600 / 70, rel=0.02)
    assert (numpy.diff(one) > 0).all()


def test_bad_loads_are_refused_with_a_reason() -> None:
    with pytest.raises(ModelError, match="order of their arrival"):
        workload([1, 0], [1, 1], [[1, 0, 0]] * 2)
    with pytest.raises(ModelError, match="above 0 s"):
        workload([0], [0], [[1, 0, 0]])
    with pytest.raises(ModelError, match="no negative"):
        workload([0], [1], [[-1, 0, 0]])
    with pytest.raises(ModelError, match="no rule of starting"):
        Policy(start="lucky")
    assert Policy(ordering=FIFO, placement=WHOLE).start == "strict"


@needs_traces("queue/philly_first_half.csv.gz")
def test_easy_agrees_with_the_plain_implementation_on_a_public_trace() -> None:
    """Arrivals, run times and GPUs of Philly on one pool; limits are made up, because the trace has none."""
    table = pandas.read_csv(TRACES / "queue" / "philly_first_half.csv.gz", nrows=3000)
    table["at"] = pandas.to_datetime(table["timestamp"]).astype("datetime64[s]").astype("int64")
    table = table[(table["num_gpus"] > 0) & (table["duration"] >= 1)].sort_values("at", kind="stable")
    submit_s = (table["at"] - table["at"].iloc[0]).to_numpy()
    run_s = table["duration"].to_numpy().astype(int)
    limit_s = run_s * (1 + numpy.arange(len(run_s)) % 3)
    gpus = table["num_gpus"].to_numpy()
    load = workload(
        submit_s.astype(float),
        run_s.astype(float),
        [[1000 * each, 0, 0] for each in gpus],
        limit_s=limit_s.astype(float),
    )
    results = simulate(load, even_cluster(1, cpus=300), Policy(start="easy"))
    expected = naive_easy(submit_s.tolist(), run_s.tolist(), limit_s.tolist(), gpus.tolist(), 300)
    assert [None if math.isnan(start) else int(start) for start in results.start_s] == expected
    assert max(moment.waiting for moment in results.moments) > 50, "the load must queue"
