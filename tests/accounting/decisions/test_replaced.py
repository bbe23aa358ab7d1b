"""Decisions of jobs whose admin comment another tool has replaced in slurmdbd."""

import time
from typing import Any

import msgspec
import pytest

from accounting.decisions.decision import Decision
from accounting.decisions.replaced import MOST_KINDS, moments, restored_comments
from accounting.decisions.token import find_token
from accounting.records import JobRow
from accounting.request import Grant
from tests.builders import T0, decision, job_row, request

THEIRS = "JS1:H4sIAAAA"
CUT = Grant(cpus_per_task=1, mem_per_node_mib=500)


def made(name: str, **changes: Any) -> Decision:
    return decision(
        **{"id": name, "applied": True, "reason": "resized", "grant": CUT, "time_s": T0 + 0.4, **changes}
    )


def row(job_id: int = 1, **changes: Any) -> JobRow:
    asked = request()
    plain = {
        "job_id": job_id, "display_id": str(job_id), "user": asked.user, "job_name": asked.job_name,
        "submit_s": T0 + 1, "admin_comment": THEIRS, "req_cpus": 1, "req_mem_mib": 500, "alloc_cpus": 1,
        "alloc_mem_mib": 500, "req_gpus": None, "alloc_gpus": None, "nodes": 1,
    }  # fmt: skip
    return msgspec.structs.replace(job_row(), **{**plain, **changes})


def restored(rows: list[JobRow], *decisions: Decision) -> dict[int, str]:
    """Return the ids of the decisions that are found, by row."""
    found = restored_comments(rows, decisions, {})
    tokens = {place: find_token(comment) for place, comment in found.items()}
    assert all(comment.startswith(THEIRS) for comment in found.values())
    assert all(token is not None and token.from_journal for token in tokens.values())
    return {place: token.decision_id for place, token in tokens.items() if token is not None}


def test_the_decision_made_as_slurmctld_took_the_job_is_found() -> None:
    late, early = made("late", time_s=T0 + 60), made("early", time_s=T0 - 60)
    assert restored([row()], late, made("d"), early) == {0: "d"}
    assert restored([row()], late, early) == {}


@pytest.mark.parametrize(
    "other",
    [
        {"user": "bob"},
        {"job_name": "sim"},
        {"req_mem_mib": 600, "alloc_mem_mib": 600},
        {"req_cpus": 8, "alloc_cpus": 8},
    ],
)
def test_a_decision_about_other_work_or_one_that_slurm_did_not_carry_out_is_not_taken(
    other: dict[str, Any],
) -> None:
    assert restored([row(**other)], made("d")) == {}


def test_alike_jobs_submitted_at_once_each_have_a_decision_of_their_own() -> None:
    decisions = [made(f"d{place}", time_s=T0 + place / 10) for place in range(3)]
    assert restored([row(3), row(1), row(2)], *decisions) == {1: "d0", 2: "d1", 0: "d2"}
    assert restored([row(1), row(2)], decisions[0]) == {0: "d0"}


def test_between_decisions_that_tell_of_different_requests_none_is_taken() -> None:
    asked_more = made("more", request=request(mem_per_node_mib=16_000))
    asked_less = made("less", request=request(mem_per_node_mib=4000))
    assert restored([row()], asked_more, asked_less) == {}
    assert restored([row()], asked_more) == {0: "more"}
    # What Slurm gave the job shows which of two it is.
    given_more = made("given", grant=Grant(cpus_per_task=1, mem_per_node_mib=900))
    assert restored([row()], given_more, made("d")) == {0: "d"}


def test_all_tasks_of_an_array_have_the_decision_about_their_submission() -> None:
    tasks = [row(job_id, display_id=f"1_{job_id}") for job_id in (1, 2, 3)]
    assert restored(tasks, made("d"), made("next", time_s=T0 + 0.5)) == {0: "d", 1: "d", 2: "d"}


def test_a_run_with_the_original_request_after_recovery_counts_as_not_cut() -> None:
    whole = {"req_cpus": 8, "alloc_cpus": 8, "req_mem_mib": 8000, "alloc_mem_mib": 8000}
    killed, again = row(), row(submit_s=T0 + 500, **whole)
    asked = made("d", request=request(mem_per_node_mib=8000))
    assert restored([again, killed], asked) == {1: "d"}


def test_the_decision_of_a_direct_jobs_client_is_named_by_the_hooks_own() -> None:
    client = made("client", time_s=T0)
    assert restored([row()], client, made("hook", via="client")) == {0: "hook"}


def test_what_was_found_before_stays_and_is_not_taken_again() -> None:
    decisions = [made("d0"), made("d1")]
    [comment] = restored_comments([row(2)], decisions[1:], {}).values()
    found = restored_comments([row(1), row(2)], [*decisions, made("d2")], {1: comment})
    first = find_token(found[0])
    assert found[1] == comment
    assert first is not None
    assert first.decision_id == "d0"


def test_a_decision_about_a_job_that_waited_already_is_not_that_of_a_new_one() -> None:
    assert restored([row()], made("late", replaces="old", time_s=T0), made("d")) == {0: "d"}
    assert restored([row()], made("late", replaces="old")) == {}


def test_a_job_that_was_queued_again_has_the_decision_that_its_first_attempt_names() -> None:
    again, other = row(submit_s=T0 + 500), row(submit_s=T0 + 500, job_name="other")
    late = row(submit_s=T0 - 500)
    for one, found in ((again, {0}), (other, set()), (late, set())):
        assert restored_comments([one], [], {}, {0: made("d")}).keys() == found
    assert restored_comments([row(2)], [made("d")], {}, {5: made("d")}) == {}


def test_only_decisions_made_near_a_submission_are_read() -> None:
    rows = [row(submit_s=T0 + after_s) for after_s in (90_000, 0, 3600, 0)]
    assert moments(rows) == [(T0 - 10, T0 + 3601), (T0 + 89_990, T0 + 90_001)]
    assert moments([]) == []


def test_a_thousand_jobs_in_ten_seconds_take_no_time_together() -> None:
    """Each was compared with all others: a campaign of 50,000 jobs held the store for half an hour."""
    rows = [row(job_id, submit_s=T0 + job_id // 100) for job_id in range(1000)]
    for kinds in (2, MOST_KINDS + 1):
        asked = [request(mem_per_node_mib=8000 + kind) for kind in range(kinds)]
        decisions = [made(f"d{at}", time_s=T0 + at / 100, request=asked[at % kinds]) for at in range(1000)]
        begin_s = time.process_time()
        assert restored(rows, *decisions) == {}
        assert time.process_time() - begin_s < 1
