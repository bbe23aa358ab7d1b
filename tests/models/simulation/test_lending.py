"""Nodes that owners take back, devices on which kinds of job run at their own speeds, and the round by deadlines."""

from __future__ import annotations

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.scheduling.deadlines import Terms
from models.scheduling.ordering import ORDERINGS
from models.simulation.engine import Hooks, Policy, simulate
from models.simulation.lending import Lending, idle_s
from models.simulation.nodes import HOUR_S, Hours, Node, Reservation, cluster_of
from models.simulation.policies import POLICIES
from models.simulation.results import Outcome, figures
from models.simulation.workload import workload
from tests.models.simulation.loads import Job, jobs_strategy, load_of, most_held

H = HOUR_S
OWNED = Node(cpus=4, mem_mib=64, owner=((2.0, 3.0), (8.0, 9.0)))


def test_a_run_is_interrupted_by_the_owner_and_starts_again_when_the_owner_has_gone() -> None:
    load = workload([0], [4 * H], [[4000, 0, 0]], limit_s=[9 * H])
    results = simulate(load, cluster_of([OWNED]))
    assert [(run.start_s / H, run.end_s / H) for run in results.runs] == [(0, 2), (3, 7)]
    assert (results.first_start_s[0], results.start_s[0] / H, results.end_s[0] / H) == (0, 3, 7)
    assert results.interruptions.tolist() == [1]
    # For six of seven hours the owner was away, and all of them are used.
    assert figures(results).lent_used == pytest.approx(6 / 6)


@pytest.mark.parametrize(("checkpoint_s", "end_h"), [(0.75 * H, 5.5), (2 * H, 5), (2.5 * H, 7)])
def test_whole_checkpoints_are_kept(checkpoint_s: float, end_h: float) -> None:
    load = workload([0], [4 * H], [[4000, 0, 0]])
    results = simulate(load, cluster_of([OWNED]), hooks=Hooks(checkpoint_s=checkpoint_s))
    assert results.end_s[0] / H == pytest.approx(end_h)


def test_a_run_that_ends_as_the_owner_comes_has_ended() -> None:
    load = workload([0, 0], [2 * H, 1 * H], [[4000, 0, 0]] * 2)
    results = simulate(load, cluster_of([OWNED]))
    assert (results.end_s / H).tolist() == [2, 4]
    assert not results.interruptions.any()


def test_an_interrupted_run_leaves_no_moment_at_which_it_would_outrun_its_estimate() -> None:
    """The first job is expected to end at 3.5 h and no later; the last would end just after it, so it may not pass."""
    load = workload([0, 2.5 * H, 2.5 * H], [2.2 * H, H, H + 30], [[3000, 0, 0], [4000, 0, 0], [1000, 0, 0]])
    cluster = cluster_of([Node(cpus=4, mem_mib=64, owner=((1.0, 1.5),))])
    hooks = Hooks(expected_s=numpy.array([2 * H, H, H + 30]))
    results = simulate(load, cluster, Policy(start="easy"), hooks)
    assert results.start_s[0] == 1.5 * H
    assert results.start_s[2] > 2.5 * H


def test_an_owner_present_at_first_leaves_and_one_who_never_leaves_keeps_the_node() -> None:
    load = workload([0], [1 * H], [[4000, 0, 0]])
    node = Node(cpus=4, mem_mib=64, owner=((-1.0, 1.0), (2.0, math.inf)))
    assert simulate(load, cluster_of([node])).end_s[0] == 2 * H
    later = simulate(workload([1.5 * H], [1 * H], [[4000, 0, 0]]), cluster_of([node]))
    assert later.outcome.tolist() == [Outcome.WAITING]


def test_the_past_shows_habits_and_the_future_does_not() -> None:
    past: tuple[Hours, ...] = ((-50, -40), (-30, -20), (-10, -2))
    seen = {0: tuple((from_h * H, to_h * H) for from_h, to_h in past)}
    knows = Lending(seen)
    # Spells of ten hours each; the current one is two hours old.
    assert knows.left_s(0, 0.0, 0.4) == 8 * H
    for end_h in (1.0, 30.0):
        future = Lending({0: (*seen[0], (end_h * H, (end_h + 1) * H))})
        assert future.left_s(0, 0.0, 0.4) == 8 * H
    assert future.pass_to(30 * H)[0].node == 0
    assert future.left_s(0, 30 * H, 0.4) == 0


def test_hours_without_owners_are_added_up() -> None:
    assert idle_s([(-5, 2), (4, 6), (9, 20)], 0, 10) == 10 - 2 - 2 - 1


@pytest.mark.parametrize(
    ("owner", "down"), [(((3.0, 2.0),), ()), (((2.0, 5.0), (4.0, 6.0)), ()), (((1.0, 2.0),), ((3.0, 4.0),))]
)
def test_an_owners_times_must_come_one_after_the_other(
    owner: tuple[Hours, ...], down: tuple[Hours, ...]
) -> None:
    with pytest.raises(ModelError, match="owner"):
        Node(cpus=1, mem_mib=1, owner=owner, down=down)


def test_a_node_that_an_owner_may_take_cannot_be_reserved() -> None:
    with pytest.raises(ModelError, match="its owner may take"):
        cluster_of([OWNED], [Reservation(from_h=1, to_h=2, nodes=(0,))])


def test_each_kind_runs_as_fast_as_its_profile_says() -> None:
    load = workload([0, 0], [100, 100], [[4000, 0, 0]] * 2, kind=[0, 1])
    nodes = [Node(cpus=4, mem_mib=1, device="a", speed=2.0), Node(cpus=4, mem_mib=1, device="b")]
    profiles = ({"a": 1.0, "b": 0.5}, {"a": 4.0, "b": 0.25})
    results = simulate(load, cluster_of(nodes), hooks=Hooks(profiles=profiles))
    assert results.end_s.tolist() == [100 / 2, 100 / 0.25]
    with pytest.raises(ModelError, match="no speed above 0 for the device b"):
        simulate(load, cluster_of(nodes), hooks=Hooks(profiles=({"a": 1.0, "b": 1.0}, {"a": 1.0})))
    with pytest.raises(ModelError, match="1 profiles, and kinds up to 1"):
        simulate(load, cluster_of(nodes), hooks=Hooks(profiles=({"a": 1.0, "b": 1.0},)))


def test_the_round_chooses_the_device_by_the_deadline() -> None:
    load = workload([0, 0, 1], [100] * 3, [[4000, 0, 0]] * 3, deadline_s=[1000, 110, 201])
    nodes = [Node(cpus=4, mem_mib=1, device=device) for device in ("k80", "v100")]
    hooks = Hooks(profiles=({"v100": 1.0, "k80": 0.2},), expected_s=load.run_s)
    results = simulate(load, cluster_of(nodes), Policy(start="deadlines"), hooks)
    assert {run.number: run.parts[0][0] for run in results.runs} == {0: 0, 1: 1, 2: 1}
    assert figures(results).met_deadlines == figures(results).due == 3
    edf = simulate(load, cluster_of(nodes), Policy(ordering=ORDERINGS["edf"], start="greedy"), hooks)
    assert figures(edf).met_deadlines < 3


def test_a_job_that_would_reach_its_limit_on_a_slow_device_is_not_sent_there() -> None:
    load = workload([0, 0], [100] * 2, [[4000, 0, 0]] * 2, deadline_s=[110, 1000], limit_s=[150] * 2)
    nodes = [Node(cpus=4, mem_mib=1, device=device) for device in ("v100", "k80")]
    hooks = Hooks(profiles=({"v100": 1.0, "k80": 0.2},), expected_s=load.run_s)
    results = simulate(load, cluster_of(nodes), Policy(start="deadlines"), hooks)
    assert results.end_s.tolist() == [100, 200]


def test_a_limit_ends_a_job_at_the_same_time_on_a_slow_device_and_no_job_passes_beyond_it() -> None:
    load = workload(
        [0, 1, 2], [50, 50, 75], [[4000, 0, 0], [8000, 0, 0], [4000, 0, 0]], limit_s=[100, 100, 150]
    )
    hooks = Hooks(profiles=({"k80": 0.5},))
    cluster = cluster_of([Node(cpus=8, mem_mib=1, device="k80")])
    results = simulate(load, cluster, POLICIES["easy"], hooks)
    assert results.start_s.tolist() == [0, 100, 200]


def test_a_job_that_outruns_its_estimate_on_a_fast_device_is_counted_once_next_to_the_first_job() -> None:
    demands = [[4000, 0, 0], [1000, 0, 0], [4000, 0, 0], [2000, 0, 0]]
    load = workload([0, 0, 1, 2], [100, 3000, 50, 600], demands)
    nodes = [Node(cpus=4, mem_mib=1, device="k80"), Node(cpus=3, mem_mib=1, device="v100")]
    hooks = Hooks(profiles=({"k80": 1.0, "v100": 3.0},), expected_s=numpy.array([100.0, 3000.0, 50.0, 200.0]))
    results = simulate(load, cluster_of(nodes), POLICIES["easy"], hooks)
    assert results.start_s.tolist() == [0, 0, 100, 2]


owned_nodes = st.lists(
    st.builds(
        Node,
        cpus=st.integers(1, 8),
        mem_mib=st.integers(4, 20),
        gpus=st.integers(0, 2),
        speed=st.sampled_from([1.0, 2.0]),
        owner=st.lists(st.integers(-20, 40), unique=True, max_size=6).map(
            lambda hours: tuple(zip(sorted(hours)[::2], sorted(hours)[1::2], strict=False))
        ),
    ),
    min_size=1,
    max_size=4,
)


@given(jobs_strategy, owned_nodes, st.sampled_from(sorted(POLICIES)), st.sampled_from([math.inf, H]))
def test_owners_have_their_nodes_to_themselves_and_all_jobs_run_in_the_end(
    jobs: list[Job], nodes: list[Node], name: str, checkpoint_s: float
) -> None:
    load, cluster = load_of(jobs, H), cluster_of(nodes)
    results = simulate(load, cluster, POLICIES[name], Hooks(checkpoint_s=checkpoint_s))
    assert most_held(results, cluster)
    for run in results.runs:
        for node, _ in run.parts:
            spans = cluster.owners.get(node, ())
            assert not any(run.start_s < to_s and from_s < run.end_s for from_s, to_s in spans)
    left = {int(Outcome.COMPLETED), int(Outcome.TIMEOUT), int(Outcome.UNFIT)}
    assert set(results.outcome.tolist()) <= left
    again = simulate(load, cluster, POLICIES[name], Hooks(checkpoint_s=checkpoint_s))
    assert again.runs == results.runs


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 9), st.integers(0, 30)), min_size=1, max_size=25),
    st.integers(1, 3),
)
def test_where_edf_is_always_in_time_the_round_by_deadlines_is_too(
    jobs: list[tuple[int, int, int]], nodes: int
) -> None:
    """With one kind of device and whole nodes for each job, the round plans what EDF does."""
    gaps, runs, spare = (numpy.array(column, dtype=float) for column in zip(*jobs, strict=True))
    submit_s = numpy.cumsum(gaps)
    load = workload(
        submit_s, runs, [[4000, 0, 0]] * len(jobs), deadline_s=submit_s + runs + spare, limit_s=runs
    )
    cluster = cluster_of([Node(cpus=4, mem_mib=1, count=nodes)])
    edf = simulate(load, cluster, Policy(ordering=ORDERINGS["edf"]))
    if figures(edf).met_deadlines == len(jobs):
        ours = simulate(load, cluster, Policy(start="deadlines", terms=Terms(promised_share=1e9)))
        assert figures(ours).met_deadlines == len(jobs)
