"""From an order to starts: what a job that does not fit holds up. One function for each rule, a round at one moment.

`strict`: everything behind it. `greedy`: nothing (Algorithm 2 of the resource-demand paper: what does not fit waits
for the next round). `easy` and `conservative`: what would delay it; of the rest, `easy shortest` lets the shortest
pass first. `fair` is DRF's: the user with the least share comes first. `deadlines` keeps an order of its own.

A round goes through the queue only where that can change something: after an arrival without a release, only the new
jobs are considered; after a release, those that some node holds, found by a few operations on the columns. EASY
computes its reservation anew only if the first job is another one, or an end may have brought it forward.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy

from models.scheduling.backfill import plan, promise
from models.scheduling.ordering import dominant_share
from models.scheduling.room import Amounts, Ints, Mask, Parts
from models.simulation.deadline_round import by_deadline
from models.simulation.queue import DEMAND, FRESH, NODES
from models.simulation.state import BESIDE, State

Round = Callable[[State, float], None]
# Up to this many jobs are placed one by one; more are first checked together.
FEW = 3


def strict(state: State, now_s: float) -> None:
    """Start jobs in order until one does not fit."""
    while start_first(state, now_s):
        pass


def start_first(state: State, now_s: float) -> bool:
    """Start the first job if it fits."""
    queue = state.queue
    while len(queue) and state.passes_over(queue.number(0)):
        queue.remove(0)
    if not len(queue):
        return False
    parts = state.place_at(queue, 0, state.usable(state.kind(queue, 0, now_s)))
    if parts is None:
        return False
    state.start(queue, 0, parts)
    return True


def greedy(state: State, now_s: float) -> None:
    """Start every job that fits, in order."""
    hits = to_look_at(state, 0, anew=state.released)
    sweep(state, hits, state.kinds(state.queue, hits, now_s))


def easy(state: State, now_s: float, *, shortest: bool = False) -> None:
    """Start the first jobs while they fit; then those that do not delay the first one that does not.

    These start in the queue's order, or the one expected to run shortest first.
    """
    queue = state.queue
    renewed = state.stale or state.promise_of != queue.number(0)
    if renewed:
        while start_first(state, now_s):
            pass
        if not len(queue):
            return
        found = promise(state.room, state.changes(), state.wish(queue, 0), state.placement)
        state.promised(queue.number(0), found)
    if state.promise is None:
        return
    hits = to_look_at(state, 1, anew=renewed or state.released)
    if shortest:
        hits = hits[numpy.argsort(queue.run_s[hits], kind="stable")]
    # A job that ends by then may use all that is free now; a longer one only what is free then, too.
    long: Mask = now_s + queue.run_s[hits] > state.promise.start_s
    sweep(state, hits, state.kinds(queue, hits, now_s) + BESIDE * long)


def easy_shortest(state: State, now_s: float) -> None:
    """EASY that backfills the shortest first, as expected: with predictions, EASY++ as published (SJBF)."""
    easy(state, now_s, shortest=True)


def to_look_at(state: State, first: int, *, anew: bool) -> Ints:
    """Return the positions, from `first` on, of new jobs only, or of all that need no more than any node has."""
    queue = state.queue
    found = queue.within(state.placement.reach(state.room)) if anew else queue.ints[FRESH] == 1
    found[:first] = False
    return found.nonzero()[0]


def sweep(state: State, hits: Ints, kinds: Ints) -> None:
    """Start the jobs at these positions that fit in what their kinds may use, in order."""
    queue = state.queue
    columns = queue.ints[:, hits]
    tries = fitting(state, Tries(hits, columns[DEMAND:], kinds, columns[NODES]))
    gone: list[int] = []
    before, at = Placed(), 0
    while at < len(tries.positions):
        kind, position = int(tries.kinds[at]), int(tries.positions[at])
        if state.passes_over(queue.number(position)):
            gone.append(position)
            at += 1
            continue
        before = placed(state, position, kind, before)
        parts = before.parts
        if parts is None:
            # It fitted before others started. So did those behind it, of which few may still fit.
            tries, at = fitting(state, tries.behind(at)), 0
            continue
        state.launch(queue.number(position), parts, beside=kind % 2 == BESIDE)
        gone.append(position)
        at += 1
    queue.remove_all(gone)


class Placed(NamedTuple):
    """Where a job of this kind and demand (on one node) went; None: it does not fit."""

    kind: int = -1
    demand: Amounts = (0, 0, 0)
    parts: Parts | None = None


def placed(state: State, position: int, kind: int, before: Placed) -> Placed:
    """Return where a job goes, given where the one `before` it went; nothing but that start has changed since.

    If placement takes the fullest node first, that node has become fuller, so an equal job goes there, too, while it
    fits. So tasks of an array need not look at all nodes.
    """
    queue = state.queue
    demand, nodes = queue.demand(position), queue.nodes(position)
    alike = nodes == 1 and before[:2] == (kind, demand)
    if state.placement.fullest and alike and before.parts and len(before.parts) == 1:
        ((node, amounts),) = before.parts
        if state.holds(kind, node, amounts):
            return before
    parts = state.place_at(queue, position, state.usable(kind))
    return Placed(kind, demand, parts)


class Tries(NamedTuple):
    """Waiting jobs that may start: positions, demands (resources × jobs), kinds (of state.py), nodes for each."""

    positions: Ints
    demands: Ints
    kinds: Ints
    nodes: Ints

    def behind(self, at: int) -> Tries:
        """Return those behind one of them."""
        return Tries(
            self.positions[at + 1 :], self.demands[:, at + 1 :], self.kinds[at + 1 :], self.nodes[at + 1 :]
        )

    def of(self, mask: Mask) -> Tries:
        """Return those of a mask."""
        left = mask.nonzero()[0]
        return Tries(
            self.positions.take(left),
            self.demands.take(left, axis=1),
            self.kinds.take(left),
            self.nodes.take(left),
        )


def fitting(state: State, tries: Tries) -> Tries:
    """Return those that fit now; if few, return them unchecked: placing them one by one is cheaper."""
    if len(tries.positions) <= FEW:
        return tries
    # No job may use more than what is free now.
    tries = tries.of(state.fits(state.room, tries.demands, tries.nodes))
    if len(tries.positions) <= FEW:
        return tries
    for kind in numpy.bincount(tries.kinds).nonzero()[0].tolist():
        usable = state.usable(kind)
        if usable is not state.room:
            alike = tries.kinds == kind
            fit = ~alike
            fit[alike] = state.fits(usable, tries.demands[:, alike], tries.nodes[alike])
            tries = tries.of(fit)
    return tries


def conservative(state: State, now_s: float) -> None:
    """Plan all jobs, each at its earliest next to those before it; start those whose moment is now."""
    queue = state.queue
    wishes = [state.wish(queue, at) for at in range(len(queue))]
    planned = plan(now_s, state.room, state.changes(), wishes, state.place)
    due = [(at, found[1]) for at, found in enumerate(planned) if found is not None and found[0] == now_s]
    started = 0
    for at, parts in due:
        # A plan by guesses considers windows and one job's limit, but not all limits together.
        if state.usable(state.kind(queue, at - started, now_s)).holds(parts):
            state.start(queue, at - started, parts)
            started += 1


def fair(state: State, now_s: float) -> None:
    """Start the first job of the user with the least dominant share, repeatedly; a user whose job waits drops out."""
    if state.released:
        state.ready |= state.blocked
        state.blocked.clear()
    heap = [(share_of(state, user), state.lanes[user].number(0), user) for user in state.ready]
    heapq.heapify(heap)
    state.ready.clear()
    while heap:
        _, _, user = heapq.heappop(heap)
        lane = state.lanes[user]
        parts = state.place(state.usable(state.kind(lane, 0, now_s)), lane.demand(0))
        if parts is None:
            state.blocked.add(user)
            continue
        state.start(lane, 0, parts)
        if len(lane):
            heapq.heappush(heap, (share_of(state, user), lane.number(0), user))


def share_of(state: State, user: int) -> float:
    """Return the dominant share of what a user's jobs have now."""
    return dominant_share(state.user_used.get(user, (0, 0, 0)), state.room.total)


ROUNDS: dict[str, Round] = {
    "strict": strict,
    "greedy": greedy,
    "easy": easy,
    "easy shortest": easy_shortest,
    "conservative": conservative,
    "deadlines": by_deadline,
}
