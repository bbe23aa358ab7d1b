"""On which nodes a job goes. Pure: a room and a demand in, parts of nodes out; the room is not changed.

The servers are tried in ascending order of what they have left, which keeps large gaps whole (Algorithm 2, line 8, of
Yang, Hong, Tang: AI computing power cluster scheduling based on task resource demand prediction). «Left» is the sum
over resources of free over the cluster's total; equal nodes come in their own order.
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
    """A way to place. One that never `spans` nodes spares a try to what fits no single node.

    Its jobs have one part each; `promise` in backfill.py relies on it. Where the `fullest` node that holds a job is
    always taken, it is so again by the next one that is alike, as long as it holds that, too.
    """

    place: Place
    fits: Fits
    spans: bool = False
    fullest: bool = True

    def reach(self, room: Room) -> Amounts:
        """Return the most that a job can need of each resource to be placed here."""
        return amounts_of(room.free.sum(axis=1)) if self.spans else room.most


def place_whole(room: Room, demand: Amounts) -> Parts | None:
    """Return the fullest node that holds the whole demand; None where none does."""
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
    """Return the nodes that hold the whole demand, in their order."""
    free = room.free
    fit: Mask = free[0] >= demand[0]
    for row in range(1, len(demand)):
        fit &= free[row] >= demand[row]
    return fit.nonzero()[0]


def place_equal(room: Room, demand: Amounts, nodes: int) -> Parts | None:
    """Return the fullest `nodes` that hold the demand each, as Slurm places a job of several; None: it waits."""
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
    """Return the fullest node that holds all of it, else shares of several, the fullest first; None: it waits.

    A share is of all resources alike, in thousandths, as the x_ij of the paper's objective (13) may be.
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
    """Return which demands some node holds whole."""
    # What is too full for the least of them is left out: on a busy cluster all but one or two nodes.
    nodes = holding(room, amounts_of(demands.min(axis=1)))
    fit: Mask = numpy.logical_or.reduce(_held_by(room.free[:, nodes], demands), axis=0)
    return fit


def _held_by(free: Ints, demands: Ints) -> Mask:
    """Return which of nodes (resources × nodes) holds which demand (resources × jobs) whole: nodes × jobs."""
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
    """Return the way to place where only what no single node of an empty cluster holds goes on several.

    So a job of one node waits for one, as in Slurm, and one of many nodes needs not all of it in one place.
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
    """Return on how many nodes of an empty cluster each demand (resources × jobs) would fit at best, in equal parts."""
    most = numpy.maximum(1, numpy.array(empty.most))[:, None]
    found: Ints = (-(-demands // most)).max(axis=0, initial=1)
    return found


def equal_larger(empty: Room) -> Placement:
    """Return the way to place where what no single node of an empty cluster holds goes on as few as could, equally.

    So Slurm places a job of several nodes, and so planning takes it.
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
    """Return so many thousandths of a demand, rounded up: a node that had no more free has that share again."""
    cpu_milli, mem_mib, gpu_milli = (-(-amount * share // MILLI) for amount in demand)
    return cpu_milli, mem_mib, gpu_milli


WHOLE = Placement(place_whole, fits_whole)
SPREAD = Placement(place_spread, fits_spread, spans=True)
PLACEMENTS: dict[str, Placement] = {"whole": WHOLE, "spread": SPREAD}
