"""On which node, and which of its GPUs, a job goes so that idle ones stay of use to the jobs that usually come. Pure.

Of all nodes that hold the job, it takes the one where what the usual jobs could use of idle GPUs shrinks least
(fragmentation.py): down the gradient of fragmentation, as in FGD (Weng et al., USENIX ATC 2023, §4). Beyond that
paper, a node in use is preferred to an empty one, by KEPT_EMPTY_MILLI. What a job would cost on a node is computed
anew only once something there has changed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from models.gpus.fragmentation import CPU, GPU, MEM, Usual, usable_milli, wanted_of
from models.scheduling.placement import Placement, fits_whole, holding
from models.scheduling.room import MILLI, PLAIN, Amounts, Floats, Ints, Mask, Parts, Room

# What it is worth to keep a node empty, for jobs to come that nobody knows yet, in thousandths of a GPU. Chosen on
# the two Alibaba traces of the paper (docs/decisions/0072).
KEPT_EMPTY_MILLI = 30.0
# For how many demands the cost on each node is remembered.
REMEMBERED = 500
NONE = -1


def with_gpus(capacity: Ints) -> Ints:
    """Return a capacity (resources × nodes) with a further row for each GPU; a part of a GPU comes last."""
    most = -(-int(capacity[GPU].max(initial=0)) // MILLI)
    devices = numpy.clip(capacity[GPU] - MILLI * numpy.arange(most)[:, None], 0, MILLI)
    return numpy.vstack([capacity[:PLAIN], devices])


def holding_gpus(room: Room, demand: Amounts) -> Ints:
    """Return the nodes that hold a demand on as few of their GPUs as it wants, in node order."""
    nodes = holding(room, demand)
    wanted = wanted_of(demand[GPU])
    if not wanted.gpus:
        return nodes
    enough = (room.free[PLAIN:, nodes] >= wanted.share_milli).sum(axis=0) >= wanted.gpus
    found: Ints = nodes[enough]
    return found


def part_on(room: Room, node: int, demand: Amounts, device: int = NONE) -> Amounts:
    """Return what a demand takes of a node: a share of the GPU `device`, else the fullest GPUs that hold as much."""
    wanted = wanted_of(demand[GPU])
    devices = room.free[PLAIN:, node]
    taken = [0] * len(devices)
    if device == NONE:
        order = numpy.argsort(devices, kind="stable")
        chosen = order[devices[order] >= wanted.share_milli][: wanted.gpus].tolist()
    else:
        chosen = [device]
    for each in chosen:
        taken[each] = wanted.share_milli
    return (demand[CPU], demand[MEM], wanted.gpus * wanted.share_milli, *taken)


def place_fullest(room: Room, demand: Amounts) -> Parts | None:
    """Return the fullest node that holds a demand, and the fullest of its GPUs; None: no node does."""
    nodes = holding_gpus(room, demand)
    if not nodes.size:
        return None
    node = int(nodes[room.left_of(nodes).argmin()])
    return ((node, part_on(room, node, demand)),)


class _Known(NamedTuple):
    """What is known of a demand: how nodes were when it was computed, what each would lose, and on which GPU."""

    free: Ints
    loss_milli: Floats
    device: Ints


class Choice(NamedTuple):
    """A node that holds a job, on which of its GPUs a share goes (-1: no share), and what that costs.

    `loss_milli` is how much less of the idle GPUs a usual job could use, on average (thousandths of a GPU), including
    what the job takes itself. Together with `empty_milli`, for how empty the node is, it makes the score; less is
    better.
    """

    node: int
    device: int
    loss_milli: float
    empty_milli: float


class Gradient:
    """Places jobs where the usual jobs lose least. It remembers what it has computed, and nothing else."""

    def __init__(self, usual: Usual, kept_empty_milli: float = KEPT_EMPTY_MILLI) -> None:
        self._usual = usual
        self._kept_empty_milli = kept_empty_milli
        # By the number of nodes, and the demand.
        self._known: dict[tuple[int, Amounts], _Known] = {}

    @property
    def placement(self) -> Placement:
        """Return this as a placement for jobs of one node."""
        return Placement(self.place, fits_gpus, fullest=False)

    def place(self, room: Room, demand: Amounts) -> Parts | None:
        """Return where a job goes; None: no node holds it."""
        nodes = holding_gpus(room, demand)
        if not nodes.size:
            return None
        known = self._know(room.free, demand)
        node = int(nodes[(known.loss_milli[nodes] + self._empty_milli(room, nodes)).argmin()])
        return ((node, part_on(room, node, demand, int(known.device[node]))),)

    def choices(self, room: Room, demand: Amounts) -> list[Choice]:
        """Return all nodes that hold a job, in the order in which `place` prefers them."""
        nodes = holding_gpus(room, demand)
        known = self._know(room.free, demand)
        loss_milli, empty_milli = known.loss_milli[nodes], self._empty_milli(room, nodes)
        order = numpy.argsort(loss_milli + empty_milli, kind="stable")
        columns = (nodes, known.device[nodes], loss_milli, empty_milli)
        return [Choice(*row) for row in zip(*(column[order].tolist() for column in columns), strict=True)]

    def _empty_milli(self, room: Room, nodes: Ints) -> Floats:
        """Return the cost of using what is empty of nodes: KEPT_EMPTY_MILLI for an empty node of average size."""
        resources = sum(map(bool, room.total[:PLAIN]))
        found: Floats = room.left_of(nodes) * (
            self._kept_empty_milli * room.free.shape[1] / max(1, resources)
        )
        return found

    def _know(self, free: Ints, demand: Amounts) -> _Known:
        nodes = free.shape[1]
        known = self._known.get((nodes, demand))
        if known is None:
            if len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            nothing = numpy.full_like(free, NONE)
            known = _Known(nothing, numpy.full(nodes, numpy.inf), numpy.full(nodes, NONE))
            self._known[nodes, demand] = known
        changed = (known.free != free).any(axis=0).nonzero()[0]
        if changed.size:
            some = free[:, changed]
            known.free[:, changed] = some
            known.loss_milli[changed], known.device[changed] = losses(some, demand, self._usual)
        return known


def losses(free: Ints, demand: Amounts, usual: Usual) -> tuple[Floats, Ints]:
    """Return what a job would cost on each node, as in `Choice`, and on which GPU; infinite: it does not fit there."""
    nodes, device, after = _afterwards(free, demand)
    before, then = numpy.split(usable_milli(numpy.hstack([free, after]), usual), [free.shape[1]])
    loss = before[nodes] - then
    # For each node, the GPU by which it loses least; the first of equal ones.
    order = numpy.lexsort((device, loss, nodes))
    found, first = numpy.unique(nodes[order], return_index=True)
    least, by = numpy.full(len(before), numpy.inf), numpy.full(len(before), NONE)
    least[found], by[found] = loss[order][first], device[order][first]
    return least, by


def _afterwards(free: Ints, demand: Amounts) -> tuple[Ints, Ints, Ints]:
    """Return the nodes that hold a job, by each GPU that a share of it may go on, and what would be free then."""
    wanted, devices = wanted_of(demand[GPU]), free[PLAIN:]
    held: Mask = (free[CPU] >= demand[CPU]) & (free[MEM] >= demand[MEM])
    enough: Mask = devices >= wanted.share_milli
    if wanted.share_milli in (0, MILLI):
        nodes = (held & (enough.sum(axis=0) >= wanted.gpus)).nonzero()[0]
        device = numpy.full(len(nodes), NONE)
        taken: Ints = wanted.share_milli * (enough & (enough.cumsum(axis=0) <= wanted.gpus))[:, nodes]
    else:
        # Of GPUs with equally much free, one is as good as another.
        again = numpy.zeros_like(enough)
        for each, has in enumerate(devices):
            again[each] = (devices[:each] == has).any(axis=0)
        device, nodes = (enough & held & ~again).nonzero()
        taken = numpy.zeros((len(devices), len(nodes)), dtype=numpy.int64)
        taken[device, numpy.arange(len(nodes))] = wanted.share_milli
    after = free[:, nodes]
    after[CPU] -= demand[CPU]
    after[MEM] -= demand[MEM]
    after[GPU] -= taken.sum(axis=0)
    after[PLAIN:] -= taken
    return nodes, device, after


def fits_gpus(room: Room, demands: Ints) -> Mask:
    """Return which demands (resources × jobs) some node holds, on as few of its GPUs as each wants."""
    fit = fits_whole(room, demands)
    kinds, kind_of = numpy.unique(demands[:, fit], axis=1, return_inverse=True)
    held = [bool(holding_gpus(room, tuple(kind)).size) for kind in kinds.T.tolist()]
    fit[fit] = numpy.array(held, dtype=numpy.bool_)[kind_of.ravel()]
    return fit


FULLEST = Placement(place_fullest, fits_gpus, fullest=False)
