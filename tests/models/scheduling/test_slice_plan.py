"""Performance of records, by hand and as properties, and the choice among candidates with its reason."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ScheduleError
from models.scheduling.performance import Performance, blocking_rate, measure, unused_variance
from models.scheduling.round_robin import serve
from models.scheduling.slice_plan import Candidate, Supply, best_of, plan
from models.scheduling.time_slices import SliceCost, choose_slice
from tests.models.scheduling.test_time_slices import demands

Demand = tuple[list[float], list[int], float]


@given(demands(), st.integers(1, 3), st.floats(0.1, 1e5), st.data())
def test_blocking_is_a_share_and_0_where_all_is_served(
    demand: Demand, suppliers: int, window_s: float, data: st.DataObject
) -> None:
    durations, order, slice_s = demand
    count = len(durations)
    volumes = data.draw(st.lists(st.floats(0, 1e6), min_size=count, max_size=count))
    cut = serve(durations, order, slice_s, range(suppliers), window_s)
    assert 0 <= blocking_rate(volumes, durations, cut) <= 1
    assert unused_variance(cut) >= 0
    whole = serve(durations, order, slice_s, range(suppliers))
    assert measure(volumes, durations, whole).meets_demand


def test_performance_is_that_worked_out_by_hand() -> None:
    # Rounds of 10 s in the order 0, 1, 2: all three, then 0 and 1, then 0; the window ends in the second turn of 1.
    record = serve([30, 20, 5], [0, 1, 2], 10, [0], window_s=40)
    assert list(record.served_s) == [20, 15, 5]
    # Blocked are a third of 6, a quarter of 4 and nothing of 2, out of 12.
    assert blocking_rate([6, 4, 2], [30, 20, 5], record) == pytest.approx(3 / 12)
    # Half of what takes half a second.
    assert blocking_rate([8], [0.5], serve([0.5], [0], 1, [0], window_s=0.25)) == 0.5
    # Unused slices: 0, 1 and 3.
    assert unused_variance(record) == pytest.approx(numpy.var([0, 1, 3]))


def test_where_nothing_is_planned_nothing_is_blocked() -> None:
    assert measure([], [], serve([], [], 1, [0])) == Performance(blocking_rate=0, unused_variance=0)


def judged(blocking: float, variance: float, cost_s: float = 1.0) -> Candidate:
    return Candidate(
        order=(0,),
        cost=SliceCost(slice_s=1, turns=1, mean_wait_s=0, cost_s=cost_s),
        performance=Performance(blocking_rate=blocking, unused_variance=variance),
    )


def test_candidates_are_compared_by_blocking_then_variance_then_cost() -> None:
    first, second, third, fourth = judged(0.3, 0), judged(0.2, 5), judged(0.2, 4), judged(0.2, 4, cost_s=0.5)
    assert best_of([first, second, third]) is third
    assert best_of([first, second, third, fourth]) is fourth
    assert best_of([second, first]) is second
    assert best_of([judged(0.2 + 1e-12, 1), judged(0.2, 2)]).performance.unused_variance == 1, (
        "a share that differs by rounding alone is the same"
    )


def supply(window_s: float) -> Supply:
    return Supply(suppliers=1, window_s=window_s, slices_s=(1, 5, 20, 100), orders=4)


def test_the_patents_first_choice_is_used_where_supply_meets_demand() -> None:
    durations = [100.0, 30, 20, 5, 5]
    planned = plan([10, 3, 2, 1, 1], durations, supply(160), numpy.random.default_rng(1))
    assert planned.tried == (planned.chosen,)
    assert planned.chosen.cost == choose_slice(durations, planned.chosen.order, (1, 5, 20, 100))
    assert planned.reason.startswith(
        "it serves all that is planned; of the candidate slices it has the least turns"
    )


def test_the_candidate_of_least_blocking_is_used_where_supply_does_not_meet_demand() -> None:
    planned = plan([10, 3, 2, 9, 1], [100.0, 30, 20, 5, 5], supply(60), numpy.random.default_rng(1))
    assert len(planned.tried) == 16
    assert measure([10, 3, 2, 9, 1], [100.0, 30, 20, 5, 5], planned.record) == planned.chosen.performance
    rates = [one.performance.blocking_rate for one in planned.tried]
    assert planned.chosen.performance.blocking_rate == pytest.approx(min(rates))
    assert min(rates) < max(rates)
    assert planned.reason.startswith(
        f"the slice of least turns and mean wait would block {rates[0]:.1%} of the planned volume; of 16 candidates "
        f"this one blocks least ({min(rates):.1%}; the most is {max(rates):.1%})"
    )
    variance = planned.chosen.performance.unused_variance
    assert f"its variance is {variance:.2f}, " in planned.reason
    assert planned.reason.endswith("the least of all") == (
        variance == min(one.performance.unused_variance for one in planned.tried)
    )


@given(demands(), st.integers(0, 1000))
def test_the_same_generator_gives_the_same_plan(demand: Demand, seed: int) -> None:
    durations, _, slice_s = demand
    settings = Supply(suppliers=2, window_s=5 * slice_s, slices_s=(slice_s, 2 * slice_s), orders=2)
    one, other = (plan(durations, durations, settings, numpy.random.default_rng(seed)) for _ in range(2))
    assert (one.chosen, one.reason) == (other.chosen, other.reason)


@pytest.mark.parametrize(
    ("suppliers", "window_s", "slices_s", "orders"),
    [(0, 1.0, (1.0,), 1), (1, 0.0, (1.0,), 1), (1, 1.0, (), 1), (1, 1.0, (1.0,), 0)],
)
def test_a_supply_of_nothing_is_refused(
    suppliers: int, window_s: float, slices_s: tuple[float, ...], orders: int
) -> None:
    with pytest.raises(ScheduleError, match="at least one supplier"):
        Supply(suppliers=suppliers, window_s=window_s, slices_s=slices_s, orders=orders)
