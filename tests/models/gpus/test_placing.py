"""On which node, and on which of its GPUs, a job goes."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.gpus.explanation import weighed
from models.gpus.fragmentation import Usual, usable_milli, usual_of, wanted_of
from models.gpus.placing import FULLEST, NONE, REMEMBERED, Gradient, fits_gpus, losses, part_on, with_gpus
from models.scheduling.room import MILLI, PLAIN, Amounts, Ints, Room, amounts_of

HALF, WHOLE, PAIR = (2000, 100, 500), (2000, 100, 1000), (2000, 100, 2000)
DEMANDS = ((0, 0, 0), (3000, 50, 0), HALF, (1000, 100, 300), WHOLE, PAIR, (1000, 100, 4000), (4000, 200, 700))


def room_of(*nodes: tuple[int, int, int]) -> Room:
    capacity = with_gpus(numpy.array(nodes, dtype=numpy.int64).T)
    return Room(capacity, amounts_of(capacity[:PLAIN].sum(axis=1)))


def gradient(*asked: Amounts, kept_empty_milli: float = 0.0) -> Gradient:
    return Gradient(usual_of(numpy.array(asked, dtype=numpy.int64)), kept_empty_milli)


def test_a_share_goes_on_an_already_shared_gpu_where_whole_ones_are_wanted() -> None:
    room, way = room_of((16_000, 1000, 2000), (16_000, 1000, 2000)), gradient(HALF, WHOLE, PAIR)
    first = way.place(room, HALF)
    assert first == ((0, (2000, 100, 500, 500, 0)),)
    room.take(first)
    assert way.place(room, HALF) == ((0, (2000, 100, 500, 500, 0)),)


def test_a_job_without_gpus_goes_where_it_takes_nothing_that_gpus_need() -> None:
    room = room_of((4000, 1000, 2000), (16_000, 1000, 2000), (8000, 1000, 0))
    way = gradient((4000, 100, 1000), kept_empty_milli=30.0)
    assert way.place(room, (4000, 100, 0)) == ((2, (4000, 100, 0, 0, 0)),)
    full = room_of((4000, 1000, 2000), (16_000, 1000, 2000), (3000, 1000, 0))
    assert way.place(full, (4000, 100, 0)) == ((1, (4000, 100, 0, 0, 0)),), (
        "node 0 would have no CPU for its GPUs"
    )


def test_of_nodes_that_lose_as_much_a_full_one_is_taken_if_empty_ones_have_a_price() -> None:
    nodes = ((64_000, 1000, 2000), (32_000, 1000, 1000))
    assert gradient(WHOLE).place(room_of(*nodes), WHOLE) == ((0, (2000, 100, 1000, 1000, 0)),)
    dear = gradient(WHOLE, kept_empty_milli=30.0)
    assert dear.place(room_of(*nodes), WHOLE) == ((1, (2000, 100, 1000, 1000, 0)),)
    assert [one.node for one in dear.choices(room_of(*nodes), WHOLE)] == [1, 0]


def test_several_gpus_are_whole_and_a_job_that_no_node_holds_waits() -> None:
    room = room_of((16_000, 1000, 2000), (16_000, 1000, 3000))
    room.take(((1, (0, 0, 300, 300, 0, 0)),))
    way = gradient(PAIR)
    assert way.place(room, (1000, 100, 3000)) is None
    found = way.place(room, (1000, 100, 1500))
    assert found is not None
    ((node, amounts),) = found
    assert (node, amounts[2:]) in {(0, (2000, 1000, 1000, 0)), (1, (2000, 0, 1000, 1000))}
    assert way.place(room, (17_000, 100, 500)) is None


@st.composite
def rooms(draw: st.DrawFn) -> Room:
    nodes = draw(
        st.lists(
            st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 4)).map(
                lambda node: (1000 * node[0], 100 * node[1], 1000 * node[2])
            ),
            min_size=1,
            max_size=5,
        )
    )
    room = room_of(*nodes)
    devices = room.free[PLAIN:]
    taken = draw(st.lists(st.sampled_from([0, 200, 500, 1000]), min_size=devices.size, max_size=devices.size))
    devices -= numpy.minimum(numpy.array(taken, dtype=numpy.int64).reshape(devices.shape), devices)
    room.free[2] = devices.sum(axis=0)
    return room


def holds(free: list[int], demand: Amounts) -> bool:
    wanted = wanted_of(demand[2])
    enough = [one for one in free[PLAIN:] if one >= wanted.share_milli]
    return demand[0] <= free[0] and demand[1] <= free[1] and len(enough) >= wanted.gpus


@settings(max_examples=200)
@given(rooms(), st.lists(st.sampled_from(DEMANDS), min_size=1, max_size=12))
def test_placed_jobs_fit_on_single_gpus_and_waiting_jobs_fit_nowhere(
    room: Room, demands: list[Amounts]
) -> None:
    usual = usual_of(numpy.array(demands, dtype=numpy.int64))
    for way in (Gradient(usual).placement, FULLEST):
        now = room.copy()
        for demand in demands:
            fits = any(holds(column, demand) for column in now.free.T.tolist())
            asked = numpy.array(demand, dtype=numpy.int64)[:, None]
            assert bool(way.fits(now, asked)[0]) == fits
            parts = way.place(now, demand)
            assert (parts is not None) == fits
            if parts is not None:
                now.take(parts)
                ((_, amounts),) = parts
                wanted = wanted_of(demand[2])
                assert sorted(filter(None, amounts[PLAIN:])) == [wanted.share_milli] * wanted.gpus
                assert now.free.min() >= 0
                assert (now.free[2] == now.free[PLAIN:].sum(axis=0)).all()


@settings(max_examples=200)
@example(room_of((8000, 1000, 2000), (4000, 1000, 1000)), [HALF, WHOLE, PAIR], WHOLE)
@given(rooms(), st.lists(st.sampled_from(DEMANDS), min_size=1, max_size=6), st.sampled_from(DEMANDS))
def test_costs_and_the_place_are_those_of_all_nodes_and_gpus_tried_one_by_one(
    room: Room, usually: list[Amounts], demand: Amounts
) -> None:
    usual = usual_of(numpy.array(usually, dtype=numpy.int64))
    tried: list[float] = []
    for node, column in enumerate(room.free.T.tolist()):
        one_by_one = wanted_of(demand[2]).share_milli not in (0, MILLI)
        devices = range(len(column) - PLAIN) if one_by_one else [NONE]
        costs = [
            spent(room, usual, node, part_on(room, node, demand, device))
            for device in devices
            if holds(column, demand) and (device == NONE or column[PLAIN + device] >= demand[2])
        ]
        tried.append(min(costs, default=numpy.inf))
    assert losses(room.free, demand, usual)[0].tolist() == pytest.approx(tried, abs=1e-6)
    found = Gradient(usual, 0.0).place(room, demand)
    assert (found is None) == (min(tried) == numpy.inf)
    if found is not None:
        ((node, amounts),) = found
        assert spent(room, usual, node, amounts) == pytest.approx(min(tried), abs=1e-6)


def spent(room: Room, usual: Usual, node: int, amounts: Amounts) -> float:
    after = room.copy()
    after.take(((node, amounts),))
    return float((usable_milli(room.free, usual) - usable_milli(after.free, usual)).sum())


@given(rooms(), st.lists(st.sampled_from(DEMANDS), min_size=2, max_size=15))
def test_cached_costs_equal_those_worked_out_anew(room: Room, demands: list[Amounts]) -> None:
    usual = usual_of(numpy.array(demands, dtype=numpy.int64))
    way = Gradient(usual)
    for demand in demands:
        found = Gradient(usual).place(room, demand)
        assert way.place(room, demand) == found
        if found is not None:
            room.take(found)


def test_the_cache_stays_within_its_bound() -> None:
    room, way = room_of((10_000_000, 1000, 1000)), gradient(WHOLE)
    for at in range(REMEMBERED + 5):
        way.place(room, (1000 + at, 100, 500))
    assert len(way._known) == REMEMBERED


def test_jobs_are_placed_also_where_none_usually_wants_gpus() -> None:
    room = room_of((4000, 1000, 1000))
    assert gradient((1000, 100, 0)).place(room, HALF) == ((0, (2000, 100, 500, 500)),)
    assert losses(room.free, HALF, usual_of(numpy.zeros((0, 3), dtype=numpy.int64)))[0].tolist() == [0.0]


def test_the_reasons_add_up_and_the_first_is_where_the_job_goes() -> None:
    room = room_of((8000, 1000, 2000), (4000, 1000, 2000), (2000, 1000, 0))
    usual = usual_of(numpy.array([HALF, WHOLE, (4000, 100, 1000)], dtype=numpy.int64))
    way = Gradient(usual)
    rows = [weighed(room, HALF, choice, usual) for choice in way.choices(room, HALF)]
    parts = way.place(room, HALF)
    assert parts is not None
    assert [row.node for row in rows] == [0, 1]
    assert rows[0].node == parts[0][0]
    for row in rows:
        assert row.gpu == 0
        assert row.taken == 0.5
        told = row.taken + row.for_cpus + row.for_memory + row.for_gpus + row.empty
        assert row.cost == pytest.approx(told)
    assert rows[1].for_cpus > 0, "what is left of its CPUs does for fewer of the jobs that come"
    assert rows[1].fits_no_more == pytest.approx(1 / 3)
    assert way.choices(room, (99_000, 1, 0)) == []
    assert way.choices(room_of((8000, 1000, 0)), HALF) == [], "no node has a GPU"


def test_demands_that_fit_no_single_gpu_do_not_fit() -> None:
    room = room_of((8000, 1000, 2000))
    room.take(((0, (0, 0, 1000, 500, 500)),))
    demands: Ints = numpy.array([(1, 1, 500), (1, 1, 600), (1, 1, 1000), (1, 1, 0)], dtype=numpy.int64).T
    assert fits_gpus(room, demands).tolist() == [True, False, False, True]
