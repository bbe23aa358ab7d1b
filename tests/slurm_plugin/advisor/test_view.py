"""What people read of a cycle: a row for each job that waits, and one line on what was done."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from models.planning.orders import AS_IS
from slurm_plugin.advisor.cycle import Outcome
from slurm_plugin.advisor.view import Row, rows_of, summary_of, table_of
from slurm_plugin.slurm.queue import Written
from tests.slurm_plugin.advisor.conftest import MakeAdvisor
from tests.slurm_plugin.slurm.fake_queue import FakeQueue
from tests.slurm_plugin.slurm.queued import NOW_S

GONE = (Written(job_id=7), Written(job_id=8, problem="gone"))


@pytest.fixture
def planned(make: MakeAdvisor) -> Outcome:
    """Return the outcome of a dry run: the short jobs 7 to 12 should come before the long ones, 3 to 6."""
    return make(apply=False, keeps=False).cycle()


def test_a_row_says_where_a_job_is_where_it_should_be_and_when_it_starts(planned: Outcome) -> None:
    moved = next(job for job in planned.plan.jobs if job.before != job.after)
    rows = rows_of(replace(planned, written=(Written(job_id=moved.job_id, problem="gone"),)))
    assert [row["proposed_place"] for row in rows] == list(range(1, 13))
    of: dict[object, Row] = {row["job_id"]: row for row in rows}
    assert of[moved.job_id] == {
        "job_id": moved.job_id, "user": "ann", "factor": 0, "place": moved.job_id - 2,
        "proposed_factor": moved.after, "proposed_place": of[moved.job_id]["proposed_place"],
        "base_start_s": round(NOW_S + moved.base_start_s), "start_s": round(NOW_S + moved.start_s),
        "low_s": round(NOW_S + moved.low_s), "high_s": round(NOW_S + moved.high_s), "likely_run_s": 18_000,
        "why": moved.reason, "problem": "gone",
    }  # fmt: skip
    later_s = moved.start_s - moved.base_start_s
    assert moved.reason.endswith(f": {abs(later_s) / 60:.0f} min {'later' if later_s > 0 else 'sooner'}")
    assert {of[number]["proposed_place"] for number in range(7, 13)} == set(range(1, 7))
    assert (of[13]["why"], of[13]["start_s"], of[13]["proposed_place"]) == ("it is held", None, 12)
    still = {job.job_id for job in planned.plan.jobs if job.before == job.after} - {13, 14}
    assert still
    assert {of[number]["why"] for number in still} == {"as before"}


ROW = {
    "job_id": 7, "user": "ann", "factor": 0, "place": 5, "proposed_factor": 25, "proposed_place": 1,
    "base_start_s": 1000 + 90_061, "start_s": 1060, "low_s": 990, "high_s": None, "why": "it is short", "problem": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, {}),
        ({"proposed_factor": 0}, {"proposed": "1 (+0)"}),
        ({"proposed_place": 5}, {"proposed": "5 (+25)"}),
        ({"proposed_factor": -5, "factor": -5, "proposed_place": 5}, {"now": "5 (-5)", "proposed": "-"}),
        ({"problem": "gone"}, {"why": "it is short: gone"}),
    ],
)
def test_the_table_counts_from_now_and_shows_what_would_change(
    fields: dict[str, Any], shown: dict[str, str]
) -> None:
    assert table_of([ROW | fields], 1000.0) == [
        {
            "job": 7, "user": "ann", "now": "5 (+0)", "proposed": "1 (+25)",
            "start without": "1-01:01:01", "start with": "00:01:00", "80 % within": "00:00:00 to later",
            "why": "it is short",
        } | shown
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "order", "apply", "says"),
    [
        ({}, "", False, "the best plan: WHY; 6 factors would change (this was a dry run; --apply makes the changes)"),
        ({}, "", True, "the best plan: WHY; 6 factors changed"),
        ({"written": GONE}, "", True, "the best plan: WHY; 6 factors changed, of which 1 could not be set"),
        ({}, AS_IS, True, "the best plan is Slurm's own order, because WHY; 6 factors changed"),
        ({"changes": ()}, "", True, "the queue already has the order of the best plan: WHY"),
        ({"changes": ()}, AS_IS, True, "the best plan is to change nothing, because WHY"),
        (
            {"changes": (), "relisted": GONE},
            AS_IS,
            True,
            (
                "the best plan is to change nothing, because WHY; other partitions listed by 1 job, and 1 could not "
                "be changed"
            ),
        ),
        (
            {"changes": (), "relisted": GONE},
            AS_IS,
            False,
            "the best plan is to change nothing, because WHY; other partitions to be listed by 2 jobs",
        ),
    ],
)  # fmt: skip
def test_the_summary_says_what_is_best_and_what_was_done(
    planned: Outcome, fields: dict[str, Any], order: str, says: str, *, apply: bool
) -> None:
    plan = replace(planned.plan, order=order or planned.plan.order)
    said = summary_of(replace(planned, plan=plan, **fields), apply=apply)
    factors = f"{len(planned.changes)} factors"
    assert said == "12 waiting jobs, 2 running; " + says.replace("WHY", plan.why).replace(
        "6 factors", factors
    )


def test_a_control_block_is_said_to_be_one(planned: Outcome, queue: FakeQueue) -> None:
    watched = replace(planned, cycle=replace(planned.cycle, control=True))
    assert "drawn by lot, the advisor only watches" in summary_of(watched, apply=True)
    assert queue.writes == []
