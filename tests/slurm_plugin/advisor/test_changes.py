"""What of a plan is written: no factor of which Slurm would lose a part, and none on jobs that keep their place."""

import math

import pytest

from models.planning.problem import Pending, Plan, PlannedJob, Problem
from slurm_plugin.advisor.changes import writable


@pytest.mark.parametrize(
    ("priority", "after", "kept", "out", "written"),
    [
        (10, -9, "", False, -9),
        (10, -10, "", False, -9),  # 10 - 10 is 0, of which Slurm makes 1
        (1, -5, "", False, 0),
        (10, 7, "", False, 7),
        (10, 7, "held back by its user", False, 0),
        (10, 7, "waits for another job", True, 7),
    ],
)
def test_a_factor_is_written_as_far_as_slurm_counts_it(
    priority: int, after: int, kept: str, out: bool, written: int
) -> None:
    waiting = Pending(
        job_id=1, account=0, user=0, pools=frozenset({0}), priority=priority, factor=3, demand=(1,),
        limit_s=60, likely_s=60, upper_s=60, waited_s=0, kept=kept, out=out,
    )  # fmt: skip
    planned = PlannedJob(
        job_id=1,
        before=3,
        after=after,
        base_start_s=0,
        start_s=0,
        low_s=0,
        high_s=math.inf,
        reason="it is short",
    )
    plan = Plan(order="shortest first", why="", gain=0.1, tried=(), jobs=(planned,))
    (job,) = writable(plan, Problem(machines=(), pending=(waiting,), running=())).jobs
    assert job.after == written
