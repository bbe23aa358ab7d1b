"""A standing order is used although it gains nothing yet, left where it costs something, and no other is tried."""

from __future__ import annotations

import msgspec
import pytest

from models.planning.orders import AS_IS, STRENGTH
from models.planning.planning import STANDING, plan
from models.planning.problem import Bounds, Objective, Problem
from tests.models.planning.problems import holding, job, machine
from tests.models.planning.test_planning import order_after


def two_beside_a_wide_one(wide_s: float) -> Problem:
    """Two jobs of 100 s on half of the machine each, and one that needs all of it."""
    halves = [job(1 + at, cpus=2, run_s=100.0, upper_s=100.0) for at in range(2)]
    return Problem(
        machines=(machine(4),), pending=(*halves, job(3, cpus=4, run_s=wide_s, upper_s=wide_s)), running=()
    )


@pytest.mark.parametrize("objective", ["slowdown", "wait"])
def test_the_shortest_first_stands_though_nothing_is_gained_by_it_yet(objective: Objective) -> None:
    """A job that comes before the next plan then finds the short jobs before the long ones."""
    pending = (job(1, cpus=4, run_s=60.3), job(2, cpus=4, run_s=60.0))
    problem = Problem(machines=(machine(4),), pending=pending, running=())
    found = plan(problem, Bounds(objective=objective))
    assert (found.order, order_after(problem, found)) == (STANDING[objective], [2, 1])
    assert 0 < found.gain < Bounds().least_gain
    assert f'"{STANDING[objective]}" is kept' in found.why


@pytest.mark.parametrize(("earlier_s", "expected"), [(0.9, [2, 1]), (1.1, [1, 2])])
def test_an_earlier_job_is_passed_by_none_that_saves_less_than_it_came_earlier(
    earlier_s: float, expected: list[int]
) -> None:
    """A second of likely run time counts as much as STRENGTH seconds of having come later."""
    long = job(1, cpus=4, run_s=60.3, waited_s=100.0 + 0.3 * STRENGTH * earlier_s)
    problem = Problem(
        machines=(machine(4),),
        pending=(long, job(2, cpus=4, run_s=60.0, waited_s=100.0)),
        running=(),
    )
    assert order_after(problem, plan(problem, Bounds())) == expected


def test_where_an_order_stands_no_other_is_tried() -> None:
    """Two narrow jobs at once are best first; that this is better by half is known only from a rollout."""
    narrow = [job(2 + at, cpus=1, run_s=60.5) for at in range(2)]
    wide = job(1, cpus=4, run_s=60.0)
    problem = Problem(machines=(machine(4),), pending=(*narrow, wide), running=())
    assert plan(problem, Bounds()).order == AS_IS
    assert {one.order for one in plan(problem, Bounds()).tried} == {AS_IS, STANDING["slowdown"]}
    assert len(plan(problem, Bounds(objective="utilisation")).tried) > 3


@pytest.mark.parametrize("objective", ["utilisation", "energy"])
def test_no_order_stands_for_other_objectives(objective: Objective) -> None:
    found = plan(two_beside_a_wide_one(90.0), Bounds(objective=objective, least_gain=0.9999))
    assert (found.order, found.changes) == (AS_IS, ())


@pytest.mark.parametrize(("wide_s", "stands"), [(90.0, False), (20.0, True)])
def test_the_shortest_first_does_not_stand_where_it_costs_something(wide_s: float, stands: bool) -> None:
    # As it is, slowdowns are 1, 1 and (100 + wide) / wide; with the wide job first, 1 and twice (100 + wide) / 100.
    found = plan(two_beside_a_wide_one(wide_s), Bounds())
    assert (found.order == STANDING["slowdown"]) is stands
    assert bool(found.changes) is stands


def queue_of(*sizes: tuple[int, float], last_kept: str = "", left_s: float = 0.0) -> Problem:
    """A machine of four CPUs and pending jobs of these CPUs and seconds; a job of three CPUs runs for `left_s` more."""
    pending = [
        job(1 + at, cpus=cpus, run_s=run_s, limit_s=25_000.0) for at, (cpus, run_s) in enumerate(sizes)
    ]
    pending[-1] = msgspec.structs.replace(pending[-1], kept=last_kept)
    running = (holding(0, 3, left_s),) if left_s else ()
    return Problem(machines=(machine(4),), pending=tuple(pending), running=running)


def test_a_job_that_keeps_its_place_does_not_start_later_for_it() -> None:
    sizes = ((3, 600.0), (4, 3600.0), (1, 600.0), (4, 60.0), (1, 7200.0))
    found = plan(queue_of(*sizes, last_kept="top priority", left_s=600.0), Bounds(), seed=5)
    assert found.jobs[-1].start_s <= found.jobs[-1].base_start_s + 1.0


@pytest.mark.parametrize(
    ("sizes", "left_s"),
    [
        (((4, 7200.0), (1, 60.0), (4, 20_000.0), (1, 600.0)), 0.0),
        (((4, 7200.0), (3, 7200.0), (3, 600.0), (3, 600.0)), 3600.0),
    ],
)
def test_a_job_that_would_start_too_late_is_moved_up_and_the_others_move_all_the_same(
    sizes: tuple[tuple[int, float], ...], left_s: float
) -> None:
    found = plan(queue_of(*sizes, left_s=left_s), Bounds(most_delay_s=600.0), seed=5)
    assert found.changes
    assert all(one.start_s <= one.base_start_s + 600.0 for one in found.jobs)
