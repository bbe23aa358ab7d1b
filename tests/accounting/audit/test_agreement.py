"""Where a job's token, the store and Slurm's figures may differ, though nobody has altered a record, and where not."""

import msgspec
import pytest

from accounting.audit.agreement import disagreements
from accounting.decisions.decision import REFUSED, Decision
from accounting.decisions.token import format_token
from accounting.journal.recoveries import Recovered
from accounting.records import JobRow
from accounting.request import Grant
from tests.builders import T0, decision, job_row, request

Said = list[tuple[str, str]]
CUT = decision(
    reason="resized",
    request=request(mem_per_node_mib=8000),
    grant=Grant(cpus_per_task=2, mem_per_node_mib=512),
    applied=True,
)
TOKEN = format_token(CUT)
RUNS = {"req_cpus": 2, "alloc_cpus": 2, "req_mem_mib": 512, "alloc_mem_mib": 512}
WHOLE = {"req_cpus": 8, "alloc_cpus": 8, "req_mem_mib": 8000, "alloc_mem_mib": 8000}
RECOVERED = f"{TOKEN};recovery=out_of_memory:1"


def row_of(comment: str, **changes: int) -> JobRow:
    return job_row(user=CUT.request.user, admin_comment=comment, **{**RUNS, **changes})


def found(
    row: JobRow,
    stored: str | None,
    decisions: dict[str, Decision] | None = None,
    recovery: Recovered | None = None,
    journalled_from_s: float | None = None,
) -> Said:
    known = {CUT.id: CUT} if decisions is None else decisions
    recoveries = () if recovery is None else (recovery,)
    return [
        (one.field, one.state) for one in disagreements(row, stored, known, recoveries, journalled_from_s)
    ]


def test_what_agrees_is_not_reported() -> None:
    assert found(row_of(TOKEN), TOKEN, journalled_from_s=0.0) == []
    assert found(row_of("JS1:abc"), None) == found(row_of("JS1:abc"), "JS1:abc") == []


def test_a_token_that_another_tool_replaced_is_no_problem_once_the_journal_has_told_of_it() -> None:
    assert found(row_of("JS1:abc"), f"JS1:abc {TOKEN};known=journal") == []
    assert found(row_of("JS1:abc"), TOKEN) == [("token", "problem")]


def test_the_decision_of_a_job_that_is_not_ingested_may_be_unknown() -> None:
    assert found(row_of(TOKEN), None, {}) == []
    assert found(row_of(TOKEN), TOKEN, {}) == [("decision", "problem")]


@pytest.mark.parametrize(("from_s", "is_missed"), [(None, False), (T0 - 1e6, True), (T0 + 1e6, False)])
def test_a_decision_without_a_line_is_a_problem_from_when_the_journal_has_lines(
    from_s: float | None, is_missed: bool
) -> None:
    known = {CUT.id: msgspec.structs.replace(CUT, from_token=True)}
    expected = [("decision", "problem")] if is_missed else []
    assert found(row_of(TOKEN), TOKEN, known, journalled_from_s=from_s) == expected


def test_a_token_in_another_users_job_is_a_problem() -> None:
    row = msgspec.structs.replace(row_of(TOKEN), user="mallory")
    assert found(row, TOKEN) == [("user", "problem")]


def test_what_the_hook_refused_is_in_the_token_as_in_the_store() -> None:
    refused = msgspec.structs.replace(CUT, applied=False, reason=f"{REFUSED}wrong_kind")
    token = format_token(msgspec.structs.replace(CUT, applied=False)) + ";refused=wrong_kind"
    row = row_of(token, **WHOLE)
    assert found(row, token, {CUT.id: refused}) == []
    assert found(row, token) != []


@pytest.mark.parametrize(
    ("why", "runs_with", "expected"),
    [
        ("", WHOLE, []),
        ("", {**WHOLE, "req_cpus": 2, "alloc_cpus": 2}, [("CPUs", "warning")]),
        ("its CPUs stay cut", {**WHOLE, "req_cpus": 2, "alloc_cpus": 2}, []),
    ],
)
def test_a_job_that_came_back_has_what_its_recovery_says(
    why: str, runs_with: dict[str, int], expected: Said
) -> None:
    recovery = Recovered(
        job_id=1,
        restarts=1,
        what="requeued",
        time_s=T0,
        cause="out_of_memory",
        user=CUT.request.user,
        decision_id=CUT.id,
        why=why,
    )
    assert found(row_of(RECOVERED, **runs_with), RECOVERED, recovery=recovery) == expected


def test_a_recovery_that_the_store_does_not_know_is_a_warning() -> None:
    assert found(row_of(RECOVERED, **WHOLE), RECOVERED) == [("recovery", "warning")]
