"""The queue's columns, compared with a plain list: added jobs stand by their keys, removed ones are gone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from models.scheduling.ordering import Waiting
from models.simulation.queue import NUMBER, Queue

# Jobs to add: a key and the number of equal jobs; or the shares of the queue at which jobs are removed.
Added = tuple[int, int]
steps = st.one_of(
    st.tuples(st.integers(-3, 3), st.sampled_from([1, 1, 2, 5, 300])),
    st.lists(st.floats(0, 0.999), max_size=6, unique=True),
)


def waiting(number: int) -> Waiting:
    return Waiting(
        number=number,
        submit_s=0.0,
        user=0,
        demand=(number, 1, 0),
        total=(1, 1, 1),
        predicted_s=float(number),
        remaining_s=1.0,
        limit_s=2.0,
    )


@given(st.lists(steps, max_size=30))
def test_the_queue_is_a_list_in_the_order_of_keys(done: list[Added | list[float]]) -> None:
    queue, plain, came = Queue(), list[tuple[int, int, int]](), 0
    for step in done:
        if isinstance(step, list):
            positions = list(dict.fromkeys(int(share * len(plain)) for share in step)) if plain else []
            queue.remove_all(positions)
            plain = [one for at, one in enumerate(plain) if at not in positions]
        else:
            key, alike = step
            queue.add(waiting(came), float(key), 7, alike)
            plain += [(key, number, came) for number in range(came, came + alike)]
            plain.sort(key=lambda one: one[0])
            came += alike
    assert queue.ints[NUMBER].tolist() == [number for _, number, _ in plain]
    assert queue.keys.tolist() == [key for key, _, _ in plain]
    assert queue.run_s.tolist() == [first for _, _, first in plain]
    assert [queue.demand(at) for at in range(len(queue))] == [(first, 1, 0) for _, _, first in plain]
