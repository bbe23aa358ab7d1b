"""Windows of a cell's machines: how they combine with each other and with running jobs."""

import math
from itertools import combinations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.planning.cell_windows import Held, lasting, windows_beside
from models.scheduling.availability import Window
from models.scheduling.room import Amounts

CAPACITY = numpy.array([[4000, 6000], [64, 32], [2, 0]], dtype=numpy.int64)
# The cell has these of the problem's machines, in these columns.
PLACE = {7: 0, 9: 1}
NODES = {column: number for number, column in PLACE.items()}


def held(limit_left_s: float, *parts: tuple[int, tuple[int, int, int]]) -> Held:
    return Held(parts=parts, limit_left_s=limit_left_s, likely_left_s=1.0, user=0)


def window(from_s: float, to_s: float, amounts: tuple[int, int, int], node: int = 7) -> Window:
    return Window(node=node, from_s=from_s, to_s=to_s, amounts=amounts)


amounts = st.tuples(st.integers(0, 5) | st.just(3000), st.integers(0, 40), st.integers(0, 3)) | st.just(
    (0, 0, 1)
)
windows = st.lists(
    st.builds(
        window,
        st.sampled_from([-50.0, 0.0, 10.0, 30.0]),
        st.sampled_from([-5.0, 0.0, 20.0, 40.0, math.inf]),
        amounts,
        st.sampled_from([7, 9, 8]),
    ),
    max_size=4,
)
# All running jobs together fit on what the machines have.
running = st.lists(
    st.builds(
        held,
        st.sampled_from([1.0, 10.0, 15.0, 50.0]),
        st.just((0, (1000, 10, 0))) | st.just((0, (100, 0, 1))),
        st.just((1, (2000, 8, 0))),
    )
    | st.builds(held, st.sampled_from([5.0, 25.0]), st.just((1, (500, 1, 0)))),
    max_size=2,
)


def lacks(given: list[Window], node: int, at_s: float) -> Amounts:
    """What all windows together take of a node at a moment."""
    taken = [one.amounts for one in given if one.node == node and one.from_s <= at_s < one.to_s]
    return added_up(taken)


def added_up(taken: list[Amounts]) -> Amounts:
    return tuple(sum(column) for column in zip(*taken, (0, 0, 0), strict=True))


@given(windows, running)
def test_a_machine_lacks_what_its_windows_take_and_never_more_than_it_has(
    told: list[Window], runs: list[Held]
) -> None:
    found, beside = windows_beside(told, PLACE, CAPACITY, runs)
    assert all(0.0 <= one.from_s < one.to_s and any(one.amounts) for one in found)
    assert all(one.parts for one in beside)
    for one, other in combinations(found, 2):
        assert one.node != other.node or one.to_s <= other.from_s or other.to_s <= one.from_s
    for column, node in NODES.items():
        here = [one for one in told if one.node == node and one.to_s > max(0.0, one.from_s)]
        begins_s = min((max(0.0, one.from_s) for one in here), default=math.inf)
        parts = [(run, amounts) for run in runs for machine, amounts in run.parts if machine == column]
        for at_s in (0.0, 5.0, 12.0, 22.0, 35.0, 45.0, 1e9):
            # A job that may still run when a window begins holds its part until then.
            held_by = [amounts for run, amounts in parts if at_s < begins_s < run.limit_left_s]
            wanted = added_up([lacks(here, node, at_s), *held_by])
            assert lacks(list(found), column, at_s) == tuple(map(min, wanted, CAPACITY[:, column]))
        assert [amounts for run, amounts in parts if run.limit_left_s <= begins_s] == [
            amounts for run in beside for machine, amounts in run.parts if machine == column
        ]


def test_a_job_on_two_machines_of_which_one_goes_down_runs_on_on_the_other() -> None:
    on_both = held(100.0, (0, (1000, 10, 0)), (1, (2000, 8, 0)))
    found, beside = windows_beside([window(60.0, 80.0, (4000, 64, 2))], PLACE, CAPACITY, [on_both])
    assert [(one.node, one.from_s, one.to_s, one.amounts) for one in found] == [
        (0, 0.0, 60.0, (1000, 10, 0)),
        (0, 60.0, 80.0, (4000, 64, 2)),
    ]
    assert beside == [held(100.0, (1, (2000, 8, 0)))]


def test_a_job_that_has_ended_when_a_window_begins_is_not_touched_by_it() -> None:
    runs = [held(60.0, (0, (1000, 10, 0)))]
    found, beside = windows_beside([window(60.0, 80.0, (0, 0, 1))], PLACE, CAPACITY, runs)
    assert [(one.from_s, one.to_s, one.amounts) for one in found] == [(60.0, 80.0, (0, 0, 1))]
    assert beside == runs


@pytest.mark.parametrize(("to_s", "left"), [(1e6, [6000, 32, 0]), (math.inf, [3000, 0, 0])])
def test_what_comes_back_after_a_window_counts_as_lasting(to_s: float, left: list[int]) -> None:
    gone = Window(node=1, from_s=0.0, to_s=to_s, amounts=(3000, 32, 0))
    assert lasting(CAPACITY, [gone]).T.tolist() == [[4000, 64, 2], left]
    assert CAPACITY[0, 1] == 6000
