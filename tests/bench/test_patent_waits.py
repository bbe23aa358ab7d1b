"""The benchmark of the patent's method: days of demand, waits by hand, and what it must show on real days."""

import msgspec
import numpy
import pytest

from bench.patent_loads import DAY_S, LEAST_CONSUMERS, PHILLY, Day, philly_days, seeded_days
from bench.patent_tables import (
    LEAST_BLOCKING,
    LEAST_VARIANCE,
    SERVES_ALL,
    Planned,
    candidate_rows,
    choice_rows,
    each_rows,
    map_rows,
    reason_of,
    reason_rows,
)
from bench.patent_waits import goals, planned_days, wait_rows, waits_of_day
from models.scheduling.performance import Performance
from models.scheduling.slice_plan import Supply, plan
from tests.traces import TRACES, needs_traces

on_traces = needs_traces(PHILLY)


def a_day() -> Planned:
    """Three consumers who need 2, 1 and half an hour, planned to need one hour each."""
    hours = numpy.array([2.0, 1.0, 0.5])
    day = Day(name="one", consumers=("a", "b", "c"), volumes=numpy.array([8.0, 4, 2]), gpu_s=hours * 3600)
    planned_s = numpy.full(3, 3600.0)
    supply = Supply(suppliers=1, window_s=2 * 3600, slices_s=(3600,))
    return Planned(
        day=day,
        planned_s=planned_s,
        by_volume_s=day.volumes * 3600,
        own_mean_s=hours * 3600,
        real_s=hours * 3600,
        plan=plan(day.volumes, planned_s, supply, numpy.random.default_rng(1)),
    )


def test_waits_of_a_day_are_those_worked_out_by_hand() -> None:
    # In turns of one hour, in the order they came: a 0-1 h, b 1-2 h, c 2-2.5 h, a 2.5-3.5 h.
    waits = waits_of_day(a_day(), numpy.arange(3), 3600, suppliers=1)
    assert waits == {
        "longest wait": 2,
        "small by volume": pytest.approx((1 + 2) / 2),
        "small by time": pytest.approx((1 + 2) / 2),
        "mean wait": pytest.approx((1.5 + 1 + 2) / 3),
        "longest until first turn": 2,
        "turns": 4,
    }


def test_tables_of_plans_are_those_worked_out_by_hand() -> None:
    planned = a_day()
    wmape = {row["way"]: row["WMAPE"] for row in map_rows([planned])}
    assert wmape["map of volumes to durations"] == pytest.approx((1 + 0 + 0.5) / 3.5, abs=0.001)
    assert wmape["consumer's own mean, no volume"] == 0
    # Two of three planned hours are served; the last of the order is blocked, and 2 of 14 is the least possible.
    assert planned.plan.chosen.performance.blocking_rate == pytest.approx(2 / 14)
    assert [
        (row["slice (s)"], row["candidates"], row["days chosen"]) for row in candidate_rows([planned])
    ] == [(3600, len(planned.plan.tried), 1)]
    rows = each_rows([planned])
    assert len(rows) == len(planned.plan.tried)
    assert [row["chosen"] for row in rows].count("yes") == 1
    assert "blocks least (14.3%; the most is" in str(choice_rows([planned])[0]["why"])


def test_reasons_of_plans_are_those_worked_out_by_hand() -> None:
    # In six of eight heaps the last consumer is last, and its 2 of 14 are blocked; a window of a day serves all.
    short, supply = a_day(), Supply(suppliers=1, window_s=DAY_S, slices_s=(3600,))
    served = plan(short.day.volumes, short.planned_s, supply, numpy.random.default_rng(1))
    long = msgspec.structs.replace(short, plan=served)
    rows = reason_rows([long, short, long])
    assert [(row["why it is used"], row["days"], row["slices (s)"], row["blocking %"]) for row in rows] == [
        (SERVES_ALL, 2, "3,600 on 2", 0),
        (LEAST_VARIANCE, 1, "3,600 on 1", 14.29),
    ]
    best, *others = short.plan.tried
    blocked = msgspec.structs.replace(
        others[0], performance=Performance(blocking_rate=0.5, unused_variance=0)
    )
    alone = msgspec.structs.replace(short.plan, chosen=best, tried=(blocked, best))
    assert reason_of(alone) == LEAST_BLOCKING


def test_days_are_planned_only_by_what_came_before() -> None:
    days = seeded_days(3)[:9]
    planned = list(planned_days(days, suppliers=2, seed=1))
    assert [one.day.name for one in planned] == ["day 8", "day 9"]
    # Nothing is learned from the last day, which only changes how many GPUs the mean day fills.
    last = days[-1]
    other = Day(
        name=last.name, consumers=last.consumers, volumes=last.volumes + 1, gpu_s=numpy.roll(last.gpu_s, 1)
    )
    again = list(planned_days([*days[:-1], other], suppliers=2, seed=1))
    assert again[0].planned_s == pytest.approx(planned[0].planned_s)
    assert again[0].plan.reason == planned[0].plan.reason


def test_the_mean_day_fills_the_cluster() -> None:
    days = seeded_days(3)
    planned = list(planned_days(days, suppliers=2, seed=1))
    gpus = planned[0].day.gpu_s[0] / planned[0].real_s[0] * 2
    assert gpus * DAY_S == pytest.approx(numpy.mean([day.gpu_s.sum() for day in days]))


def test_slices_spare_small_consumers_of_a_seeded_load() -> None:
    planned = list(planned_days(seeded_days(1)[:10], suppliers=1, seed=1))
    assert {row["met"] for row in goals(wait_rows(planned, suppliers=1, seed=1))} == {"yes"}


@on_traces
def test_days_of_the_trace_are_complete_and_in_order() -> None:
    days = philly_days(TRACES)
    names = [day.name for day in days]
    assert names == sorted(names)
    assert "2017-10-21" not in names, "the trace ends within that day"
    assert all(len(day.consumers) >= LEAST_CONSUMERS for day in days)
    assert all((day.gpu_s >= day.volumes).all() for day in days), "no job is shorter than a second"
