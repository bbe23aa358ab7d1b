"""Loads and clusters for the tests of the simulator: small whole numbers, so that events often coincide."""

from __future__ import annotations

import numpy
from hypothesis import strategies as st

from models.scheduling.room import Amounts
from models.simulation.nodes import Cluster, Node, cluster_of
from models.simulation.results import Results
from models.simulation.workload import Workload, workload

Job = tuple[int, int, int, int, int, int, int]

# Gap to the job before, run, limit beyond the run, CPUs, memory, GPU share, user.
jobs_strategy = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(1, 12),
        st.integers(0, 10),
        st.integers(1, 9),
        st.integers(0, 20),
        st.sampled_from([0, 0, 0, 250, 1000, 2000]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=40,
)
nodes_strategy = st.lists(
    st.builds(
        Node,
        cpus=st.integers(1, 8),
        mem_mib=st.integers(4, 20),
        gpus=st.integers(0, 2),
        speed=st.sampled_from([1.0, 1.0, 2.0]),
    ),
    min_size=1,
    max_size=4,
)


def load_of(jobs: list[Job], unit_s: float = 1.0) -> Workload:
    """Return the workload of drawn jobs, with times in units of `unit_s`."""
    gaps, runs, spare, cpus, mem_mib, gpu_milli, users = zip(*jobs, strict=True)
    run_s = numpy.array(runs) * unit_s
    return workload(
        numpy.cumsum(gaps) * unit_s,
        run_s,
        [[cpu * 1000, mem, gpu] for cpu, mem, gpu in zip(cpus, mem_mib, gpu_milli, strict=True)],
        limit_s=run_s + numpy.array(spare) * unit_s,
        user=users,
    )


def most_held(results: Results, cluster: Cluster) -> bool:
    """Whether no node ever held more than it has, worked out again from the runs and windows alone."""
    changes: list[tuple[float, int, int, Amounts]] = []
    for window in cluster.windows:
        amounts = window.amounts
        changes.append((window.from_s, 1, window.node, amounts))
        changes.append((window.to_s, 0, window.node, (-amounts[0], -amounts[1], -amounts[2])))
    for run in results.runs:
        for node, amounts in run.parts:
            changes.append((run.start_s, 1, node, amounts))
            changes.append((run.end_s, 0, node, (-amounts[0], -amounts[1], -amounts[2])))
    held = numpy.zeros_like(cluster.capacity)
    for _, _, node, amounts in sorted(changes):
        held[:, node] += amounts
        if (held[:, node] > cluster.capacity[:, node]).any():
            return False
    return True


def even_cluster(count: int, cpus: int = 8, mem_mib: int = 64, gpus: int = 2) -> Cluster:
    """Return a cluster of equal nodes."""
    return cluster_of([Node(cpus=cpus, mem_mib=mem_mib, gpus=gpus, count=count)])
