"""The benchmark of deadlines on a cloud and idle servers: its load, its bound, and what it must show on real jobs."""

from __future__ import annotations

import numpy
import pytest

from bench.edge_bound import most_in_time
from bench.edge_deadlines import ALONE, BOUND, OURS, Found, Measured, cloud_of, goals, measure, rows
from bench.edge_loads import (
    CLOUD,
    CLOUD_NODES,
    EDGE,
    GPUS_A_NODE,
    JOBS,
    OWNERS,
    THROUGHPUTS,
    EdgeLoad,
    owners_file,
    read_edge_load,
)
from models.simulation.nodes import Node, cluster_of
from models.simulation.workload import workload
from tests.traces import TRACES, needs_traces

FILES = (JOBS, THROUGHPUTS, *map(owners_file, OWNERS))
on_traces = needs_traces(*FILES)


def small(deadlines_s: list[float]) -> EdgeLoad:
    """Jobs of eight GPUs and 120 s at the start, and a node of each kind; at first the owner uses the slow one."""
    jobs = workload(
        [0.0] * len(deadlines_s),
        [120.0] * len(deadlines_s),
        [[8000, 0, 8000]] * len(deadlines_s),
        deadline_s=deadlines_s,
    )
    node = {"cpus": 8.0, "gpus": 8.0}
    nodes = [Node(mem_mib=0, device=CLOUD, **node), Node(mem_mib=0, device=EDGE, owner=((-1, 0.1),), **node)]  # type: ignore[arg-type]
    return EdgeLoad(
        jobs=jobs,
        profiles=({CLOUD: 1.0, EDGE: 0.5},),
        expected_s=jobs.run_s,
        cluster=cluster_of(nodes),
    )


@pytest.mark.parametrize(
    ("deadlines_s", "share"),
    [
        ([120.0], 1.0),
        ([120.0, 120.0], 0.5),
        ([120.0, 180.0], 0.75),  # half of the second job is done, which no schedule can achieve
        ([240.0, 240.0], 1.0),
        ([240.0, 240.0, 240.0], 2 / 3),
        ([360.0] * 4, 3 / 4),  # the owner leaves at 360 s
        ([600.0] * 6, 1.0),  # five on the fast node, and one in the 240 s that are left of the slow one
        ([600.0] * 7, 6 / 7),
    ],
)
def test_the_bound_is_that_worked_out_by_hand(deadlines_s: list[float], share: float) -> None:
    assert most_in_time(small(deadlines_s)) == pytest.approx(share)


def test_goals_are_those_worked_out_by_hand() -> None:
    def seeds(*in_time: float) -> list[Measured]:
        return [Measured(one, one / 2, 0.5, 1, 10.0) for one in in_time]

    found: Found = {
        (1.0, OURS): seeds(0.8, 0.6),
        (1.0, ALONE): seeds(0.7, 0.7),
        (1.0, BOUND): seeds(1.0, 1.0),
        (1.0, "a"): seeds(0.4, 0.75),
        (1.0, "b"): seeds(0.5, 0.5),
    }
    assert [(row["measured"], row["met"]) for row in goals(found)] == [
        (round(0.7 / 0.575, 3), "yes"),
        (0.8, "no"),
        (1.0, "yes"),
        (1.0, "yes"),
    ]
    assert [row["policy"] for row in rows(found)] == [BOUND, OURS, ALONE, "a", "b"]
    assert rows(found)[1]["worst seed"] == 60.0


@on_traces
def test_the_load_has_the_stated_properties() -> None:
    load = read_edge_load(TRACES, 1.0, 5)
    jobs, cluster = load.jobs, load.cluster
    asked = float((jobs.asked[:, 2] / 1000 * jobs.run_s).sum())
    assert asked / (jobs.submit_s[-1] * CLOUD_NODES * GPUS_A_NODE) == pytest.approx(1.0, abs=0.2)
    assert (jobs.deadline_s > jobs.submit_s + jobs.run_s).all()
    assert cluster.devices.count(CLOUD) == CLOUD_NODES
    assert len(cluster.owners) == cluster.devices.count(EDGE) == 64
    assert all(profile[CLOUD] == 1 > profile[EDGE] > 0 for profile in load.profiles)
    assert numpy.array_equal(read_edge_load(TRACES, 1.0, 5).jobs.submit_s, jobs.submit_s)
    patient = read_edge_load(TRACES, 1.0, 5, patience=2.0).jobs
    spare_s = jobs.deadline_s - jobs.submit_s - jobs.run_s
    assert patient.deadline_s == pytest.approx(jobs.deadline_s + spare_s)
    assert len(cloud_of(cluster).speeds) == CLOUD_NODES


@on_traces
def test_more_jobs_are_in_time_than_under_any_peer_and_no_more_than_possible() -> None:
    found = dict(measure(read_edge_load(TRACES, 1.2, 4)))
    peers = [one.in_time for name, one in found.items() if name not in {OURS, ALONE, BOUND}]
    assert max(peers) * 1.05 < found[OURS].in_time <= found[BOUND].in_time
    assert all(one <= found[BOUND].in_time for one in peers)
    assert found[OURS].edge_used > 0.2
    assert found[ALONE].edge_used == 0
