"""Rollouts in which some jobs may preempt others: which job starts when, and at whose cost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from models.planning.planning import plan
from models.planning.problem import Bounds, Coming, Holding, Pending, Problem, Yields
from models.planning.rollout import expected_starts
from tests.models.planning.problems import POOL, holding, job, machine, problems

LOW = Yields(above=1)


def high(job_id: int, **fields: Any) -> Pending:
    """Return a job of a tier to which LOW yields; it comes before the others."""
    return job(job_id, tier=2, **fields)


def low(job_id: int, **fields: Any) -> Pending:
    return job(job_id, yields=LOW, **fields)


def held(machine: int, cpus: int, left_s: float, yields: Yields | None = LOW) -> Holding:
    return msgspec.structs.replace(holding(machine, cpus, left_s), yields=yields)


def starts(problem: Problem) -> list[float]:
    return [span.start_s for span in expected_starts(problem, samples=0)]


def problem(*pending: Pending, running: tuple[Holding, ...], machines: int = 1, **others: Any) -> Problem:
    return Problem(machines=(machine(4),) * machines, pending=pending, running=running, **others)


@pytest.mark.parametrize(
    ("tier", "yields", "start_s"),
    [
        (2, LOW, 0.0),
        (1, LOW, 900.0),
        (2, None, 900.0),
        (2, Yields(above=2), 900.0),
        # The running job has run for 10 s.
        (2, Yields(above=1, exempt_s=300.0), 290.0),
        (2, Yields(above=1, exempt_s=10.0), 0.0),
    ],
)
def test_a_job_that_may_preempt_starts_as_soon_as_it_may(
    tier: int, yields: Yields | None, start_s: float
) -> None:
    assert starts(problem(job(1, cpus=4, tier=tier), running=(held(0, 4, 900.0, yields),))) == [start_s]


def test_a_preempting_job_waits_for_jobs_that_do_not_yield_and_then_takes_the_rest() -> None:
    running = (held(0, 2, 900.0), held(0, 2, 100.0, None))
    assert starts(problem(high(1, cpus=4), running=running)) == [100.0]


def test_free_room_is_used_first_and_running_jobs_go_on() -> None:
    running = (held(0, 4, 900.0), held(1, 2, 500.0))
    # The two free CPUs of the second node are enough, so the job that runs there ends as usual.
    found = starts(problem(high(1, cpus=2), low(2, cpus=4), machines=2, running=running))
    assert found == [0.0, 500.0]


def test_as_few_jobs_are_preempted_as_are_enough() -> None:
    running = (held(0, 1, 900.0), held(0, 3, 800.0), held(1, 4, 500.0))
    # The jobs of one node are enough for the first; on the other node the job runs on.
    found = starts(problem(high(1, cpus=4, run_s=1000.0), low(2, cpus=4), machines=2, running=running))
    assert found == [0.0, 500.0]


def test_a_job_that_does_not_yield_to_the_tier_runs_on_beside_one_that_does() -> None:
    running = (held(0, 2, 900.0), held(0, 2, 500.0, Yields(above=2)))
    # The second job needs all of the node: it waits for the one that may not be preempted, and for no other.
    assert starts(problem(high(1, cpus=2), job(2, cpus=4), running=running)) == [0.0, 500.0]


def test_a_job_that_started_meanwhile_may_be_preempted_by_one_that_comes() -> None:
    later = Coming(
        at_s=50.0, pools=POOL, priority=1, demand=(4000, 4, 0), limit_s=60.0, likely_s=60.0, tier=2
    )  # fmt: skip
    waiting = (low(1, cpus=4, run_s=1000.0), low(2, cpus=4))
    assert starts(problem(*waiting, running=())) == [0.0, 1000.0]
    # The first is preempted by the job that comes; when requeued, it is behind the second.
    assert starts(problem(*waiting, running=(), coming=((later,),))) == [0.0, 110.0]


def test_a_job_preempts_only_on_nodes_of_its_partition() -> None:
    other = frozenset([1])
    machines = (machine(4, POOL), machine(4, other))
    both = frozenset([0, 1])
    found = Problem(
        machines=machines,
        pending=(high(1, cpus=4, pools=other), job(2, cpus=4, pools=both)),
        running=(held(0, 4, 700.0), held(1, 4, 900.0)),
    )
    assert starts(found) == [0.0, 60.0]


def test_nothing_passes_a_job_that_preempts() -> None:
    running = (held(0, 2, 900.0), held(0, 2, 100.0, None))
    # The room that the ending job leaves would hold the second, and for long enough; but the first takes all of it.
    found = starts(problem(high(1, cpus=4, run_s=60.0), low(2, cpus=2, run_s=50.0), running=running))
    assert found == [100.0, 160.0]


@given(problems())
@settings(max_examples=25, deadline=None)
def test_where_no_job_may_preempt_all_is_as_without_preemption(drawn: Problem) -> None:
    least = Yields(above=max(one.tier for one in drawn.pending))
    replace = msgspec.structs.replace
    yielding = replace(
        drawn,
        pending=tuple(replace(one, yields=least) for one in drawn.pending),
        running=tuple(replace(one, yields=least) for one in drawn.running),
    )
    assert starts(yielding) == starts(drawn)


@given(problems())
@settings(max_examples=25, deadline=None)
def test_a_plan_is_made_of_any_queue_with_preemption(drawn: Problem) -> None:
    replace = msgspec.structs.replace
    yielding = replace(
        drawn,
        pending=tuple(replace(one, yields=LOW if one.tier == 1 else None) for one in drawn.pending),
        running=tuple(replace(one, yields=LOW) for one in drawn.running),
    )
    found = plan(yielding, Bounds())
    assert len(found.jobs) == len(drawn.pending)
    assert plan(yielding, Bounds()) == found
