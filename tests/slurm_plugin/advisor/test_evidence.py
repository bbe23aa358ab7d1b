"""What is journalled of a cycle: when each job should start, why, and which jobs of a large queue at all."""

import math
from typing import Any

from accounting.journal.advice import AdvisedJob, Cycle
from models.planning.problem import Plan, PlannedJob, Problem, Tried
from slurm_plugin.advisor.evidence import MOST_JOBS, cycle_of, told
from slurm_plugin.slurm.queue import Written
from tests.models.planning.problems import job
from tests.slurm_plugin.slurm.queued import NOW_S, snapshot, waiting


def planned(job_id: int, **fields: Any) -> PlannedJob:
    given: dict[str, Any] = {
        "before": 0, "after": 0, "base_start_s": 60.0, "start_s": 50.0, "low_s": 40.0, "high_s": 90.0,
        "reason": "as it is", **fields,
    }  # fmt: skip
    return PlannedJob(job_id=job_id, **given)


def plan(*jobs: PlannedJob, **fields: Any) -> Plan:
    given: dict[str, Any] = {"order": "shortest", "why": "better", "gain": 0.25, "tried": (), **fields}
    return Plan(jobs=jobs, **given)


def journaled(found: Plan, **fields: Any) -> Cycle:
    problem = Problem(machines=(), pending=(job(1, run_s=300.0),), running=())
    return cycle_of(
        snapshot(waiting(1)), problem, found, cycle_id="c", cluster="alpha", objective="slowdown",
        applied=True, control=False, **fields,
    )  # fmt: skip


def test_a_job_is_journalled_in_unix_seconds_with_the_outcome_of_its_change() -> None:
    changed = planned(1, after=700, reason="moved")
    [found] = journaled(plan(changed), written=[Written(job_id=1, problem="started")]).jobs
    assert found == AdvisedJob(
        job_id=1, submit_s=NOW_S - 60, before=0, after=700, base_start_s=NOW_S + 60, start_s=NOW_S + 50,
        low_s=NOW_S + 40, high_s=NOW_S + 90, likely_s=300.0, reason="moved", problem="started",
    )  # fmt: skip
    [found] = journaled(plan(changed), written=[Written(job_id=1)]).jobs
    assert found.problem == ""


def test_a_start_beyond_the_horizon_is_unknown() -> None:
    late = planned(1, base_start_s=math.inf, start_s=math.inf, high_s=math.inf)
    tried = (Tried(order="as it is", value=math.inf), Tried(order="shortest", value=2.0))
    cycle = journaled(plan(late, gain=math.nan, tried=tried))
    [found] = cycle.jobs
    assert (found.base_start_s, found.start_s, found.low_s, found.high_s) == (None, None, NOW_S + 40, None)
    assert (cycle.gain, cycle.tried) == (0.0, (("shortest", 2.0),))
    assert journaled(plan(late)).gain == 0.25


def test_changed_jobs_are_journalled_first_then_a_sample_of_the_new_ones() -> None:
    new, changed = [planned(number) for number in range(1, 3 * MOST_JOBS)], planned(5000, after=7)
    found = told(plan(*new, changed), frozenset([1, 2, 3]))
    assert found[0] == changed
    assert len(found) == MOST_JOBS
    lot = {one.job_id for one in found[1:]}
    assert lot < set(range(4, 3 * MOST_JOBS))
    # Late jobs are as likely to be in it as the first, and the sample is the same whatever their order.
    assert MOST_JOBS / 3 < sum(number > 1.5 * MOST_JOBS for number in lot) < 2 * MOST_JOBS / 3
    assert told(plan(changed, *reversed(new)), frozenset([1, 2, 3])) == found
    assert told(plan(*new[:9], changed), frozenset(range(1, 9)) | {5000}) == [changed, new[8]]
    many = [planned(number, after=1) for number in range(MOST_JOBS + 1)]
    assert len(told(plan(*many), frozenset())) == MOST_JOBS
