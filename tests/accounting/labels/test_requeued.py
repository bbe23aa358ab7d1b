"""How requeued attempts had ended, according to recovery's journal."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from accounting.decisions.token import format_token, mark_recovery
from accounting.journal.recoveries import Recovered
from accounting.labels.requeued import as_ended
from accounting.request import Grant
from tests.builders import T0, decision

TOKEN = format_token(decision(id="d1", applied=True, grant=Grant(cpus_per_task=2)))
RECOVERED = Recovered(
    job_id=7, restarts=0, what="requeued", time_s=T0, cause="timeout", user="ann", decision_id="d1"
)


def requeued(**changes: Any) -> pa.Table:
    """A run that completed, and one of ten minutes, its limit, that was queued again."""
    row = {
        "job_id": 7,
        "state": "REQUEUED",
        "end_s": T0,
        "elapsed_s": 600,
        "limit_s": 600,
        "admin_comment": TOKEN,
        **changes,
    }
    return pa.Table.from_pylist([{**row, "state": "COMPLETED"}, row])


def state_of(recovered: list[Recovered], **changes: Any) -> str:
    """Return the state of an attempt of ten minutes, its limit, given the recoveries of its job."""
    jobs = requeued(**changes)
    found = as_ended(jobs, {7: recovered})
    assert found.drop_columns("state") == jobs.drop_columns("state")
    other, state = found["state"].to_pylist()
    assert other == "COMPLETED"
    return str(state)


@pytest.mark.parametrize(
    ("changes", "ran_out"),
    [
        ({}, True),
        ({"job_id": 8}, False),
        # Not cut by us, or requeued by us already: this time it was somebody else.
        ({"admin_comment": ""}, False),
        ({"admin_comment": mark_recovery(TOKEN, "timeout", 0)}, False),
        # A limit is a whole minute, in which EndTime may lie anywhere; there may be no limit.
        ({"elapsed_s": 541}, True),
        ({"elapsed_s": 540}, False),
        ({"limit_s": None}, True),
        # Of several alike jobs, the journal does not tell which has which decision.
        ({"admin_comment": f"JS1:abc {TOKEN.replace('id=d1', 'id=d2')};known=journal"}, True),
    ],
)
def test_an_attempt_we_cut_that_ran_for_its_whole_time_ran_out_of_it(
    changes: dict[str, Any], ran_out: bool
) -> None:
    assert (state_of([RECOVERED], **changes) == "TIMEOUT") is ran_out


@pytest.mark.parametrize(
    ("changes", "ran_out"),
    [
        ({"cause": "killed"}, False),
        ({"decision_id": "d2"}, False),
        ({"time_s": T0 + 600.0}, True),
        ({"time_s": T0 + 601.0}, False),
        ({"time_s": T0 - 601.0}, False),
    ],
)
def test_only_the_recovery_of_this_very_run_shows_that(changes: dict[str, Any], ran_out: bool) -> None:
    one = msgspec.structs.replace(RECOVERED, **changes)
    assert (state_of([one]) == "TIMEOUT") is ran_out
    # A job may have failed because of us more than once.
    assert state_of([one, RECOVERED]) == state_of([RECOVERED, one]) == "TIMEOUT"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"cause": "killed"}, "FAILED"),
        ({"cause": "said_no_memory"}, "FAILED"),
        # Its step tells this, and how long it ran that it did not run out of time.
        ({"cause": "out_of_memory"}, "REQUEUED"),
        ({"cause": "timeout"}, "REQUEUED"),
        # Another run of the job, or another job.
        ({"cause": "killed", "decision_id": "d2"}, "REQUEUED"),
        ({"cause": "killed", "time_s": T0 + 601.0}, "REQUEUED"),
    ],
)
def test_an_attempt_that_failed_by_us_is_failed_again(changes: dict[str, Any], state: str) -> None:
    one = msgspec.structs.replace(RECOVERED, **changes)
    assert state_of([one], elapsed_s=60) == state


def test_an_attempt_that_somebody_else_queued_again_did_not_fail() -> None:
    killed = msgspec.structs.replace(RECOVERED, cause="killed")
    for jobs in (requeued(admin_comment=""), requeued(admin_comment=mark_recovery(TOKEN, "killed", 0))):
        assert as_ended(jobs, {7: [killed]}) == jobs
    assert as_ended(requeued(), {}) == requeued()
