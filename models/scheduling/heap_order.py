"""The order in which demanders are served, so that small ones do not wait behind all large ones. Pure.

From a patent on scheduling by GPU virtualisation (claim 4; docs/scheduling.md): planned volumes in random order are
made a max-heap, which is read in pre-order. A heap is sorted only from the root to each leaf, so small volumes come
up among large ones; the largest is always first. It sees volumes alone: neither deadlines nor arrivals.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy

from models.scheduling.checks import Floats, Order, amounts_of

Item = TypeVar("Item")


def heap_preorder(volumes: Sequence[float] | Floats, generator: numpy.random.Generator) -> Order:
    """Return the numbers of the demanders in order of priority, given a planned volume each (any unit, ≥ 0).

    Of equal volumes, the one that comes first in the random order counts as the larger.
    """
    checked = amounts_of("planned volumes", volumes)
    shuffled = generator.permutation(len(checked))
    # heapq keeps the least on top, in an array in which node k has its children at 2k + 1 and 2k + 2.
    heap = [(-float(checked[demander]), place) for place, demander in enumerate(shuffled)]
    heapq.heapify(heap)
    return numpy.array([shuffled[heap[node][1]] for node in preorder(len(heap))], dtype=numpy.int64)


def heap_arrangement(
    volume_of: Callable[[Item], float], window_of: Callable[[Item], int], generator: numpy.random.Generator
) -> Callable[[Sequence[Item]], tuple[int, ...]]:
    """Return an arrangement of a queue: from the waiting items, as they stand, to each one's place (0: served first).

    Items of an earlier window are served before those of a later one; the heap orders each window. With one window
    for all, the largest that comes is always first, and small ones may wait for ever. Each call draws anew.
    """

    def arrange(queue: Sequence[Item]) -> tuple[int, ...]:
        windows: dict[int, list[int]] = {}
        for number, item in enumerate(queue):
            windows.setdefault(window_of(item), []).append(number)
        order: list[int] = []
        for window in sorted(windows):
            members = windows[window]
            volumes = [volume_of(queue[number]) for number in members]
            order += [members[rank] for rank in heap_preorder(volumes, generator)]
        return tuple(numpy.argsort(numpy.array(order, dtype=numpy.int64)).tolist())

    return arrange


def preorder(count: int) -> list[int]:
    """Return the nodes of a heap of `count` in pre-order: each node, then all on its left, then all on its right."""
    order: list[int] = []
    ahead = [0]
    while ahead:
        node = ahead.pop()
        if node < count:
            order.append(node)
            ahead += (2 * node + 2, 2 * node + 1)
    return order
