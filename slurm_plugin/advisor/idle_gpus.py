"""How useful the idle GPUs of each node are to the jobs that usually come, and what makes them unusable. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy

from accounting.report.gpu_jobs import Given
from models.gpus.fragmentation import Lost, Usual, lost, usual_of
from models.gpus.placing import with_gpus
from models.scheduling.placement import part_of
from models.scheduling.room import MILLI, PLAIN, Amounts, Ints
from slurm_plugin.advisor.room import ENDLESS_MIB, amounts_of_node, held_parts, less, numbers_of
from slurm_plugin.slurm.snapshot import NodeState, Snapshot

MOST = 0.9


class IdleGpus(msgspec.Struct, frozen=True, kw_only=True):
    """A node with idle GPUs: how many of them an incoming job could use, on average, and what the others lack.

    A GPU that lacks several of CPUs, memory and GPUs (too few are idle there together) counts for the first of them;
    None: it is not known which jobs come. Free amounts are those available to jobs; `cpus_held` are the CPUs on the
    node of jobs that have no GPU there.
    """

    node: str
    gpus: int
    idle: int
    usable: float | None
    lost_for_cpus: float | None
    lost_for_memory: float | None
    lost_for_gpus: float | None
    cpus_free: int
    mem_free_mib: int | None
    cpus_held: int


def usual_among(given: Sequence[Given]) -> Usual:
    """Return the kinds of jobs among past ones; a job on several nodes counts with its part on each."""
    asked = [part_of((each.cpus * MILLI, each.mem_mib, each.gpus * MILLI), each.nodes) for each in given]
    times = [each.attempts * each.nodes for each in given]
    return usual_of(
        numpy.array(asked, dtype=numpy.int64).reshape(-1, PLAIN), numpy.array(times, dtype=numpy.int64)
    )


class BesideGpu(NamedTuple):
    """The CPUs and memory (MiB) per GPU with which most jobs make do."""

    cpus: float
    mem_mib: float


def beside_a_gpu(given: Sequence[Given]) -> BesideGpu | None:
    """Return what MOST of the past jobs with GPUs did not exceed per GPU; None if there were none."""
    if not given:
        return None
    times = numpy.array([each.attempts for each in given])

    def most(per_gpu: list[float]) -> float:
        order = numpy.argsort(per_gpu)
        reached = times[order].cumsum() >= MOST * times.sum()
        return float(per_gpu[int(order[reached.argmax()])])

    return BesideGpu(
        most([each.cpus / each.gpus for each in given]), most([each.mem_mib / each.gpus for each in given])
    )


def idle_gpus(snapshot: Snapshot, usual: Usual) -> list[IdleGpus]:
    """Return the nodes that accept jobs and have idle GPUs, those with the most lost GPUs first."""
    nodes = [node for node in snapshot.nodes if not node.away]
    free, held_milli = _free(nodes, snapshot)
    if not snapshot.terms.memory_counts:
        free[1] = ENDLESS_MIB
    told = lost(with_gpus(free), usual) if len(usual.often) else None
    rows = [
        _row(node, tuple(free[:, place].tolist()), told, place, held_milli[place] // MILLI)
        for place, node in enumerate(nodes)
        if free[2, place] >= MILLI
    ]
    return sorted(rows, key=lambda row: ((row.usable or 0) - row.idle, row.node))


def _row(node: NodeState, free: Amounts, told: Lost | None, place: int, cpus_held: int) -> IdleGpus:
    usable, cpus, memory, gpus = (
        [round(float(part[place]) / MILLI, 2) + 0.0 for part in told] if told else [None] * 4
    )
    return IdleGpus(
        node=node.name,
        gpus=node.gpus,
        idle=free[2] // MILLI,
        usable=usable,
        lost_for_cpus=cpus,
        lost_for_memory=memory,
        lost_for_gpus=gpus,
        cpus_free=free[0] // MILLI,
        mem_free_mib=None if free[1] == ENDLESS_MIB else free[1],
        cpus_held=cpus_held,
    )


def _free(nodes: Sequence[NodeState], snapshot: Snapshot) -> tuple[Ints, Counter[int]]:
    """Return what nodes have free (resources × nodes), and the CPUs of each held by jobs without a GPU there."""
    numbers = numbers_of(snapshot)
    has = [amounts_of_node(node, numbers) for node in nodes]
    free = [*has]
    held_milli = Counter[int]()
    index = {node.name: place for place, node in enumerate(nodes)}
    for _, parts in held_parts(snapshot, numbers, index, free):
        for place, amounts in parts:
            held_milli[place] += 0 if amounts[2] else amounts[0]
    plain = numpy.array(
        [_free_of(*one) for one in zip(nodes, has, free, strict=True)],
        dtype=numpy.int64,
    )
    return plain.reshape(-1, PLAIN).T.copy(), held_milli


def _free_of(node: NodeState, has: Amounts, left: Amounts) -> Amounts:
    """Return what a node has free by Slurm's own count, else `left`, for which jobs share their nodes evenly."""
    if node.held is None:
        return left[:PLAIN]
    cpus, mem_mib, gpus = node.held
    return less(has[:PLAIN], (cpus * MILLI, mem_mib, gpus * MILLI))
