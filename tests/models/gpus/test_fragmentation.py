"""Which of the idle GPUs are of use to the jobs that usually come."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.gpus.fragmentation import MOST_KINDS, Wanted, fitting, lost, usable_milli, usual_of, wanted_of
from models.gpus.placing import with_gpus
from models.scheduling.room import PLAIN, Ints

SHARES = (0, 100, 250, 470, 500, 810, 1000, 2000, 4000)


def jobs(*rows: tuple[int, int, int]) -> Ints:
    return numpy.array(rows, dtype=numpy.int64).reshape(-1, PLAIN)


def node(cpu_milli: int, mem_mib: int, *devices: int) -> Ints:
    return numpy.array([cpu_milli, mem_mib, sum(devices), *devices], dtype=numpy.int64)[:, None]


@pytest.mark.parametrize(
    ("gpu_milli", "wanted"),
    [(0, (0, 0)), (1, (1, 1)), (999, (1, 999)), (1000, (1, 1000)), (1500, (2, 1000)), (4000, (4, 1000))],
)
def test_less_than_a_gpu_is_a_share_of_one_and_more_are_whole_ones(
    gpu_milli: int, wanted: tuple[int, int]
) -> None:
    assert wanted_of(gpu_milli) == Wanted(*wanted)


def test_idle_gpus_are_lost_for_lack_of_cpus_of_memory_or_of_gpus_together() -> None:
    usual = usual_of(jobs((8000, 1000, 2000)))
    for free, told in (
        (node(8000, 1000, 1000, 1000), (2000, 0, 0, 0)),
        (node(7999, 1000, 1000, 1000), (0, 2000, 0, 0)),
        (node(8000, 999, 1000, 1000), (0, 0, 2000, 0)),
        (node(8000, 1000, 1000, 500, 500), (0, 0, 0, 2000)),
        (node(8000, 1000, 1000, 1000, 300), (2000, 0, 0, 300)),
        (node(8000, 1000), (0, 0, 0, 0)),
    ):
        assert [float(one[0]) for one in lost(free, usual)] == list(told)


def test_the_rest_of_a_gpu_is_of_use_to_the_jobs_that_want_no_more() -> None:
    usual = usual_of(jobs((1000, 100, 500), (1000, 100, 500), (1000, 100, 250), (1000, 100, 1000)))
    free = node(4000, 4000, 300)
    assert usable_milli(free, usual)[0] == pytest.approx(300 / 4)
    assert fitting(free, usual)[0] == pytest.approx(1 / 4)


def test_jobs_without_gpus_do_not_count_and_where_none_wants_gpus_they_are_of_no_use() -> None:
    some = usual_of(jobs((1000, 100, 500), (99_000, 100, 0)))
    assert some.often.tolist() == [1.0]
    nobody = usual_of(jobs((1000, 100, 0)))
    free = node(4000, 4000, 1000)
    assert usable_milli(free, nobody).tolist() == [0.0]
    assert [float(one[0]) for one in lost(free, nobody)] == [0, 0, 0, 1000]
    assert usual_of(jobs()).often.size == 0


def test_of_many_kinds_the_most_frequent_are_usual() -> None:
    asked = [(1000 * at, 100, 1000) for at in range(1, MOST_KINDS + 50)] + [(7, 7, 1000)] * 2
    usual = usual_of(jobs(*asked))
    assert len(usual.often) == MOST_KINDS
    assert usual.cpu_milli[usual.often.argmax()] == 7
    assert usual.often.sum() == pytest.approx(1)


def by_hand(free: Ints, asked: Ints) -> float:
    """Return how much of a node's idle GPUs a job that comes could use on average, worked out job by job."""
    wanting = [row for row in asked.tolist() if row[2]]
    usable = 0.0
    for cpu_milli, mem_mib, gpu_milli in wanting:
        wanted = wanted_of(gpu_milli)
        devices = [one for one in free[PLAIN:, 0].tolist() if one >= wanted.share_milli]
        if cpu_milli <= free[0, 0] and mem_mib <= free[1, 0] and len(devices) >= wanted.gpus:
            usable += sum(devices)
    return usable / max(1, len(wanting))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(SHARES)), max_size=12),
    st.lists(st.integers(0, 1000), max_size=4),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_usable_gpus_are_those_worked_out_job_by_job_and_nothing_is_lost_twice(
    asked: list[tuple[int, int, int]], devices: list[int], cpu_milli: int, mem_mib: int
) -> None:
    usual, free = usual_of(jobs(*asked)), node(cpu_milli, mem_mib, *devices)
    told = lost(free, usual)
    assert float(told.usable[0]) == pytest.approx(by_hand(free, jobs(*asked)))
    assert float(sum(one[0] for one in told)) == pytest.approx(sum(devices))
    assert all(one[0] >= -1e-9 for one in told)


def test_each_gpu_of_a_node_has_a_row_and_a_part_of_one_is_the_last() -> None:
    capacity = numpy.array([[4000, 8000, 1000], [1, 2, 3], [0, 2500, 1000]], dtype=numpy.int64)
    assert with_gpus(capacity)[PLAIN:].tolist() == [[0, 1000, 1000], [0, 1000, 0], [0, 500, 0]]
