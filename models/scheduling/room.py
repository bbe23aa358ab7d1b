"""What is free on each node, in whole units, so that sums neither drift nor depend on their order.

This is a cluster's state as placement sees it. It decides nothing. Free amounts never fall below 0: taking what does
not fit raises ModelError, as the caller must have looked at another room.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import gt, neg

import numpy
import numpy.typing as npt

from accounting.errors import ModelError

Ints = npt.NDArray[numpy.int64]
Floats = npt.NDArray[numpy.float64]
Mask = npt.NDArray[numpy.bool_]
# CPUs in thousandths, memory in MiB, GPUs in thousandths (a share of a GPU is a part of 1000). If GPU types are told
# apart, the number of GPUs of each type follows. After that comes one amount per bound: how much of a node the jobs
# under that bound may take together.
Amounts = tuple[int, ...]
# A job on its nodes: which node, and how much of it.
Parts = tuple[tuple[int, Amounts], ...]

RESOURCES = ("cpu_milli", "mem_mib", "gpu_milli")
PLAIN = len(RESOURCES)
MILLI = 1000
# Up to one in this many nodes is few: those are computed by themselves.
FEW = 8


class Room:
    """Free amounts of nodes (resources × nodes), and what placement asks of them.

    `total` is what the cluster has in all; 0 for a bound, which is no resource. Demands have as many rows as `total`.
    GPU shares are of all GPUs of a node together, unless `free` has further rows, one for each GPU of a node. Then
    parts say which GPUs they take from, and the code that places looks at those rows (models/gpus).
    """

    def __init__(self, free: Ints, total: Amounts) -> None:
        self.free = free
        self.total = total
        # A resource that the cluster lacks does not affect the order.
        self._weights = tuple(1.0 / amount if amount else 0.0 for amount in total[:PLAIN])
        self._left: Floats | None = None
        self._most: Amounts | None = None

    @classmethod
    def of(cls, capacity: Ints) -> Room:
        """Return the room of an empty cluster of this capacity (resources × nodes)."""
        return cls(capacity.copy(), amounts_of(capacity.sum(axis=1)))

    def copy(self) -> Room:
        """Return an independent copy."""
        return Room(self.free.copy(), self.total)

    def within(self, first: Room, *others: Room) -> Room:
        """Return a room in which each node has free what it has in all of these rooms."""
        free = numpy.minimum(self.free, first.free)
        for other in others:
            numpy.minimum(free, other.free, out=free)
        return Room(free, self.total)

    @property
    def left(self) -> Floats:
        """What each node has left: the sum over resources of free over the cluster's total."""
        if self._left is None:
            cpu, mem, gpu = self._weights
            self._left = cpu * self.free[0] + mem * self.free[1] + gpu * self.free[2]
        return self._left

    def left_of(self, nodes: Ints) -> Floats:
        """Return what these nodes have left; for few nodes it is computed for them alone."""
        if self._left is None and FEW * len(nodes) <= self.free.shape[1]:
            cpu_free, mem_free, gpu_free = self.free[:PLAIN].take(nodes, axis=1)
            cpu, mem, gpu = self._weights
            some: Floats = cpu * cpu_free + mem * mem_free + gpu * gpu_free
            return some
        return self.left.take(nodes)

    @property
    def most(self) -> Amounts:
        """The most that is free of each resource on any node: a job that needs more fits on none."""
        if self._most is None:
            self._most = amounts_of(self.free[: len(self.total)].max(axis=1))
        return self._most

    def is_short(self, demand: Amounts) -> bool:
        """Whether it is known already that no node holds a demand; finding out costs as much as looking for one."""
        return self._most is not None and exceeds(demand, self._most)

    def part(self, node: int, demand: Amounts) -> Amounts:
        """Return what a demand takes of a node that holds it."""
        if len(demand) == PLAIN:
            return demand
        return typed(demand, self.free[:, node].tolist(), self.total)

    def take(self, parts: Parts) -> None:
        """Take a job's parts; ModelError if they do not fit."""
        for node, amounts in parts:
            if self._change(node, *map(neg, amounts)) < 0:
                raise ModelError(
                    f"node {node} is too full for {parts}; a policy placed a job where it does not fit"
                )

    def holds(self, parts: Parts) -> bool:
        """Whether a job's parts could be taken."""
        return not any(exceeds(amounts, amounts_of(self.free[:, node])) for node, amounts in parts)

    def give(self, parts: Parts) -> None:
        """Give a job's parts back."""
        for node, amounts in parts:
            self._change(node, *amounts)

    def _change(self, node: int, cpu_milli: int, mem_mib: int, gpu_milli: int, *types: int) -> int:
        """Change what a node has free, and return the least amount that it has then."""
        free = self.free
        cpu_free, mem_free, gpu_free = amounts_of(free[:PLAIN, node])
        cpu, mem, gpu = cpu_free + cpu_milli, mem_free + mem_mib, gpu_free + gpu_milli
        free[0, node], free[1, node], free[2, node] = cpu, mem, gpu
        if self._left is not None:
            weights = self._weights
            self._left[node] = weights[0] * cpu + weights[1] * mem + weights[2] * gpu
        self._most = None
        if not types:
            return min(cpu, mem, gpu)
        free[PLAIN:, node] += types
        return min(cpu, mem, gpu, *amounts_of(free[PLAIN:, node]))


def amounts_of(values: Ints) -> Amounts:
    """Return values as plain integers."""
    return tuple(values.tolist())


def typed(demand: Amounts, free: Sequence[int], total: Sequence[int]) -> Amounts:
    """Return a demand with its GPUs of any type assigned to the first types that a node has free.

    `total` is as in Room: a row with total 0 is not a type.
    """
    left = demand[2] - sum(compress(demand[PLAIN:], total[PLAIN:]))
    taken = []
    for asked, has, whole in zip(demand[PLAIN:], free[PLAIN:], total[PLAIN:], strict=True):
        more = max(0, min(left, has - asked)) if whole else 0
        taken.append(asked + more)
        left -= more
    return (*demand[:PLAIN], *taken)


def exceeds(amounts: Sequence[int], limit: Sequence[int]) -> bool:
    """Whether any of the amounts is above its limit."""
    if amounts[0] > limit[0] or amounts[1] > limit[1] or amounts[2] > limit[2]:
        return True
    return len(amounts) > PLAIN and any(map(gt, amounts[PLAIN:], limit[PLAIN:]))
