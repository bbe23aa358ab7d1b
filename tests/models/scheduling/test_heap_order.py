"""The order of the heap, compared with a heap walked by hand and as properties."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ScheduleError
from models.scheduling.heap_order import heap_arrangement, heap_preorder, preorder

volumes_of_demanders = st.lists(st.floats(0, 1e12) | st.sampled_from([0.0, 1.0, 2.0]), max_size=60)
seeds = st.integers(0, 2**32 - 1)


def walked(node: int, count: int) -> list[int]:
    """The nodes of a heap in pre-order, by recursion."""
    return [node, *walked(2 * node + 1, count), *walked(2 * node + 2, count)] if node < count else []


@given(st.integers(0, 200))
def test_pre_order_is_node_then_left_then_right(count: int) -> None:
    assert preorder(count) == walked(0, count)


@given(volumes_of_demanders, seeds)
def test_each_demander_comes_once_and_before_its_children_which_are_no_larger(
    volumes: list[float], seed: int
) -> None:
    order = heap_preorder(volumes, numpy.random.default_rng(seed))
    assert sorted(order) == list(range(len(volumes)))
    rank_of_node = {node: rank for rank, node in enumerate(preorder(len(volumes)))}
    for node, rank in rank_of_node.items():
        if node:
            parent_rank = rank_of_node[(node - 1) // 2]
            assert parent_rank < rank
            assert volumes[order[parent_rank]] >= volumes[order[rank]]


@given(volumes_of_demanders, seeds)
def test_the_same_generator_gives_the_same_order(volumes: list[float], seed: int) -> None:
    one, other = (heap_preorder(volumes, numpy.random.default_rng(seed)) for _ in range(2))
    assert one.tolist() == other.tolist()


Job = tuple[str, float, int]


def volume_of(job: Job) -> float:
    return job[1]


def window_of(job: Job) -> int:
    return job[2]


def one_window(_: Job) -> int:
    return 0


@given(volumes_of_demanders, seeds)
def test_a_queue_of_one_window_is_arranged_in_the_same_order(volumes: list[float], seed: int) -> None:
    order = heap_preorder(volumes, numpy.random.default_rng(seed))
    queue = [(f"job {number}", volume, number) for number, volume in enumerate(volumes)]
    places = heap_arrangement(volume_of, one_window, numpy.random.default_rng(seed))(queue)
    assert [places[demander] for demander in order] == list(range(len(volumes)))


@given(st.lists(st.tuples(st.just("job"), st.floats(0, 1e6), st.integers(-3, 3)), max_size=40), seeds)
def test_no_job_is_passed_by_a_later_window_and_the_largest_of_each_window_comes_first(
    queue: list[Job], seed: int
) -> None:
    places = heap_arrangement(volume_of, window_of, numpy.random.default_rng(seed))(queue)
    assert sorted(places) == list(range(len(queue)))
    by_place = [job for _, job in sorted(zip(places, queue, strict=True))]
    windows = [window_of(job) for job in by_place]
    assert windows == sorted(windows)
    for window in set(windows):
        of_window = [volume_of(job) for job in by_place if window_of(job) == window]
        assert of_window[0] == max(of_window)


def test_each_call_arranges_a_queue_anew() -> None:
    queue = [("job", float(number), 0) for number in range(20)]
    arrange = heap_arrangement(volume_of, window_of, numpy.random.default_rng(1))
    assert len({arrange(queue) for _ in range(5)}) == 5


def test_small_demanders_come_among_large_ones() -> None:
    volumes = numpy.arange(100.0)
    places_of_small = []
    for seed in range(50):
        order = heap_preorder(volumes, numpy.random.default_rng(seed)).tolist()
        assert order[0] == 99, "the largest is always first"
        places_of_small.append(min(order.index(small) for small in range(25)))
    # Sorting the largest first would put the first of the smallest quarter at place 75.
    assert max(places_of_small) < 25


@pytest.mark.parametrize("volumes", [[1.0, -1.0], [float("nan")], [float("inf")], [[1.0]]])
def test_a_value_that_is_no_volume_is_refused(volumes: list[float]) -> None:
    with pytest.raises(ScheduleError, match="planned volumes must be"):
        heap_preorder(volumes, numpy.random.default_rng(1))
