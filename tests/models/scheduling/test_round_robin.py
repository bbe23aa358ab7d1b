"""The record of a schedule: each demander gets what it needs, no supplier idles or is shared, turns are in order."""

from itertools import pairwise

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ScheduleError
from models.scheduling.round_robin import ScheduleRecord, Turn, serve, supplier_sequence
from models.scheduling.time_slices import turns_of, waits_of
from tests.models.scheduling.test_time_slices import demands

Demand = tuple[list[float], list[int], float]
NEAR = 1e-6


def of_each(turns: tuple[Turn, ...], name: str) -> dict[int, list[Turn]]:
    by: dict[int, list[Turn]] = {}
    for turn in turns:
        by.setdefault(getattr(turn, name), []).append(turn)
    return by


@given(demands(), st.integers(1, 5))
def test_each_demander_is_served_exactly_what_it_needs_in_its_turns(demand: Demand, suppliers: int) -> None:
    durations, order, slice_s = demand
    record = serve(durations, order, slice_s, range(suppliers))
    assert list(record.served_s) == durations
    by_turns = [0.0] * len(durations)
    for turn in record.turns:
        by_turns[turn.demander] += turn.end_s - turn.start_s
    assert by_turns == pytest.approx(durations, abs=NEAR * (1 + sum(durations)))
    counts = {demander: len(turns) for demander, turns in of_each(record.turns, "demander").items()}
    assert [counts.get(number, 0) for number in range(len(durations))] == turns_of(
        durations, slice_s
    ).tolist()
    assert record.rounds == max(turns_of(durations, slice_s), default=0)


@given(demands(), st.integers(1, 5))
def test_turns_are_in_order_and_no_demander_or_supplier_has_two_at_once(
    demand: Demand, suppliers: int
) -> None:
    durations, order, slice_s = demand
    record = serve(durations, order, slice_s, range(suppliers))
    keys = [(turn.round_number, order.index(turn.demander)) for turn in record.turns]
    assert keys == sorted(keys)
    assert all(one.start_s <= other.start_s + NEAR for one, other in pairwise(record.turns))
    for name in ("demander", "supplier"):
        for turns in of_each(record.turns, name).values():
            assert all(one.end_s <= other.start_s for one, other in pairwise(turns))


@given(demands(), st.integers(1, 5))
def test_no_supplier_idles_while_a_demander_could_be_served(demand: Demand, suppliers: int) -> None:
    durations, order, slice_s = demand
    record = serve(durations, order, slice_s, range(suppliers))
    before: dict[int, float] = {}
    free_s = dict.fromkeys(range(suppliers), 0.0)
    for turn in record.turns:
        # A turn starts as soon as its demander has had its turn before this one and a supplier is free.
        earliest_s = max(min(free_s.values()), before.get(turn.demander, 0.0))
        assert turn.start_s == earliest_s
        free_s[turn.supplier] = before[turn.demander] = turn.end_s


@given(demands())
def test_with_one_supplier_the_waits_are_those_of_the_formula(demand: Demand) -> None:
    durations, order, slice_s = demand
    record = serve(durations, order, slice_s, [0])
    formula = waits_of(durations, order, slice_s)
    served = numpy.array(durations) > 0
    assert record.waits_s[served] == pytest.approx(formula[served], abs=NEAR * (1 + sum(durations)))
    assert numpy.isnan(record.waits_s[~served]).all()


@given(demands(), st.integers(1, 3), st.floats(0.1, 1e4))
def test_a_window_cuts_the_record_off_and_changes_nothing_before_its_end(
    demand: Demand, suppliers: int, window_s: float
) -> None:
    durations, order, slice_s = demand
    whole = serve(durations, order, slice_s, range(suppliers))
    cut = serve(durations, order, slice_s, range(suppliers), window_s)
    wanted = [
        Turn(one.round_number, one.demander, one.supplier, one.start_s, min(one.end_s, window_s))
        for one in whole.turns
        if one.start_s < window_s
    ]
    assert list(cut.turns) == wanted
    assert cut.rounds == whole.rounds


def test_a_schedule_worked_out_by_hand_is_reproduced() -> None:
    record = serve([25, 10, 5], [1, 0, 2], 10, [7, 3])
    assert record.turns == (
        Turn(1, 1, 7, 0, 10),
        Turn(1, 0, 3, 0, 10),
        Turn(1, 2, 7, 10, 15),
        Turn(2, 0, 3, 10, 20),
        Turn(3, 0, 7, 20, 25),
    )
    assert record.waits_s.tolist() == [0, 0, 10]
    assert record.first_start_s.tolist() == [0, 0, 10]


def test_a_demander_that_is_never_served_has_no_wait() -> None:
    record: ScheduleRecord = serve([10, 10], [0, 1], 10, [0], window_s=10)
    assert numpy.isnan(record.first_start_s).tolist() == [False, True]
    assert list(record.served_s) == [10, 0]


def test_the_generator_determines_the_random_sequence_of_suppliers() -> None:
    sequence = supplier_sequence(20, numpy.random.default_rng(3))
    assert sorted(sequence) == list(range(20))
    assert sequence == supplier_sequence(20, numpy.random.default_rng(3))
    assert sequence != supplier_sequence(20, numpy.random.default_rng(4))


def test_a_schedule_without_a_supplier_is_refused() -> None:
    with pytest.raises(ScheduleError, match="at least one"):
        serve([1], [0], 1, [])
