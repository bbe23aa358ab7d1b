"""A made-up load for measuring the simulator: seeded, with a given pressure on the scarcest resource. Not a site's."""

from __future__ import annotations

import numpy

from models.simulation.nodes import Cluster, Node, cluster_of
from models.simulation.workload import Workload, workload

SEED = 20260101
USERS = 100
NODE = Node(cpus=64, mem_mib=256 * 1024, gpus=4)


def even_cluster(nodes: int) -> Cluster:
    """Return a cluster of nodes of 64 CPUs, 256 GiB and 4 GPUs."""
    return cluster_of([NODE] * nodes)


def made_up_load(jobs: int, cluster: Cluster, pressure: float) -> Workload:
    """Return jobs that ask for `pressure` times the cluster's capacity of its scarcest resource while they arrive.

    They have a few sizes of CPUs and GPUs, any memory, run times over four powers of ten, and limits of one to ten
    times those.
    """
    draw = numpy.random.default_rng(SEED)
    cpus = draw.choice([1, 2, 4, 8, 16, 32], jobs, p=[0.3, 0.2, 0.2, 0.15, 0.1, 0.05]) * 1000
    mem_mib = draw.lognormal(9, 1.2, jobs).clip(256, 250_000).astype(numpy.int64)
    gpus = draw.choice([0, 250, 500, 1000, 2000], jobs, p=[0.7, 0.05, 0.05, 0.15, 0.05])
    run_s = draw.lognormal(6, 1.5, jobs).clip(10, 86_400)
    asked = numpy.stack([cpus, mem_mib, gpus], axis=1)
    busy_s = (asked * run_s[:, None]).sum(axis=0) / cluster.capacity.sum(axis=1)
    return workload(
        numpy.sort(draw.uniform(0, float(busy_s.max()) / pressure, jobs)),
        run_s,
        asked,
        limit_s=run_s * draw.choice([1.0, 2.0, 5.0, 10.0], jobs),
        user=draw.integers(0, USERS, jobs),
    )
