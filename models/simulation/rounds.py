"""From an order to starts: what a job that does not fit holds up. One function a rule, each a round at one moment.

`strict`: everything behind it. `greedy`: nothing (Algorithm 2 of the resource-demand paper: what does not fit waits for
the next round). `easy` and `conservative`: what would delay it. `fair` is DRF's: the user with the least comes first.

A round costs the queue only where that can change something: after an arrival without a release, none but the new jobs
are looked at; after a release, those that need no more than the emptiest node has, found in one look at the columns;
where one job did not fit, none that needs as much is tried. EASY works its reservation out again only where something
was given back or the first job is another.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable

import numpy

from models.scheduling.backfill import Wish, plan, promise
from models.scheduling.ordering import dominant_share
from models.scheduling.room import Amounts, Ints, Room
from models.simulation.queue import CPU, FRESH, GPU, Mask
from models.simulation.state import State

Round = Callable[[State, float], None]
# How many of the demands that did not fit are remembered within a round.
MOST_TOO_LARGE = 8


def strict(state: State, now_s: float) -> None:  # noqa: ARG001
    """Start jobs in order until one does not fit."""
    while start_first(state):
        pass


def start_first(state: State) -> bool:
    """Start the first job if it fits."""
    queue = state.queue
    if not len(queue):
        return False
    parts = state.place(state.room, queue.demand(0))
    if parts is None:
        return False
    state.start(queue, 0, parts)
    return True


def greedy(state: State, now_s: float) -> None:  # noqa: ARG001
    """Start every job that fits, in order."""
    queue = state.queue
    alive: Mask = numpy.ones(len(queue), dtype=numpy.bool_) if state.released else queue.ints[FRESH] == 1
    sweep(state, alive, None, alive)


def easy(state: State, now_s: float) -> None:
    """Start the first jobs while they fit; then those that do not delay the first one that does not."""
    while start_first(state):
        pass
    queue = state.queue
    if not len(queue):
        return
    first = queue.number(0)
    renewed = state.released or state.promise_of != first
    if renewed:
        state.promise_of = first
        state.promise = promise(state.room, state.endings(), queue.demand(0), state.placement)
    if state.promise is None:
        return
    alive: Mask = numpy.ones(len(queue), dtype=numpy.bool_) if renewed else queue.ints[FRESH] == 1
    alive[0] = False
    # A job that ends by then may use all that is free now; a longer one only what is free then, too.
    short: Mask = now_s + queue.run_s <= state.promise.start_s
    sweep(state, alive, state.promise.beside, short)


def sweep(state: State, alive: Mask, beside: Room | None, short: Mask) -> None:
    """Try the jobs of a mask in the queue's order; those that are not `short` only in what `beside` has, too."""
    queue, place = state.queue, state.place
    common = None if beside is None else state.room.within(beside)
    hits = candidates(state, alive, short, common)
    demands = queue.ints[CPU : GPU + 1, hits].T.tolist()
    too_large: deque[tuple[Amounts, bool]] = deque(maxlen=MOST_TOO_LARGE)
    started = 0
    for position, (cpu_milli, mem_mib, gpu_milli), is_short in zip(
        hits.tolist(), demands, short[hits].tolist(), strict=True
    ):
        demand = (cpu_milli, mem_mib, gpu_milli)
        if is_hopeless(demand, is_short, too_large):
            continue
        anywhere = is_short or common is None
        parts = place(state.room if anywhere or common is None else common, demand)
        if parts is None:
            too_large.append((demand, anywhere))
            continue
        state.start(queue, position - started, parts, None if anywhere else beside)
        started += 1
        common = None if beside is None else state.room.within(beside)


def is_hopeless(demand: Amounts, is_short: bool, too_large: Iterable[tuple[Amounts, bool]]) -> bool:
    """Whether as little of everything did not fit in this round; a longer job has no more room than a short one."""
    for (cpu_milli, mem_mib, gpu_milli), was_short in too_large:
        if (
            (was_short or not is_short)
            and cpu_milli <= demand[0]
            and mem_mib <= demand[1]
            and gpu_milli <= demand[2]
        ):
            return True
    return False


def candidates(state: State, alive: Mask, short: Mask, common: Room | None) -> Ints:
    """Return the positions of jobs of a mask that may fit: no more is needed than can be had."""
    queue = state.queue
    within = queue.within(state.placement.reach(state.room)) & alive
    if common is not None and within.any():
        within &= short | queue.within(state.placement.reach(common))
    return within.nonzero()[0]


def conservative(state: State, now_s: float) -> None:
    """Plan all jobs, each at its earliest beside those before it; start those whose moment is now."""
    queue = state.queue
    wishes = [Wish(queue.demand(at), float(queue.run_s[at])) for at in range(len(queue))]
    planned = plan(now_s, state.room, tuple(state.endings()), wishes, state.place)
    due = [(at, found[1]) for at, found in enumerate(planned) if found is not None and found[0] == now_s]
    for started, (at, parts) in enumerate(due):
        state.start(queue, at - started, parts)


def fair(state: State, now_s: float) -> None:  # noqa: ARG001
    """Start the first job of the user with the least dominant share, again and again; a user whose job waits is out."""
    if state.released:
        state.ready |= state.blocked
        state.blocked.clear()
    heap = [(share_of(state, user), state.lanes[user].number(0), user) for user in state.ready]
    heapq.heapify(heap)
    state.ready.clear()
    while heap:
        _, _, user = heapq.heappop(heap)
        lane = state.lanes[user]
        parts = state.place(state.room, lane.demand(0))
        if parts is None:
            state.blocked.add(user)
            continue
        state.start(lane, 0, parts)
        if len(lane):
            heapq.heappush(heap, (share_of(state, user), lane.number(0), user))


def share_of(state: State, user: int) -> float:
    """Return the dominant share of what a user's jobs have now."""
    return dominant_share(state.user_used.get(user, (0, 0, 0)), state.room.total)


ROUNDS: dict[str, Round] = {"strict": strict, "greedy": greedy, "easy": easy, "conservative": conservative}
