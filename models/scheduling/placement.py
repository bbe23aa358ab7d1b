"""On which nodes a job goes. Pure: a room and a demand in, parts of nodes out; the room is not changed.

The servers are tried in ascending order of what they have left, which keeps large gaps whole (Algorithm 2, line 8, of
Yang, Hong, Tang: AI computing power cluster scheduling based on task resource demand prediction). «Left» is the sum
over resources of free over the cluster's total; equal nodes come in their own order.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy

from models.scheduling.room import MILLI, Amounts, Ints, Mask, Parts, Room, amounts_of, exceeds

Place = Callable[[Room, Amounts], Parts | None]
# Which of many demands (resources × jobs) could be placed, each by itself.
Fits = Callable[[Room, Ints], Mask]


class Placement(msgspec.Struct, frozen=True):
    """A way to place. One that never `spans` nodes spares a try to what fits no single node.

    Its jobs have one part each; `promise` in backfill.py relies on it.
    """

    place: Place
    fits: Fits
    spans: bool = False

    def reach(self, room: Room) -> Amounts:
        """Return the most that a job can need of each resource to be placed here."""
        return amounts_of(room.free.sum(axis=1)) if self.spans else room.most


def place_whole(room: Room, demand: Amounts) -> Parts | None:
    """Return the fullest node that holds the whole demand; None where none does."""
    if exceeds(demand, room.most):
        return None
    free = room.free
    nodes = ((free[0] >= demand[0]) & (free[1] >= demand[1]) & (free[2] >= demand[2])).nonzero()[0]
    if not nodes.size:
        return None
    return ((int(nodes[room.left[nodes].argmin()]), demand),)


def holders(room: Room, demand: Amounts) -> set[int]:
    """Return the nodes that hold the whole demand."""
    free = room.free
    found = (free[0] >= demand[0]) & (free[1] >= demand[1]) & (free[2] >= demand[2])
    return set(found.nonzero()[0].tolist())


def place_equal(room: Room, demand: Amounts, nodes: int) -> Parts | None:
    """Return the fullest `nodes` that hold the demand each, as Slurm places a job of several; None: it waits."""
    if nodes == 1:
        return place_whole(room, demand)
    if exceeds(demand, room.most):
        return None
    free = room.free
    found = ((free[0] >= demand[0]) & (free[1] >= demand[1]) & (free[2] >= demand[2])).nonzero()[0]
    if len(found) < nodes:
        return None
    fullest = found[numpy.argsort(room.left[found], kind="stable")[:nodes]]
    return tuple((node, demand) for node in sorted(fullest.tolist()))


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
            parts.append((node, _between(demand, placed, placed + share)))
            placed += share
        if placed == MILLI:
            break
    return tuple(parts)


def fits_whole(room: Room, demands: Ints) -> Mask:
    """Return which demands some node holds whole."""
    # What is too full for the least of them is left out: on a busy cluster all but one or two nodes.
    cpu_milli, mem_mib, gpu_milli = amounts_of(demands.min(axis=1))
    free = room.free
    nodes = ((free[0] >= cpu_milli) & (free[1] >= mem_mib) & (free[2] >= gpu_milli)).nonzero()[0]
    fit: Mask = numpy.zeros(demands.shape[1], dtype=numpy.bool_)
    for cpu_milli, mem_mib, gpu_milli in free[:, nodes].T.tolist():
        fit |= (demands[0] <= cpu_milli) & (demands[1] <= mem_mib) & (demands[2] <= gpu_milli)
    return fit


def fits_equal(room: Room, demands: Ints, nodes: Ints) -> Mask:
    """Return which demands find as many nodes that hold each whole as they need."""
    cpu_milli, mem_mib, gpu_milli = amounts_of(demands.min(axis=1))
    free = room.free
    found = ((free[0] >= cpu_milli) & (free[1] >= mem_mib) & (free[2] >= gpu_milli)).nonzero()[0]
    left = free[:, found, None]
    holds = (left[0] >= demands[0]) & (left[1] >= demands[1]) & (left[2] >= demands[2])
    fit: Mask = holds.sum(axis=0) >= nodes
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


def _between(demand: Amounts, first: int, end: int) -> Amounts:
    """Return the part of a demand between two thousandths; all parts together are the demand, to the unit."""
    cpu_milli, mem_mib, gpu_milli = (amount * end // MILLI - amount * first // MILLI for amount in demand)
    return cpu_milli, mem_mib, gpu_milli


WHOLE = Placement(place_whole, fits_whole)
SPREAD = Placement(place_spread, fits_spread, spans=True)
PLACEMENTS: dict[str, Placement] = {"whole": WHOLE, "spread": SPREAD}
