"""Equal jobs that start together go where each would go by itself, one after the other."""

from __future__ import annotations

import numpy
from hypothesis import given
from hypothesis import strategies as st

from models.scheduling.ordering import FIFO, Waiting
from models.scheduling.placement import PLACEMENTS, place_equal
from models.scheduling.room import Amounts, Parts, Room
from models.simulation.rounds import greedy
from models.simulation.state import State

nodes = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 2)), min_size=1, max_size=5)
demands = st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 1))
# What each job needs, on how many nodes, and how many equal jobs come.
kinds = st.lists(st.tuples(demands, st.sampled_from([1, 1, 1, 2]), st.integers(1, 6)), min_size=1, max_size=6)


@given(nodes, kinds, st.sampled_from(sorted(PLACEMENTS)))
def test_equal_jobs_go_where_each_would_go_by_itself(
    capacity: list[Amounts], waiting: list[tuple[Amounts, int, int]], name: str
) -> None:
    placement = PLACEMENTS[name]
    free = numpy.array(capacity, dtype=numpy.int64).T.copy()
    started: list[tuple[int, Parts]] = []
    room = Room.of(free)
    state = State(room, FIFO, placement, lambda number, parts: started.append((number, parts)), None)
    alone, expected, number = Room.of(free), list[tuple[int, Parts]](), 0
    for demand, count, alike in waiting:
        state.enqueue(_job(number, demand, count, room.total), alike)
        for task in range(number, number + alike):
            anew = Room(alone.free.copy(), alone.total)
            parts = place_equal(anew, demand, count) if count > 1 else placement.place(anew, demand)
            if parts is not None:
                alone.take(parts)
                expected.append((task, parts))
        number += alike
    greedy(state, 0.0)
    assert started == expected
    assert (room.free == alone.free).all()
    assert len(state.queue) == number - len(expected)


def _job(number: int, demand: Amounts, count: int, total: Amounts) -> Waiting:
    return Waiting(
        number=number,
        submit_s=float(number),
        user=0,
        demand=demand,
        total=total,
        predicted_s=1.0,
        remaining_s=1.0,
        limit_s=1.0,
        nodes=count,
    )
