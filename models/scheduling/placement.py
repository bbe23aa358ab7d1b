"""On which nodes a job goes. Pure: a room and a demand in, parts of nodes out; the room is not changed.

Nodes are tried in ascending order of what they have left, which keeps large gaps whole (Algorithm 2, line 8, of Yang,
Hong, Tang: AI computing power cluster scheduling based on task resource demand prediction). What is left is the sum
over resources of free over the cluster's total; equal nodes stay in node order.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy

from models.scheduling.room import MILLI, Amounts, Ints, Mask, Parts, Room, amounts_of

Place = Callable[[Room, Amounts], Parts | None]
# Which of many demands (resources × jobs) could be placed, each by itself.
Fits = Callable[[Room, Ints], Mask]


class Placement(msgspec.Struct, frozen=True):
    """A way to place jobs. One that never `spans` nodes need not try jobs that fit no single node.

    Its jobs have one part each, on which `promise` in backfill.py relies. If always the `fullest` node that holds a
    job is taken, the next job like it takes the same node, as long as that holds it, too.
    """

    place: Place
    fits: Fits
    spans: bool = False
    fullest: bool = True

    def reach(self, room: Room) -> Amounts:
        """Return the most of each resource that a job can need and still be placed here."""
        return amounts_of(room.free.sum(axis=1)) if self.spans else room.most


def place_whole(room: Room, demand: Amounts) -> Parts | None:
    """Return the fullest node that holds the whole demand, or None."""
    if room.is_short(demand):
        return None
    nodes = holding(room, demand)
    if not nodes.size:
        return None
    node = int(nodes[room.left_of(nodes).argmin()])
    return ((node, room.part(node, demand)),)


def holders(room: Room, demand: Amounts) -> set[int]:
    """Return the nodes that hold the whole demand."""
    return set(holding(room, demand).tolist())


def holding(room: Room, demand: Amounts) -> Ints:
    """Return the nodes that hold the whole demand, in node order."""
    free = room.free
    fit: Mask = free[0] >= demand[0]
    for row in range(1, len(demand)):
        fit &= free[row] >= demand[row]
    return fit.nonzero()[0]


def place_equal(room: Room, demand: Amounts, nodes: int) -> Parts | None:
    """Return the fullest `nodes` nodes that each hold the demand, as Slurm places a multi-node job; None: it waits."""
    if nodes == 1:
        return place_whole(room, demand)
    if room.is_short(demand):
        return None
    found = holding(room, demand)
    if len(found) < nodes:
        return None
    fullest = found[numpy.argsort(room.left_of(found), kind="stable")[:nodes]]
    return tuple((node, room.part(node, demand)) for node in sorted(fullest.tolist()))


def place_spread(room: Room, demand: Amounts) -> Parts | None:
    """Return the fullest node that holds all of the demand, else shares on several, the fullest first; None: it waits.

    A share is the same of each resource, in thousandths, as the x_ij of the paper's objective (13) may be.
    """
    whole = place_whole(room, demand)
    if whole is not None:
        return whole
    asked = [(row, amount) for row, amount in enumerate(demand) if amount]
    shares = numpy.min([room.free[row] * MILLI // amount for row, amount in asked], axis=0)
    if shares.sum() < MILLI:
        return None
    parts: list[tuple[int, Amounts]] = []
    placed = 0
    for node in numpy.argsort(room.left, kind="stable").tolist():
        share = min(int(shares[node]), MILLI - placed)
        if share > 0:
            parts.append((node, _share_of(demand, share)))
            placed += share
        if placed == MILLI:
            break
    return tuple(parts)


def fits_whole(room: Room, demands: Ints) -> Mask:
    """Return which demands fit whole on some node."""
    # Nodes too full for the least of the demands are left out: on a busy cluster, all but one or two.
    nodes = holding(room, amounts_of(demands.min(axis=1)))
    fit: Mask = numpy.logical_or.reduce(_held_by(room.free[:, nodes], demands), axis=0)
    return fit


def _held_by(free: Ints, demands: Ints) -> Mask:
    """Return which nodes (resources × nodes) hold which demand (resources × jobs) whole: nodes × jobs."""
    found: Mask = free[0][:, None] >= demands[0]
    for row in range(1, len(demands)):
        found &= free[row][:, None] >= demands[row]
    return found


def fits_equal(room: Room, demands: Ints, nodes: Ints) -> Mask:
    """Return which demands find as many nodes that hold each whole as they need."""
    found = holding(room, amounts_of(demands.min(axis=1)))
    fit: Mask = _held_by(room.free[:, found], demands).sum(axis=0) >= nodes
    return fit


def fits_spread(room: Room, demands: Ints) -> Mask:
    """Return which demands all nodes hold together, in thousandths of each."""
    shares = numpy.full((room.free.shape[1], demands.shape[1]), MILLI)
    for free, asked in zip(room.free, demands, strict=True):
        wanted = asked > 0
        shares[:, wanted] = numpy.minimum(shares[:, wanted], free[:, None] * MILLI // asked[wanted])
    fit: Mask = shares.sum(axis=0) >= MILLI
    return fit


def spread_larger(empty: Room) -> Placement:
    """Return a placement that spreads over several nodes only what no single node of an empty cluster holds.

    So a job of one node waits for one, as in Slurm, and a job of many nodes need not find all of it in one place.
    """
    alone: dict[Amounts, bool] = {}

    def place(room: Room, demand: Amounts) -> Parts | None:
        if demand not in alone:
            alone[demand] = place_whole(empty, demand) is not None
        return place_whole(room, demand) if alone[demand] else place_spread(room, demand)

    def fits(room: Room, demands: Ints) -> Mask:
        return fits_whole(room, demands) | (fits_spread(room, demands) & ~fits_whole(empty, demands))

    return Placement(place, fits, spans=True)


def fewest_nodes(empty: Room, demands: Ints) -> Ints:
    """Return on how many nodes of an empty cluster each demand (resources × jobs) fits at best, in equal parts."""
    most = numpy.maximum(1, numpy.array(empty.most))[:, None]
    found: Ints = (-(-demands // most)).max(axis=0, initial=1)
    return found


def equal_larger(empty: Room) -> Placement:
    """Return a placement that splits what no node of an empty cluster holds equally over as few nodes as possible.

    Slurm places multi-node jobs like this, and planning assumes it.
    """
    known: dict[Amounts, int] = {}

    def place(room: Room, demand: Amounts) -> Parts | None:
        if demand not in known:
            known[demand] = int(fewest_nodes(empty, numpy.array(demand)[:, None])[0])
        return place_equal(room, part_of(demand, known[demand]), known[demand])

    def fits(room: Room, demands: Ints) -> Mask:
        nodes = fewest_nodes(empty, demands)
        return fits_equal(room, -(-demands // nodes), nodes)

    return Placement(place, fits, spans=True)


def part_of(demand: Amounts, nodes: int) -> Amounts:
    """Return what a job needs on each of its nodes."""
    if nodes == 1:
        return demand
    return tuple(-(-amount // nodes) for amount in demand)


def _share_of(demand: Amounts, share: int) -> Amounts:
    """Return `share` thousandths of a demand, rounded up so that a node with just this amount free has that share."""
    cpu_milli, mem_mib, gpu_milli = (-(-amount * share // MILLI) for amount in demand)
    return cpu_milli, mem_mib, gpu_milli


WHOLE = Placement(place_whole, fits_whole)
SPREAD = Placement(place_spread, fits_spread, spans=True)
PLACEMENTS: dict[str, Placement] = {"whole": WHOLE, "spread": SPREAD}
