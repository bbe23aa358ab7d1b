"""The benchmark of GPU sharing: its peers and tables by hand, and what it must show on measured pairs."""

import msgspec
import numpy
import pytest

from bench import gpu_sharing
from bench.gpu_sharing import (
    BOUND,
    EXCLUSIVE,
    KEEPING,
    OURS,
    PACKING,
    errors_of,
    goal_rows,
    simulated,
    time_rows,
)
from bench.gpu_sharing_decisions import Cluster, greedy, paired
from bench.gpu_sharing_load import GAVEL, PHILLY, Measured, drawn_load, measured, philly
from bench.gpu_sharing_peers import (
    Exclusive,
    LeastAttained,
    Packing,
    by_utilisation,
    first_fit,
    random_pairs,
)
from models.gpus.interference import Interference
from models.gpus.pairing import Job, gains, pair
from models.simulation.shared_gpus import Load, Machines, Seen, share
from tests.traces import TRACES, needs_traces

on_traces = needs_traces(GAVEL, PHILLY)
# Kind 0 gains with 1 and loses with itself; 2 fits beside no other.
TABLE = Measured(kinds=("a", "b", "c"), speed=numpy.array([[0.4, 0.8, 0], [0.7, 0.6, 0], [0, 0, 0.0]]))


def seen(on_gpus: list[list[int]], waiting: list[int], ran_s: dict[int, float] | None = None) -> Seen:
    kinds = numpy.array([0, 1, 2, 0, 1, 1])
    ran = numpy.array([(ran_s or {}).get(job, 0.0) for job in range(len(kinds))])
    return Seen(
        now_s=0,
        slot=True,
        on_gpus=on_gpus,
        waiting=waiting,
        kind=kinds,
        submit_s=numpy.zeros(len(kinds)),
        ran_s=ran,
    )


def test_exclusive_peers_decide_as_worked_out_by_hand() -> None:
    assert Exclusive().decide(seen([[], [0], []], [1, 2, 3])) == {1: 0, 2: 2}
    assert Exclusive(lambda job: -job).decide(seen([[]], [1, 2, 3])) == {3: 0}
    # Job 0 has run for an hour, job 1 for less; job 2 gets the place of job 0.
    moved = LeastAttained().decide(seen([[0], [1]], [2, 3], {0: 3600, 1: 3599}))
    assert moved == {0: None, 2: 0}
    assert LeastAttained().decide(seen([[0], [1], []], [], {0: 3600})) == {}


def test_packing_peers_decide_as_worked_out_by_hand() -> None:
    first = first_fit(TABLE.speed)
    assert first.decide(seen([[0], [1], []], [3, 4])) == {3: 2, 4: 0}
    assert first.decide(seen([[2], [0, 1]], [3])) == {}, "beside c nobody fits, and two are enough"
    # By what a twin leaves of a job, kind 0 is busy all the time, and kind 1 for 1 / 1.2 of it.
    assert TABLE.use_of_twins() == pytest.approx([1, 1 / 1.2, 1])
    assert by_utilisation(TABLE.speed, TABLE.use_of_twins()).decide(seen([[0], [1]], [3])) == {3: 1}
    drawn = {random_pairs(TABLE.speed, seed).decide(seen([[0], [1]], [3]))[3] for seed in range(9)}
    assert drawn == {0, 1}
    assert isinstance(first, Packing)


def test_known_pairs_are_known_from_both_sides_and_all_that_do_not_fit_are_known() -> None:
    known = TABLE.some(0.5, 3)
    assert (known == known.T).all()
    nothing = TABLE.pairs(numpy.zeros((3, 3), dtype=bool))
    assert {(one.kind, one.beside) for one in nothing} == {
        (one, other) for one in "abc" for other in "abc" if "c" in (one, other)
    }


def test_a_drawn_load_requests_as_much_as_told() -> None:
    draw = numpy.random.default_rng(1)
    jobs = numpy.sort(draw.uniform(0, 1e6, 500)), draw.exponential(1000, 500)
    load = drawn_load(jobs, 200, 3, 1 / (10 * 1.1), seed=4)
    assert load.alone_s.sum() / load.submit_s[-1] == pytest.approx(11)
    assert load.submit_s[0] == 0
    assert set(load.kind) == {0, 1, 2}


def test_the_greedy_takes_the_best_pair_left_and_gains_no_more() -> None:
    known = Interference(TABLE.kinds, TABLE.pairs(TABLE.speed > 0))
    gain = gains(known)
    gpus = [[Job(job_id=1, kind="a")], [Job(job_id=2, kind="b")]]
    # The first b takes the host a, which gains most; the second b is left with the host b: both find a host.
    waiting = [Job(job_id=3, kind="b", waited_s=2), Job(job_id=4, kind="b", waited_s=1)]
    cluster = Cluster(gpus, waiting)
    assert [(guest.job_id, host.job_id) for guest, host in greedy(cluster, known)] == [(3, 1), (4, 2)]
    reached = [
        sum(gain[known.number(guest.kind), known.number(host.kind)] for guest, host in pairs)
        for pairs in (greedy(cluster, known), paired(pair(gpus, waiting, known)))
    ]
    assert reached[1] >= reached[0] > 0


def test_tables_compare_with_the_best_peer_and_goals_with_the_tables() -> None:
    ran = {
        (1.0, name): numpy.array([[mean, 1, 1, 1, 1, 1, 1.0]] * 2)
        for name, mean in {
            OURS: 6.0,
            BOUND: 5.0,
            **dict.fromkeys(EXCLUSIVE, 12.0),
            **dict.fromkeys(PACKING, 9),
        }.items()
    }
    ran[1.0, EXCLUSIVE[1]][:, 0] = 10.0
    row = next(row for row in time_rows(ran) if row["way"] == OURS)
    assert (row["/ exclusive"], row["/ packing"]) == ("0.60 (0.60–0.60)", "0.67 (0.67–0.67)")
    goals = goal_rows(ran, [{"known": 0.2, "ratio": 0.6}], [{}, {"way": "pairing", "p99 (CPU ms)": 7}])
    assert [(row["measured"], row["met"]) for row in goals] == [
        (0.6, "yes"),
        (0.667, "yes"),
        (0.75, "no"),
        (0.6, "no"),
        (7, "yes"),
    ]


@on_traces
def test_measured_pairs_are_speeds_and_the_jobs_of_philly_are_in_order() -> None:
    table = measured(TRACES, "v100")
    assert len(table.kinds) == 26
    assert ((table.speed == 0) == (table.speed.T == 0)).all(), "both fit, or neither does"
    assert 0.6 < table.speed[table.speed > 0].mean() < 0.75
    submit_s, run_s = philly(TRACES)
    assert (numpy.diff(submit_s) >= 0).all()
    assert run_s.min() >= 60


@on_traces
def test_predictions_of_held_out_pairs_are_better_than_the_mean() -> None:
    table = measured(TRACES, "v100")
    ours, mean, inside = numpy.mean([errors_of(table, 0.2, seed) for seed in range(5)], axis=0)
    assert ours < 0.5 * mean
    assert 0.7 < inside < 0.95


@on_traces
def test_on_one_load_the_pairing_is_ahead_of_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sharing, "JOBS", 400)
    monkeypatch.setattr(gpu_sharing, "GPUS", 10)
    ran = simulated(measured(TRACES, "v100"), philly(TRACES), [1.1], range(1))
    means = {name: float(figures[0, 0]) for (_, name), figures in ran.items()}
    assert means[OURS] < 0.8 * min(means[name] for name in EXCLUSIVE)
    assert means[OURS] < min(means[name] for name in PACKING)


@on_traces
def test_where_pairs_hardly_gain_it_helps_that_long_jobs_give_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_sharing, "JOBS", 400)
    monkeypatch.setattr(gpu_sharing, "GPUS", 10)
    ran = simulated(measured(TRACES, "k80"), philly(TRACES), [1.1], range(2))
    means = {name: float(figures[:, 0].mean()) for (_, name), figures in ran.items()}
    assert means[OURS] < 0.95 * means[KEEPING]


def test_all_work_is_done_under_every_peer() -> None:
    draw = numpy.random.default_rng(2)
    load = Load(
        submit_s=numpy.sort(draw.uniform(0, 5000, 60)),
        alone_s=draw.exponential(900, 60),
        kind=draw.integers(0, 3, 60),
    )
    machines = Machines(gpus=4, speed=TABLE.speed, move_s=0)
    for name, make in gpu_sharing.ways(TABLE, load, 1).items():
        ended = share(load, machines, make())
        assert (ended.end_s >= load.submit_s + load.alone_s - 1e-6).all(), name
        assert msgspec.structs.asdict(ended)["gain"] <= 1.5, name
