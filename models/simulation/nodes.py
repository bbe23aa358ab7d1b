"""The cluster a simulation runs on: nodes of different size and speed. Pure."""

from __future__ import annotations

import msgspec
import numpy

from accounting.errors import ModelError
from models.scheduling.room import MILLI, Amounts, Ints


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node, or `count` alike. On a node of speed 2 a job runs half as long; on several, as long as on the slowest.

    Availability over time and reservations are not simulated yet: they would be events that change a room's capacity.
    """

    cpus: float
    mem_mib: int
    gpus: float = 0.0
    speed: float = 1.0
    count: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no node."""
        if self.count < 1 or min(self.cpus, self.mem_mib, self.gpus) < 0 or not 0 < self.speed < float("inf"):
            raise ModelError(
                f"{self} is no node; give counts of at least 1, amounts of at least 0, a speed above 0"
            )

    @property
    def amounts(self) -> Amounts:
        """Its capacity in the units of a room."""
        return round(self.cpus * MILLI), self.mem_mib, round(self.gpus * MILLI)


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity (resources × nodes) and the speed of each node."""

    capacity: Ints
    speeds: tuple[float, ...]


def cluster_of(nodes: list[Node]) -> Cluster:
    """Return the cluster of these nodes."""
    each = [node for node in nodes for _ in range(node.count)]
    if not each:
        raise ModelError("a cluster needs at least one node")
    return Cluster(
        capacity=numpy.array([node.amounts for node in each], dtype=numpy.int64).T.copy(),
        speeds=tuple(node.speed for node in each),
    )
