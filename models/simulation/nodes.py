"""The cluster of a simulation: nodes of different size and speed, when they are there, and for which users. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy

from accounting.errors import ModelError
from models.gpus.placing import with_gpus
from models.scheduling.availability import Availability, Window
from models.scheduling.room import MILLI, PLAIN, Amounts, Ints, amounts_of

HOUR_S = 3600.0
# No node or job has this much of anything: in thousandths, and over thousands of nodes, it would overflow an integer.
MOST_AMOUNT = 2.0**40
# Ten times the largest clusters that exist.
MOST_NODES = 1_000_000
# From and to, in hours after a simulation's start; infinite: it never comes back.
Hours = tuple[float, float]
# The same in seconds.
Span = tuple[float, float]


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node, or `count` equal ones. At speed 2 a job runs half as long; on several nodes, the slowest one counts.

    `down` has the times at which the node is not there, which are known beforehand. `owner` has the times at which
    its owner has it, which nobody knows before they begin: what runs there then is interrupted. Times before 0 tell
    the owner's habits. Kinds of jobs may have a speed of their own on each `device`.
    """

    cpus: float
    mem_mib: int
    gpus: float = 0.0
    speed: float = 1.0
    count: int = 1
    down: tuple[Hours, ...] = ()
    device: str = ""
    owner: tuple[Hours, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no node."""
        amounts = (self.cpus, self.mem_mib, self.gpus)
        if (
            not 1 <= self.count <= MOST_NODES
            or not are_amounts(*amounts)
            or not 0 < self.speed < float("inf")
        ):
            raise ModelError(
                f"{self} is not a valid node; give counts of 1 to {MOST_NODES}, amounts of at least 0, "
                "a speed above 0"
            )
        for hours in self.down:
            check_hours("down", hours)
        check_owner(self)

    @property
    def amounts(self) -> Amounts:
        """Its capacity in the units of a room."""
        return _units(self.cpus, self.mem_mib, self.gpus)


class Reservation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes that are held for a time: for users or, as for maintenance, for nobody.

    `nodes` are numbers in the order of the file, from 0. It holds these amounts of each node; all of it if none is
    given.
    """

    from_h: float
    to_h: float
    nodes: tuple[int, ...]
    cpus: float = 0.0
    mem_mib: int = 0
    gpus: float = 0.0
    users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no reservation."""
        check_hours("a reservation", (self.from_h, self.to_h))
        amounts = (self.cpus, self.mem_mib, self.gpus)
        if not are_amounts(*amounts) or not self.nodes or len(set(self.nodes)) < len(self.nodes):
            raise ModelError(
                f"{self} is not a valid reservation; give each of its nodes once, and amounts of at least 0"
            )

    def amounts(self, capacity: Amounts) -> Amounts:
        """Return what it holds of a node."""
        held = _units(self.cpus, self.mem_mib, self.gpus)
        return held if any(held) else capacity


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity (resources × nodes) and the speed of each node; what nodes lack at times; who may use each, None: all.

    If single GPUs are told apart, each has a row after the resources. The first `own` columns are nodes. After them
    come the parts of nodes that are reserved for users (availability.py); `part_of` has the node of each part.
    `devices` has one entry per column. `owners` has, for each node with an owner, the times (seconds) at which the
    owner has it.
    """

    capacity: Ints
    speeds: tuple[float, ...]
    windows: tuple[Window, ...] = ()
    part_of: tuple[int, ...] = ()
    only_for: tuple[frozenset[int] | None, ...] = ()
    devices: tuple[str, ...] = ()
    owners: Mapping[int, tuple[Span, ...]] = {}

    @property
    def own(self) -> int:
        """How many nodes there are."""
        return len(self.speeds) - len(self.part_of)

    @property
    def total(self) -> Amounts:
        """What all nodes have."""
        return amounts_of(self.capacity[:PLAIN, : self.own].sum(axis=1))

    def availability(self) -> Availability | None:
        """Return the windows for a simulation; None if there are none."""
        if not self.windows:
            return None
        return Availability(self.capacity, self.total, self.windows, self.only_for)


def are_amounts(*amounts: float) -> bool:
    """Whether these are amounts of something: a TOML file may also contain nan, inf, or bytes for MiB."""
    return all(0 <= amount < MOST_AMOUNT for amount in amounts)


def check_hours(what: str, hours: Hours) -> None:
    """Refuse hours with no time in between."""
    if not 0 <= hours[0] < hours[1]:
        raise ModelError(
            f"{what} from {hours[0]:g} to {hours[1]:g} h is not a valid time; give hours after the start"
        )


def check_owner(node: Node) -> None:
    """Refuse an owner's times that are none, or not in order, or on a node that has `down` times, too."""
    ends = [-float("inf"), *(to_h for _, to_h in node.owner)]
    if not all(end_h <= from_h < to_h for end_h, (from_h, to_h) in zip(ends, node.owner, strict=False)):
        raise ModelError(
            f"owner = {[list(hours) for hours in node.owner]} are no times one after the other; "
            "give pairs of hours, the earliest first, below 0 for what was before"
        )
    if node.owner and node.down:
        raise ModelError(
            "a node has both `owner` and `down`; put times that are known beforehand on another node"
        )


def cluster_of(
    nodes: list[Node],
    reservations: Sequence[Reservation] = (),
    users: Mapping[str, frozenset[int]] | None = None,
    *,
    single_gpus: bool = False,
) -> Cluster:
    """Return the cluster of these nodes; `users` maps the names in reservations to users."""
    each = [node for node in nodes for _ in range(node.count)]
    if not each:
        raise ModelError("a cluster needs at least one node")
    columns = [node.amounts for node in each]
    windows = [
        _window(number, hours, node.amounts) for number, node in enumerate(each) for hours in node.down
    ]
    part_of: list[int] = []
    only_for: list[frozenset[int] | None] = [None] * len(each)
    for reservation in reservations:
        holders = _holders(reservation, users or {})
        for node in reservation.nodes:
            if not 0 <= node < len(each):
                raise ModelError(f"a reservation names node {node}; nodes are numbered 0 to {len(each) - 1}")
            if each[node].owner:
                raise ModelError(
                    f"a reservation names node {node}, which its owner may take; name other nodes"
                )
            amounts = reservation.amounts(each[node].amounts)
            windows.append(_window(node, (reservation.from_h, reservation.to_h), amounts))
            if holders:
                windows += _absent(len(columns), reservation, amounts)
                columns.append(amounts)
                part_of.append(node)
                only_for.append(holders)
    capacity = numpy.array(columns, dtype=numpy.int64).T.copy()
    return Cluster(
        capacity=with_gpus(capacity) if single_gpus else capacity,
        speeds=tuple(node.speed for node in each) + tuple(each[node].speed for node in part_of),
        windows=tuple(windows),
        part_of=tuple(part_of),
        only_for=tuple(only_for),
        devices=tuple(node.device for node in each) + tuple(each[node].device for node in part_of),
        owners={
            number: tuple((from_h * HOUR_S, to_h * HOUR_S) for from_h, to_h in node.owner)
            for number, node in enumerate(each)
            if node.owner
        },
    )


def _holders(reservation: Reservation, users: Mapping[str, frozenset[int]]) -> frozenset[int]:
    for name in reservation.users:
        if name not in users:
            known = ", ".join(list(users)[:10])
            raise ModelError(f"a reservation is for {name}, who submits no job; choose one of {known}")
    return frozenset().union(*(users[name] for name in reservation.users))


def _absent(column: int, reservation: Reservation, amounts: Amounts) -> list[Window]:
    """Return the windows in which a reserved part is not there: before and after."""
    before, after = (0.0, reservation.from_h), (reservation.to_h, float("inf"))
    return [_window(column, hours, amounts) for hours in (before, after) if hours[0] < hours[1]]


def _window(node: int, hours: Hours, amounts: Amounts) -> Window:
    return Window(node=node, from_s=hours[0] * HOUR_S, to_s=hours[1] * HOUR_S, amounts=amounts)


def _units(cpus: float, mem_mib: int, gpus: float) -> Amounts:
    return round(cpus * MILLI), mem_mib, round(gpus * MILLI)
