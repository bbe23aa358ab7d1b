"""Turns and waits, by hand, compared with a simulation of taking turns, and as properties."""

from collections import deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accounting.errors import ScheduleError
from models.scheduling.time_slices import (
    MOST_TURNS,
    choose_slice,
    cost_of,
    turns_of,
    waits_of,
)

slices = st.floats(0.1, 1e4)


@st.composite
def demands(draw: st.DrawFn) -> tuple[list[float], list[int], float]:
    """Durations (some of them zero or whole slices), an order, and a slice that makes at most 50 rounds."""
    slice_s = draw(slices)
    a_duration = st.floats(0, 50 * slice_s) | st.integers(0, 50).map(lambda turns: turns * slice_s)
    durations = draw(st.lists(a_duration, max_size=12))
    return durations, draw(st.permutations(range(len(durations)))), slice_s


def taken_in_turns(durations_s: list[float], order: list[int], slice_s: float) -> list[float]:
    """How long each demander waits if one supplier serves the queue turn by turn."""
    queue = deque(demander for demander in order if durations_s[demander] > 0)
    left_turns = turns_of(durations_s, slice_s)
    had = [0] * len(durations_s)
    now_s, waits_s = 0.0, [0.0] * len(durations_s)
    while queue:
        demander = queue.popleft()
        now_s += min(slice_s, durations_s[demander] - had[demander] * slice_s)
        had[demander] += 1
        if had[demander] < left_turns[demander]:
            queue.append(demander)
        else:
            waits_s[demander] = now_s - durations_s[demander]
    return waits_s


@given(st.lists(st.floats(0, 1e6), max_size=20), slices)
@example([0.9], 0.3)  # as floats, 0.9 / 0.3 is 3, but 3 * 0.3 is less than 0.9
def test_the_turns_are_enough_and_one_turn_fewer_is_not(durations: list[float], slice_s: float) -> None:
    if sum(durations) / slice_s > MOST_TURNS - len(durations):
        return
    for turns, duration_s in zip(turns_of(durations, slice_s).tolist(), durations, strict=True):
        assert turns * slice_s >= duration_s
        assert duration_s > (turns - 1) * slice_s
        assert (turns == 0) == (duration_s == 0)


@given(st.integers(1, 1000), slices)
def test_a_whole_number_of_slices_takes_as_many_turns(turns: int, slice_s: float) -> None:
    assert turns_of([turns * slice_s], slice_s).tolist() == [turns]


@given(demands())
def test_waits_are_those_of_a_simulated_queue(
    demand: tuple[list[float], list[int], float],
) -> None:
    durations, order, slice_s = demand
    simulated = taken_in_turns(durations, order, slice_s)
    tolerance = pytest.approx(simulated, abs=1e-6 * (1 + sum(durations)))
    assert waits_of(durations, order, slice_s).tolist() == tolerance


def test_waits_are_those_worked_out_by_hand() -> None:
    # Turns of 10 s in the order b, a, c: b 10, a 10, c 5; a 10; a 5.
    assert waits_of([25, 10, 5], [1, 0, 2], 10).tolist() == [15, 0, 20]
    cost = cost_of([25, 10, 5], [1, 0, 2], 10)
    assert cost.turns == 5
    assert cost.mean_wait_s == pytest.approx(35 / 3)
    assert cost.cost_s == pytest.approx(5 + 35 / 3)
    assert cost_of([25, 10, 5], [1, 0, 2], 10, turn_s=3).cost_s == pytest.approx(15 + 35 / 3)


def test_the_slice_with_the_least_turns_and_mean_wait_is_taken() -> None:
    # Behind a large demander, a small one waits 1,000 s if each is served whole, and one slice otherwise.
    durations, order = [1000.0, 10.0], [0, 1]
    costs = {slice_s: cost_of(durations, order, slice_s).cost_s for slice_s in (1.0, 10.0, 100.0, 1000.0)}
    # The small one waits 10, 10, 100 and 1,000 s; the large one waits for all of it, unless it is served whole.
    assert costs == {
        1.0: pytest.approx(1010 + (10 + 10) / 2),
        10.0: pytest.approx(101 + (10 + 10) / 2),
        100.0: pytest.approx(11 + (10 + 100) / 2),
        1000.0: pytest.approx(2 + (0 + 1000) / 2),
    }
    assert choose_slice(durations, order, list(costs)).slice_s == 100
    assert choose_slice(durations, order, list(costs), turn_s=20).slice_s == 100
    assert choose_slice(durations, order, list(costs), turn_s=0.01).slice_s == 10
    assert choose_slice(durations, order, list(costs), turn_s=200).slice_s == 1000


def test_the_longest_of_slices_that_cost_the_same_is_taken() -> None:
    assert choose_slice([5, 5], [0, 1], [7, 9, 8]).slice_s == 9


def test_no_demanders_have_no_waits_and_no_cost() -> None:
    assert waits_of([], [], 1).tolist() == []
    assert cost_of([], [], 1).cost_s == 0


@pytest.mark.parametrize(
    ("durations", "order", "slice_s", "told"),
    [
        ([1.0], [0], 0.0, "the slice in seconds is 0"),
        ([1.0], [0], float("nan"), "the slice in seconds is nan"),
        ([1.0, 2.0], [0, 0], 1.0, "name each number below 2 once"),
        ([1.0, 2.0], [0], 1.0, "name each number below 2 once"),
        ([-1.0], [0], 1.0, "planned durations must be"),
        ([1e9], [0], 1.0, "1e\\+09 turns, more than 1,000,000; give longer ones, such as 2e\\+03 s"),
        ([1e300], [0], 1e-300, "inf turns"),
    ],
)
def test_demand_that_cannot_be_planned_is_refused(
    durations: list[float], order: list[int], slice_s: float, told: str
) -> None:
    with pytest.raises(ScheduleError, match=told):
        waits_of(durations, order, slice_s)


def test_a_choice_without_candidates_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no candidate slice"):
        choose_slice([1], [0], [])
