"""Nodes that are down or reserved for a time: nothing runs into such a window, and all jobs run in the end."""

from __future__ import annotations

import math
from itertools import pairwise
from unittest import mock

import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.scheduling.backfill import Promise
from models.scheduling.ordering import ORDERINGS
from models.scheduling.placement import PLACEMENTS
from models.scheduling.run_time_guess import LastTwo
from models.simulation.engine import Policy, simulate
from models.simulation.nodes import HOUR_S, Cluster, Node, Reservation, cluster_of
from models.simulation.results import Outcome, Results
from models.simulation.rounds import ROUNDS
from models.simulation.state import State
from models.simulation.workload import workload
from tests.models.simulation.loads import Job, jobs_strategy, load_of, most_held, nodes_strategy

POLICIES = {
    f"{start}, {placement}": Policy(start=start, placement=PLACEMENTS[placement])
    for start in ROUNDS
    for placement in PLACEMENTS
} | {
    "easy++": Policy(start="easy", guess=LastTwo),
    "conservative by guesses": Policy(start="conservative", guess=LastTwo),
    "drf": Policy(ordering=ORDERINGS["drf"]),
    "heap": Policy(ordering=ORDERINGS["heap"], start="easy"),
}
USERS = {str(user): frozenset([user]) for user in range(4)}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """A cluster whose nodes are down, reserved, or reserved in part, one window after the other."""
    nodes, reservations = [], []
    for number, node in enumerate(draw(nodes_strategy)):
        moments = sorted(draw(st.sets(st.integers(0, 30), max_size=5)))
        down = []
        for from_h, to_h in pairwise(moments):
            kind = draw(st.sampled_from(["down", "reserved", "part", "there"]))
            if kind == "down":
                down.append((float(from_h), float(to_h)))
            elif kind != "there":
                users = draw(st.sets(st.sampled_from(sorted(USERS)), max_size=3))
                part = kind == "part"
                reservations.append(
                    Reservation(
                        from_h=from_h,
                        to_h=to_h,
                        nodes=(number,),
                        cpus=draw(st.integers(1, int(node.cpus))) if part else 0,
                        mem_mib=draw(st.integers(0, node.mem_mib)) if part else 0,
                        users=tuple(sorted(users)),
                    )
                )
        nodes.append(
            Node(cpus=node.cpus, mem_mib=node.mem_mib, gpus=node.gpus, speed=node.speed, down=tuple(down))
        )
    return cluster_of(nodes, reservations, USERS)


def assert_windows_are_kept(results: Results, cluster: Cluster) -> None:
    """Check users, and that no run that could last until its limit was started so that it would reach a window."""
    load = results.jobs
    for run in results.runs:
        latest_s = run.start_s + load.limit_s[run.number]
        for node, amounts in run.parts:
            only_for = cluster.only_for[node]
            assert only_for is None or int(load.user[run.number]) in only_for
            for window in cluster.windows:
                if window.node == node and window.from_s < latest_s and run.start_s < window.to_s:
                    left = cluster.capacity[:, node] - window.amounts
                    assert (left >= amounts).all()


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=60, deadline=None)
@given(jobs=jobs_strategy, cluster=clusters())
def test_nothing_overlaps_a_window_that_it_may_not_use_and_all_that_fits_runs(
    name: str, jobs: list[Job], cluster: Cluster
) -> None:
    load = load_of(jobs, HOUR_S)
    results = simulate(load, cluster, POLICIES[name])
    assert most_held(results, cluster)
    assert_windows_are_kept(results, cluster)
    assert set(results.outcome.tolist()) <= {Outcome.COMPLETED, Outcome.UNFIT}
    again = simulate(load, cluster, POLICIES[name])
    assert (again.runs, again.moments) == (results.runs, results.moments)


@pytest.mark.parametrize("start", ["easy", "easy shortest"])
@pytest.mark.parametrize("placement", PLACEMENTS)
@given(jobs=jobs_strategy, cluster=clusters())
@example(
    # The second job is promised shares of 12 MiB on both nodes; besides these the third takes all that is left.
    jobs=[
        (0, 7, 0, 1, 4, 0, 0),
        (0, 1, 0, 2, 12, 0, 0),
        (0, 9, 0, 2, 4, 0, 0),
        (0, 2, 0, 4, 4, 0, 0),
        (1, 7, 0, 3, 2, 0, 0),
    ],
    cluster=cluster_of([Node(cpus=3, mem_mib=9), Node(cpus=4, mem_mib=5)]),
)
@settings(deadline=None, max_examples=60)
def test_no_job_starts_later_than_easy_ever_promised(
    start: str, placement: str, jobs: list[Job], cluster: Cluster
) -> None:
    latest_s: dict[int, float] = {}
    noted = State.promised

    def note(state: State, number: int, promise: Promise | None) -> None:
        if promise is not None:
            latest_s[number] = min(promise.start_s, latest_s.get(number, math.inf))
        noted(state, number, promise)

    policy = Policy(start=start, placement=PLACEMENTS[placement])
    with mock.patch.object(State, "promised", note):
        results = simulate(load_of(jobs, HOUR_S), cluster, policy)
    assert all(results.start_s[number] <= until_s for number, until_s in latest_s.items())


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=15, deadline=None)
@given(jobs=jobs_strategy, nodes=nodes_strategy)
def test_windows_after_everything_change_nothing(name: str, jobs: list[Job], nodes: list[Node]) -> None:
    """That holds although every job takes the code path for windows."""
    load = load_of(jobs, HOUR_S)
    plain, late = cluster_of(nodes), cluster_of(nodes, [Reservation(from_h=9e5, to_h=1e6, nodes=(0,))])
    assert simulate(load, late, POLICIES[name]).runs == simulate(load, plain, POLICIES[name]).runs


def test_a_job_whose_limit_reaches_a_window_waits_for_its_end_and_a_short_one_passes() -> None:
    load = workload(
        numpy.array([0, 1, 2]) * HOUR_S,
        numpy.array([5, 5, 3]) * HOUR_S,
        [[4000, 0, 0]] * 3,
        limit_s=numpy.array([6, 8, 4]) * HOUR_S,
    )
    cluster = cluster_of([Node(cpus=4, mem_mib=1, down=((10, 12),))])
    found_h = {
        start: (simulate(load, cluster, Policy(start=start)).start_s / HOUR_S).tolist() for start in ROUNDS
    }
    assert found_h == {
        "strict": [0, 12, 17],
        "greedy": [0, 12, 5],
        "easy": [0, 12, 5],
        "easy shortest": [0, 12, 5],
        "conservative": [0, 12, 5],
        "deadlines": [0, 12, 5],
    }


def test_a_reservation_is_for_its_users_while_it_holds() -> None:
    """User 1 has half of the node from 2 to 6 h; this user's second job would outlast that, and waits."""
    load = workload(
        numpy.array([2, 2, 3, 3]) * HOUR_S,
        numpy.array([3, 3, 3, 4]) * HOUR_S,
        [[4000, 0, 0], [4000, 0, 0], [4000, 0, 0], [4000, 0, 0]],
        user=[0, 0, 1, 1],
        limit_s=numpy.array([3, 3, 3, 4]) * HOUR_S,
    )
    reservation = Reservation(from_h=2, to_h=6, nodes=(0,), cpus=4, users=("1",))
    cluster = cluster_of([Node(cpus=8, mem_mib=1)], [reservation], USERS)
    results = simulate(load, cluster, Policy(start="greedy"))
    assert (results.start_s / HOUR_S).tolist() == [2, 5, 3, 6]
    assert [(run.number, run.parts[0][0]) for run in results.runs] == [(0, 0), (2, 1), (1, 0), (3, 0)]


def starts_h(
    policy: Policy, submit_h: list[int], run_h: list[int], limit_h: list[int], cpus: list[int]
) -> list[float]:
    """Return the starts of jobs of one user on a node of 4 CPUs, of which 2 are reserved from 10 to 12 h."""
    cluster = cluster_of([Node(cpus=4, mem_mib=1)], [Reservation(from_h=10, to_h=12, nodes=(0,), cpus=2)])
    load = workload(
        numpy.array(submit_h) * HOUR_S,
        numpy.array(run_h) * HOUR_S,
        [[1000 * each, 0, 0] for each in cpus],
        limit_s=numpy.array(limit_h) * HOUR_S,
    )
    return [start_s / HOUR_S for start_s in simulate(load, cluster, policy).start_s.tolist()]


@pytest.mark.parametrize("start", ROUNDS)
def test_two_jobs_that_reach_a_window_count_together(start: str) -> None:
    assert starts_h(Policy(start=start), [0, 0], [5, 5], [12, 12], [2, 2]) == [0, 5]


def test_easy_promises_a_place_that_a_window_leaves_and_keeps_the_promise() -> None:
    assert starts_h(Policy(start="easy"), [0, 1, 2], [4, 20, 30], [4, 20, 30], [2, 4, 2]) == [0, 12, 32]
    # The first waiting job still runs when the window begins: what counts is the room that is left then.
    assert starts_h(Policy(start="easy"), [0, 1, 2], [4, 20, 30], [4, 20, 30], [3, 2, 1]) == [0, 4, 12]


def test_a_plan_by_guessed_run_times_keeps_to_limits_where_windows_are_ahead() -> None:
    policy = Policy(start="conservative", guess=LastTwo)
    assert starts_h(policy, [0, 1, 3, 3], [1, 1, 1, 1], [1, 1, 9, 9], [4, 4, 2, 2]) == [0, 1, 3, 4]


def test_an_impossible_window_is_refused_with_a_reason() -> None:
    node = Node(cpus=4, mem_mib=1)
    with pytest.raises(ModelError, match="from 3 to 2 h is not a valid time"):
        Node(cpus=4, mem_mib=1, down=((3, 2),))
    with pytest.raises(ModelError, match="each of its nodes once"):
        Reservation(from_h=0, to_h=1, nodes=(0, 0))
    with pytest.raises(ModelError, match="names node 1; nodes are numbered 0 to 0"):
        cluster_of([node], [Reservation(from_h=0, to_h=1, nodes=(1,))])
    with pytest.raises(ModelError, match="is for eve, who submits no job"):
        cluster_of([node], [Reservation(from_h=0, to_h=1, nodes=(0,), users=("eve",))], USERS)
    twice = cluster_of(
        [node], [Reservation(from_h=0, to_h=2, nodes=(0,)), Reservation(from_h=1, to_h=3, nodes=(0,))]
    )
    with pytest.raises(ModelError, match="node 0 is down or reserved beyond what it has, 1 h after"):
        simulate(workload([0], [1], [[1000, 0, 0]]), twice)
