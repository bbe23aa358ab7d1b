"""Rebuilding a decision from its job's token, and whether token, store and Slurm agree on a job."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from accounting.audit.agreement import disagreements, token_of
from accounting.decisions.decision import Decision, encode_decision, refused
from accounting.decisions.originals import lost_decisions
from accounting.decisions.rebuilding import rebuilt
from accounting.decisions.token import find_token, format_token, mark_recovery
from accounting.ingest.ingesting import ingest
from accounting.journal.recoveries import Recovered
from accounting.request import Grant
from accounting.store.database import open_store
from accounting.store.records import read_attempts, read_decision
from tests.accounting.decisions.test_token import GRANTS, REQUESTS
from tests.accounting.ingest.recorded import NOW_S, settings_of
from tests.builders import DAY_S, T0, FakeSacct, decision, job_line, job_row, records_of, request
from tests.stores import content

WORDS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
DECISIONS = st.builds(
    Decision,
    id=st.from_regex(r"[0-9a-f]{12}", fullmatch=True),
    time_s=st.just(float(T0)),
    mode=st.sampled_from(["observe", "advise", "enforce"]),
    applied=st.booleans(),
    reason=st.sampled_from(["resized", "fits", "no-evidence", "form-not-handled:gres+x"]),
    request=REQUESTS,
    grant=GRANTS,
    rule=WORDS,
    via=st.from_regex(r"([0-9a-f]{12})?", fullmatch=True),
    model=WORDS,
    replaces=st.from_regex(r"([0-9a-f]{12})?", fullmatch=True),
).filter(lambda one: bool(one.grant) or not one.applied)


def again(made: Decision, comment: str) -> Decision:
    token = find_token(comment)
    assert token is not None
    found = rebuilt(token, job_row(user=made.request.user, admin_comment=comment))
    assert found is not None
    return found


@given(DECISIONS)
def test_the_token_of_a_rebuilt_decision_is_the_one_it_was_rebuilt_from(made: Decision) -> None:
    text = format_token(made)
    found = again(made, f"JS1:xyz {text} more")
    assert format_token(found) == text
    assert (found.applied, found.grant, found.from_token) == (made.applied, made.grant, True)
    assert token_of(found) == find_token(text)
    for name in (
        "num_tasks",
        "cpus_per_task",
        "mem_per_node_mib",
        "mem_per_cpu_mib",
        "gpus_per_node",
        "user",
    ):
        assert getattr(found.request, name) == getattr(made.request, name)


@given(DECISIONS.filter(lambda one: one.applied))
def test_a_refused_decision_is_rebuilt_as_the_store_marks_it(made: Decision) -> None:
    made = msgspec.structs.replace(made, reason="resized")
    text = format_token(made).replace(";granted=", ";would=", 1) + ";refused=coupled_field"
    found = again(made, text)
    marked = refused(made, "coupled_field")
    assert (found.applied, found.reason, found.grant) == (marked.applied, marked.reason, marked.grant)
    assert token_of(found) == token_of(marked) == find_token(text)


def test_a_token_with_an_unknown_mode_gives_no_decision() -> None:
    token = find_token("rightsizer/1;id=x;mode=forced;asked=tasks:1")
    assert token is not None
    assert rebuilt(token, job_row()) is None


CUT = decision(
    id="d1",
    reason="resized",
    request=request(mem_per_node_mib=8000, script_signature="abc"),
    grant=Grant(cpus_per_task=2, mem_per_node_mib=512),
    applied=True,
    model="m-1",
)
RAN = job_row(admin_comment=format_token(CUT), req_cpus=2, req_mem_mib=512, alloc_cpus=2, alloc_mem_mib=512)
KNOWN = {"d1": CUT}


def said(
    row: object = RAN, comment: str | None = RAN.admin_comment, **changes: object
) -> set[tuple[str, str]]:
    decisions = changes.pop("decisions", KNOWN)
    found = disagreements(row, comment, decisions, **changes)  # type: ignore[arg-type]
    return {(one.field, one.state) for one in found}


def test_nothing_is_reported_where_all_agree() -> None:
    assert said() == set()
    assert said(job_row(admin_comment="nobody's words"), "") == set()
    assert said(comment=None) == set()
    hyperthreads = msgspec.structs.replace(RAN, alloc_cpus=4)
    assert said(hyperthreads) == set()


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("granted=cpus:2,mem:512", "granted=cpus:2,mem:4000", "granted"),
        ("asked=tasks:1,cpus:8", "asked=tasks:1,cpus:80", "asked"),
        ("why=resized", "why=fits", "reason"),
        ("model=m-1", "model=m-2", "model"),
        ("sig=abc", "sig=abd", "signature"),
        ("mode=enforce", "mode=advise", "mode"),
        ("granted=", "would=", "granted"),
    ],
)
def test_a_changed_word_of_a_token_is_reported_by_its_field(old: str, new: str, field: str) -> None:
    comment = RAN.admin_comment.replace(old, new)
    assert comment != RAN.admin_comment
    row = msgspec.structs.replace(RAN, admin_comment=comment)
    # The job was ingested before the change, or after it.
    for ingested in (RAN.admin_comment, comment):
        assert (field, "problem") in said(row, ingested)


def test_a_missing_token_and_one_of_another_job_are_reported() -> None:
    bare = msgspec.structs.replace(RAN, admin_comment="")
    assert said(bare) == {("token", "problem")}
    other = msgspec.structs.replace(CUT, id="d2", request=request(user="bob", mem_per_node_mib=8000))
    row = msgspec.structs.replace(RAN, admin_comment=format_token(other))
    assert {("id", "problem"), ("user", "problem")} <= said(row, decisions={"d1": CUT, "d2": other})
    assert said(decisions={}) == {("decision", "problem")}
    assert said(comment=None, decisions={}) == set()


def test_a_decision_that_is_in_no_journal_is_reported_where_there_is_a_journal() -> None:
    forged = {"d1": msgspec.structs.replace(CUT, from_token=True)}
    assert said(decisions=forged) == set()
    assert said(decisions=forged, journalled_from_s=float(T0 + 5)) == set()
    assert said(decisions=forged, journalled_from_s=float(T0 - 5)) == {("decision", "problem")}


def test_a_different_allocation_by_slurm_is_a_warning() -> None:
    changed = msgspec.structs.replace(RAN, req_mem_mib=2000, alloc_mem_mib=2000)
    assert said(changed) == {("MiB", "warning")}
    wider = msgspec.structs.replace(RAN, req_cpus=8, alloc_cpus=8)
    assert said(wider) == {("CPUs", "warning")}


RECOVERED = Recovered(
    job_id=1,
    restarts=0,
    what="requeued",
    time_s=T0,
    cause="out_of_memory",
    user="alice",
    decision_id="d1",
)


def test_a_recovered_run_has_its_whole_request_and_is_journalled() -> None:
    comment = mark_recovery(RAN.admin_comment, "out_of_memory", 0)
    row = job_row(admin_comment=comment)  # eight CPUs, 8000 MiB
    assert said(row, comment, recoveries=[RECOVERED]) == set()
    assert said(row, comment) == {("recovery", "warning")}
    assert {("CPUs", "warning"), ("MiB", "warning")} <= said(
        msgspec.structs.replace(RAN, admin_comment=comment), comment, recoveries=[RECOVERED]
    )


def test_a_recovered_run_has_fewer_cpus_only_where_its_journal_says_why() -> None:
    """Slurm 23.11 to 24.11.0 cannot change the CPUs of a pending job."""
    comment = mark_recovery(RAN.admin_comment, "out_of_memory", 0)
    row = job_row(admin_comment=comment, req_cpus=2, alloc_cpus=2)
    stays = msgspec.structs.replace(RECOVERED, why="it cannot give its CPUs back")
    assert said(row, comment, recoveries=[stays]) == set()
    assert said(row, comment, recoveries=[RECOVERED]) == {("CPUs", "warning")}


def test_what_one_job_names_that_is_known_does_not_hide_what_the_next_one_lost() -> None:
    lost = decision(id="d9", mode="observe", reason="resized", grant=Grant(cpus_per_task=2))
    comments = (RAN.admin_comment, format_token(lost))
    jobs = records_of([(job_row(admin_comment=comment), []) for comment in comments]).jobs
    assert [one.id for one in lost_decisions(jobs, {"d9"})] == ["d9"]


def test_without_the_journal_decisions_are_rebuilt_from_tokens(store: Engine, tmp_path: Path) -> None:
    observed = decision(id="d2", mode="observe", reason="resized", grant=Grant(cpus_per_task=2))
    comments = {1: RAN.admin_comment, 2: format_token(observed), 3: "", 4: RAN.admin_comment}
    lines = [job_line(number, T0 + DAY_S, 50, AdminComment=text) for number, text in comments.items()]
    settings = settings_of(FakeSacct(tmp_path / "slurm", lines), tmp_path)
    report = ingest(store, settings, NOW_S)
    assert report.decisions.new == 2
    for made in (CUT, observed):
        found = read_decision(store, made.id)
        assert found is not None
        assert format_token(found) == format_token(made)
        assert found.from_token
    before = content(store)
    assert ingest(store, settings, NOW_S, since_s=T0).decisions.new == 0
    assert content(store) == before
    # The journal is found again: what it says counts, except for what only the token can tell.
    settings.journal.mkdir()
    (settings.journal / "decisions-20260101.jsonl").write_bytes(encode_decision(CUT))
    assert ingest(store, settings, NOW_S).decisions.changed == 1
    assert read_decision(store, "d1") == CUT


def test_a_late_journal_does_not_undo_what_a_token_told(store: Engine, tmp_path: Path) -> None:
    text = RAN.admin_comment.replace(";granted=", ";would=") + ";refused=coupled_field"
    fake = FakeSacct(tmp_path / "slurm", [job_line(1, T0 + DAY_S, 50, AdminComment=text)])
    settings = settings_of(fake, tmp_path)
    ingest(store, settings, NOW_S)
    settings.journal.mkdir()
    (settings.journal / "decisions-20260101.jsonl").write_bytes(encode_decision(CUT))
    ingest(store, settings, NOW_S)
    assert read_decision(store, "d1") == refused(CUT, "coupled_field")


def test_tokens_can_be_rebuilt_from_the_journal_alone(tmp_path: Path) -> None:
    engine = open_store(f"sqlite:///{tmp_path}/own.db", create=True)
    settings = settings_of(FakeSacct(tmp_path / "slurm", []), tmp_path)
    settings.journal.mkdir()
    (settings.journal / "decisions-20260101.jsonl").write_bytes(encode_decision(CUT))
    ingest(engine, settings, NOW_S)
    found = read_decision(engine, "d1")
    assert found is not None
    assert format_token(found) == RAN.admin_comment
    assert read_attempts(engine) == []
    engine.dispose()
