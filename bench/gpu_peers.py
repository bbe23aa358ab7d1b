"""Placements of jobs on shared GPUs with which fragmentation gradient descent is compared, as in its paper.

Each scores the nodes that can hold a job, less is better, and takes a share from the fullest GPU that can hold it; ties
are broken at random. They are those of the paper's simulator (hkust-adsl/kubernetes-scheduler-simulator): best fit over
CPUs and GPUs, the smallest dot product, used GPUs before used nodes before free ones (packing), nodes of jobs that want
as many GPUs (clustering), and random. There, scores are whole numbers from 0 to 100, so that more nodes tie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy

from models.gpus.fragmentation import CPU, GPU, wanted_of
from models.gpus.placing import holding_gpus, part_on
from models.scheduling.placement import Place
from models.scheduling.room import MILLI, PLAIN, Amounts, Floats, Ints, Parts, Room

Score = Callable[[Room, Ints, Amounts], Floats]


def peers(capacity: Ints, seed: int) -> dict[str, Place]:
    """Return the placements by name, for a cluster of this capacity (rows × nodes, with GPUs listed separately)."""
    most_cpu, most_gpu = int(capacity[CPU].max()), int(capacity[GPU].max())
    clusters = _Clusters(capacity)

    def best_fit(room: Room, nodes: Ints, demand: Amounts) -> Floats:
        cpu_left, gpu_left = room.free[CPU, nodes] - demand[CPU], room.free[GPU, nodes] - demand[GPU]
        found: Floats = cpu_left / most_cpu + gpu_left / most_gpu
        return found

    def dot_product(room: Room, nodes: Ints, demand: Amounts) -> Floats:
        cpu, gpu = room.free[CPU, nodes] / most_cpu, room.free[GPU, nodes] / most_gpu
        found: Floats = cpu * (demand[CPU] / most_cpu) + gpu * (demand[GPU] / most_gpu)
        return found

    scores: dict[str, Score] = {
        "best fit": best_fit,
        "packing": lambda room, nodes, demand: _packing(room, capacity, nodes, demand),
        "clustering": clusters.score,
        "dot product": dot_product,
        "random": lambda room, nodes, demand: numpy.zeros(len(nodes)),  # noqa: ARG005
    }
    return {
        name: _by(score, seed, clusters if name == "clustering" else None) for name, score in scores.items()
    }


def _by(score: Score, seed: int, clusters: _Clusters | None) -> Place:
    draw = numpy.random.default_rng(seed)

    def place(room: Room, demand: Amounts) -> Parts | None:
        nodes = holding_gpus(room, demand)
        if not nodes.size:
            return None
        found = score(room, nodes, demand)
        equal = nodes[found <= found.min() + 1e-12]
        node = int(equal[draw.integers(len(equal))])
        if clusters is not None:
            clusters.placed(node, demand)
        return ((node, part_on(room, node, demand)),)

    return place


def _packing(room: Room, capacity: Ints, nodes: Ints, demand: Amounts) -> Floats:
    """Return a score below 1 for nodes whose used GPUs suffice, below 2 for used nodes, else below 3."""
    wanted = wanted_of(demand[GPU])
    devices, whole = room.free[PLAIN:, nodes], capacity[PLAIN:, nodes]
    order = numpy.sort(numpy.where(devices >= wanted.share_milli, devices, 2 * MILLI), axis=0)[: wanted.gpus]
    free_gpus = (devices == MILLI).sum(axis=0)
    new = (order == MILLI).sum(axis=0)
    unused = free_gpus == (whole > 0).sum(axis=0)
    on_used: Floats = order.sum(axis=0) / (10.0 * MILLI * MILLI)
    found: Floats = numpy.where(new > 0, 1 + new / 100, on_used)
    found[unused] = 2 + free_gpus[unused] / 100
    return found


class _Clusters:
    """Which kinds of jobs, by the GPUs that they want, are on each node."""

    def __init__(self, capacity: Ints) -> None:
        self._kinds = [Counter[tuple[int, bool]]() for _ in range(capacity.shape[1])]
        self._most_gpu = float(capacity[GPU].max())

    def score(self, room: Room, nodes: Ints, demand: Amounts) -> Floats:
        """Return a score of four steps: only that kind, that kind among others, none, only others; fullest first."""
        kind = _kind(demand)
        if kind is None:
            return numpy.zeros(len(nodes))
        steps = []
        for node in nodes.tolist():
            known = self._kinds[node]
            steps.append((0 if len(known) == 1 else 1) if kind in known else (3 if known else 2))
        found: Floats = numpy.array(steps) + room.free[GPU, nodes] / (self._most_gpu + 1)
        return found

    def placed(self, node: int, demand: Amounts) -> None:
        """Note where a job went."""
        kind = _kind(demand)
        if kind is not None:
            self._kinds[node][kind] += 1


def _kind(demand: Amounts) -> tuple[int, bool] | None:
    wanted = wanted_of(demand[GPU])
    return (wanted.gpus, wanted.share_milli < MILLI) if wanted.gpus else None
