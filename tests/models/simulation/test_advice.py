"""Advice in a simulation: when it is asked for, what it is told, and what its keys do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy
from hypothesis import given, settings

from models.simulation.engine import Hooks, Policy, simulate
from models.simulation.hooks import Moving
from models.simulation.nodes import Node, cluster_of
from models.simulation.workload import workload
from tests.models.simulation.loads import Job, jobs_strategy, load_of, nodes_strategy

ONE_CPU = cluster_of([Node(cpus=1, mem_mib=100)])
CPU = (1000, 1, 0)


class Noted:
    """Advice that records what it is told, and returns the keys it was made with."""

    def __init__(self, keys: Mapping[int, float], period_s: float = 10.0) -> None:
        self.period_s = period_s
        self.told: list[tuple[str, int, float]] = []
        self.asked: list[tuple[float, dict[int, float], list[Moving]]] = []
        self._keys = keys

    def came(self, number: int, now_s: float) -> None:
        self.told.append(("came", number, now_s))

    def ended(self, number: int, now_s: float, start_s: float) -> None:
        self.told.append(("ended", number, now_s - start_s))

    def keys(self, now_s: float, waiting: Mapping[int, float], running: list[Moving]) -> Mapping[int, float]:
        self.asked.append((now_s, dict(waiting), running))
        return {number: key for number, key in self._keys.items() if number in waiting}


def test_keys_move_waiting_jobs_and_later_arrivals_keep_their_own() -> None:
    jobs = workload([0, 1, 2, 30], [50, 10, 10, 10], [CPU] * 4)
    advice = Noted({1: 40.0, 2: 20.0})
    found = simulate(jobs, ONE_CPU, Policy(start="easy"), Hooks(advice=advice))
    # Job 3 arrives with key 30: behind job 2, which was given 20, and before job 1, which was given 40.
    assert found.start_s.tolist() == [0, 70, 50, 60]


def test_advice_is_asked_once_per_period_and_only_where_something_changed() -> None:
    jobs = workload([0, 1, 2, 3, 500], [400, 10, 10, 10, 10], [CPU] * 5)
    advice = Noted({}, period_s=100.0)
    simulate(jobs, ONE_CPU, Policy(start="easy"), Hooks(advice=advice))
    # Job 1 waits from 1 on; 2 and 3 came within the period, which is over at 101. Then nothing changes until 400.
    assert [at_s for at_s, _, _ in advice.asked] == [1, 101, 400]
    assert advice.asked[0][1] == {1: 1.0}
    assert advice.asked[1][1] == {1: 1.0, 2: 2.0, 3: 3.0}
    assert [(each.number, each.start_s) for each in advice.asked[1][2]] == [(0, 0.0)]


def test_advice_learns_of_every_arrival_and_every_end() -> None:
    jobs = workload([0, 1], [5, 7], [CPU] * 2)
    advice = Noted({})
    simulate(jobs, ONE_CPU, Policy(start="easy"), Hooks(advice=advice))
    assert advice.told == [("came", 0, 0.0), ("came", 1, 1.0), ("ended", 0, 5.0), ("ended", 1, 7.0)]


@settings(max_examples=50, deadline=None)
@given(jobs_strategy, nodes_strategy)
def test_advice_that_moves_nothing_changes_nothing(drawn: list[Job], nodes: list[Node]) -> None:
    jobs, cluster = load_of(drawn), cluster_of(nodes)
    plain = simulate(jobs, cluster, Policy(start="easy"))
    advised = simulate(jobs, cluster, Policy(start="easy"), Hooks(advice=Noted({}, period_s=1.0)))
    numpy.testing.assert_array_equal(plain.start_s, advised.start_s)


def test_of_jobs_that_do_not_delay_the_first_the_shortest_is_backfilled_first() -> None:
    """Two CPUs: job 0 has one until 100, job 1 needs both. Jobs 2 and 3 each fit on the other CPU; 3 is the shorter."""
    cluster = cluster_of([Node(cpus=2, mem_mib=100)])
    asked = [CPU, CPU, (2000, 1, 0), CPU, CPU]
    jobs = workload([0, 0, 1, 2, 3], [100, 10, 10, 60, 20], asked, limit_s=[100, 10, 10, 60, 20])
    starts = {
        start: simulate(jobs, cluster, Policy(start=start)).start_s.tolist()
        for start in ("easy", "easy shortest")
    }
    assert starts == {"easy": [0, 0, 100, 10, 70], "easy shortest": [0, 0, 100, 30, 10]}
