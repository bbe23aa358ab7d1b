"""Reading the decision journal into the store, from where the last read ended."""

from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine

from accounting.decisions.decision import encode_decision
from accounting.decisions.token import format_token
from accounting.errors import StoreError
from accounting.ingest.ingesting import ingest, source_of
from accounting.ingest.retry import retry
from accounting.ingest.run import Run
from accounting.journal.files import SOURCE, find_decisions, new_lines, read_journal
from accounting.journal.links import Linker
from accounting.pseudonyms import Pseudonyms
from accounting.records import Quarantined
from accounting.request import Grant
from accounting.store.database import open_store, writing
from accounting.store.records import read_attempts, read_decision, write_quarantine
from tests.accounting.ingest.recorded import NOW_S, content, settings_of
from tests.builders import DAY_S, T0, FakeSacct, decision, job_line, request


def test_a_torn_last_line_of_the_journal_waits_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "decisions-20260101.jsonl"
    first, second = encode_decision(decision(id="a")), encode_decision(decision(id="b"))
    for cut in (1, len(second) // 2, len(second) - 1):
        file.write_bytes(first + second[:cut])
        [part] = read_journal(tmp_path, {})
        assert ([one.id for one, _ in part.taken], part.quarantined) == (["a"], [])
        assert part.read_bytes == len(first)
        file.write_bytes(first + second)
        [rest] = read_journal(tmp_path, {file.name: part.read_bytes})
        assert [one.id for one, _ in rest.taken] == ["b"]


def test_a_file_is_read_part_by_part(tmp_path: Path) -> None:
    file = tmp_path / "decisions-20260101.jsonl"
    lines = [b"a" * 10, b"b" * 300, b"c", b"d" * 20]
    file.write_bytes(b"".join(line + b"\n" for line in lines) + b"torn")
    for part_bytes in (1, 12, 32, 1000):
        parts = list(new_lines(tmp_path, file.name, {}, part_bytes))
        assert [line for _, part, _ in parts for line in part] == lines
        assert parts[-1][2] == file.stat().st_size - len(b"torn")
        assert all(sum(map(len, part)) <= part_bytes or len(part) == 1 for _, part, _ in parts)


def test_the_journal_is_read_from_the_last_end_and_bad_lines_are_kept_once(
    store: Engine, tmp_path: Path
) -> None:
    fake = FakeSacct(tmp_path / "slurm", [])
    settings = settings_of(fake, tmp_path)
    settings.journal.mkdir()
    file = settings.journal / "decisions-20260101.jsonl"
    file.write_bytes(encode_decision(decision(id="a")) + b"rubbish\n\n\xff\n")
    reports = [ingest(store, settings, NOW_S)]
    with file.open("ab") as journal:
        journal.write(encode_decision(decision(id="b")) + b"rubbish\n")
    reports += [ingest(store, settings, NOW_S), ingest(store, settings, NOW_S)]
    assert [report.decisions.new for report in reports] == [1, 1, 0]
    assert [report.quarantined for report in reports] == [2, 0, 0]
    assert read_decision(store, "b") == decision(id="b")


def test_a_decision_with_an_impossible_time_does_not_stop_ingest(store: Engine, tmp_path: Path) -> None:
    settings = settings_of(FakeSacct(tmp_path / "slurm", [job_line(1)]), tmp_path)
    settings.journal.mkdir()
    odd = [decision(id=f"d{place}", time_s=time_s) for place, time_s in enumerate((-1e300, 1e300, 5.5))]
    (settings.journal / "decisions-20260101.jsonl").write_bytes(b"".join(map(encode_decision, odd)))
    assert ingest(store, settings, NOW_S).decisions.new == 3


@pytest.mark.parametrize("is_late", [False, True])
def test_the_input_size_of_a_decision_goes_to_its_attempt_and_is_in_no_token(
    store: Engine, tmp_path: Path, *, is_late: bool
) -> None:
    sized, plain = (
        decision(id=name, time_s=T0 + DAY_S, request=request(input_mib=mib))
        for name, mib in (("a", 1234.5), ("b", None))
    )
    assert "1234" not in format_token(sized)
    tokens = {1: format_token(sized), 2: format_token(plain), 3: "", 4: format_token(decision(id="lost"))}
    lines = [job_line(number, T0 + DAY_S, 50, AdminComment=token) for number, token in tokens.items()]
    settings = settings_of(FakeSacct(tmp_path / "slurm", lines), tmp_path)
    settings.journal.mkdir()
    if is_late:  # until the journal comes, the decisions are rebuilt from the tokens
        ingest(store, settings, NOW_S)
    file = settings.journal / "decisions-20260101.jsonl"
    file.write_bytes(encode_decision(sized) + encode_decision(plain))
    ingest(store, settings, NOW_S)
    inputs = {attempt.row.job_id: attempt.input_mib for attempt in read_attempts(store)}
    assert inputs == {1: 1234.5, 2: None, 3: None, 4: None}
    assert read_decision(store, "a") == sized
    before = content(store)
    ingest(store, settings, NOW_S, since_s=T0)
    assert content(store) == before


def test_a_decision_that_the_hook_refused_is_recorded_as_not_applied(store: Engine, tmp_path: Path) -> None:
    made = decision(id="a", reason="resized", grant=Grant(cpus_per_task=2), applied=True)
    tokens = {
        1: format_token(made).replace("granted=", "would=") + ";refused=coupled_field",
        2: format_token(decision(id="b")),
        3: "rightsizer/1;id=never-journalled;refused=coupled_field",
    }
    fake = FakeSacct(
        tmp_path / "slurm",
        [job_line(number, T0 + DAY_S, 50, AdminComment=token) for number, token in tokens.items()],
    )
    settings = settings_of(fake, tmp_path)
    settings.journal.mkdir()
    file = settings.journal / "decisions-20260101.jsonl"
    file.write_bytes(encode_decision(made) + encode_decision(decision(id="b")))
    first = ingest(store, settings, NOW_S)
    assert (first.decisions.new, first.decisions.changed) == (2, 1)
    found = read_decision(store, "a")
    assert found == msgspec.structs.replace(made, applied=False, reason="refused:coupled_field")
    assert read_decision(store, "b") == decision(id="b")
    before = content(store)
    again = ingest(store, settings, NOW_S, since_s=T0)
    assert (again.decisions.new, again.decisions.changed) == (0, 0)
    assert content(store) == before


def test_a_retried_line_is_taken_as_if_it_were_read_now(store: Engine, tmp_path: Path) -> None:
    made = [decision(id=name, reason="resized", grant=Grant(cpus_per_task=2), applied=True) for name in "abc"]
    head, linked = Linker().begin("decisions"), list[bytes]()
    for one in made:
        line, head = Linker().linked(encode_decision(one).rstrip(b"\n"), head)
        linked.append(line)
    refusing = format_token(made[1]).replace("granted=", "would=") + ";refused=cpus_fixed"
    settings = settings_of(
        FakeSacct(tmp_path / "slurm", [job_line(1, T0 + DAY_S, 50, AdminComment=refusing)]), tmp_path
    )
    settings.journal.mkdir()
    file = settings.journal / "decisions-20260101.jsonl"
    file.write_bytes(b"".join(linked))
    whole = open_store(f"sqlite:///{tmp_path}/whole.db", create=True)
    ingest(whole, settings, NOW_S)
    # As a release left it that understood neither of two lines.
    lines = [
        Quarantined(line=line.decode().rstrip("\n"), reason=f"{file.name}: not a decision", source=SOURCE)
        for line in linked[1:]
    ]
    file.write_bytes(linked[0])
    ingest(store, settings, NOW_S)
    with writing(store) as connection:
        write_quarantine(connection, lines, NOW_S)
    run = Run(settings, NOW_S)
    assert retry(store, run, source_of(settings, NOW_S)) == 2
    found = read_decision(store, "b")
    assert found is not None
    assert (found.applied, found.reason) == (False, "refused:cpus_fixed")
    expected, tried = content(whole), content(store)
    for table in ("decisions", "journal_links", "quarantine"):
        assert tried[table] == expected[table], table
    whole.dispose()


def test_names_in_the_journal_are_hidden_where_the_site_wants_it(store: Engine, tmp_path: Path) -> None:
    made = decision(id="a", request=request(user="alice", account="phys", job_name="secret"))
    settings = settings_of(FakeSacct(tmp_path / "slurm", []), tmp_path)
    settings.journal.mkdir()
    (settings.journal / "decisions-20260101.jsonl").write_bytes(encode_decision(made) + b'{"user":"alice"}\n')
    pseudonyms = Pseudonyms(b"k" * 32)
    ingest(store, msgspec.structs.replace(settings, pseudonyms=pseudonyms), NOW_S)
    assert read_decision(store, "a") == pseudonyms.decision(made) != made
    held = repr(content(store))
    assert not any(name in held for name in ("alice", "phys", "secret"))


@pytest.mark.parametrize(("journal_first", "jobs"), [(True, 2), (False, 2), (False, 1)])
def test_a_decision_named_in_another_users_token_does_not_change(
    store: Engine, tmp_path: Path, *, journal_first: bool, jobs: int
) -> None:
    """A user names the decision of another user's job in their own token: user or amounts do not match it."""
    made = decision(id="a", reason="resized", grant=Grant(cpus_per_task=2), applied=True)
    refusing = format_token(made).replace("granted=", "would=") + ";refused=coupled_field"
    fewer = refusing.replace("cpus:8", "cpus:7")
    assert fewer != refusing
    lines = [
        job_line(1, T0 + DAY_S, 50, User="mallory", AdminComment=refusing),
        job_line(2, T0 + DAY_S, 50, AdminComment=fewer),
    ]
    settings = settings_of(FakeSacct(tmp_path / "slurm", lines[:jobs]), tmp_path)
    settings.journal.mkdir()
    file = settings.journal / "decisions-20260101.jsonl"
    if not journal_first:
        ingest(store, settings, NOW_S)
        assert (read_decision(store, "a") is None) is (jobs == 2), (
            "one that names it alone is believed until then"
        )
    file.write_bytes(encode_decision(made))
    ingest(store, settings, NOW_S, since_s=T0)
    assert read_decision(store, "a") == made


def test_a_decision_is_found_in_the_files_of_its_day_and_later(tmp_path: Path) -> None:
    for day, name in (("20260101", "a"), ("20260103", "b")):
        (tmp_path / f"decisions-{day}.jsonl").write_bytes(
            encode_decision(decision(id="other", reason=name)) + b'"a" "b" rubbish\n'
            + encode_decision(decision(id=name))
        )  # fmt: skip
    third_s = 1_767_398_400.0
    both = {"a": decision(id="a"), "b": decision(id="b")}
    assert find_decisions(tmp_path, ("a", "b", "c"), third_s - 2 * DAY_S) == both
    assert find_decisions(tmp_path, ("a", "b"), third_s) == {"b": decision(id="b")}
    assert find_decisions(tmp_path / "none", ("a",), 0.0) == {}
    (tmp_path / "decisions-20260104.jsonl").mkdir()
    with pytest.raises(StoreError, match="cannot read the journal file"):
        find_decisions(tmp_path, ("c",), third_s)


def test_a_journal_file_that_cannot_be_read_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "decisions-20260101.jsonl").mkdir()
    with pytest.raises(StoreError, match="cannot read the journal file"):
        list(read_journal(tmp_path, {}))


def test_a_job_whose_token_another_tool_has_replaced_is_the_one_that_the_journal_tells_of(
    store: Engine, tmp_path: Path
) -> None:
    asked = request(mem_per_node_mib=64_000)
    cut = decision(
        id="a",
        time_s=T0 - 0.5,
        applied=True,
        request=asked,
        grant=Grant(mem_per_node_mib=8000),
        reason="resized",
    )
    rows = [job_line(1, AdminComment="JS1:abc"), job_line(2, T0 + 5000, AdminComment="JS1:def")]
    settings = settings_of(FakeSacct(tmp_path / "slurm", rows), tmp_path)
    settings.journal.mkdir()
    (settings.journal / "decisions-20260101.jsonl").write_bytes(encode_decision(cut))
    for _ in range(2):
        ingest(store, settings, NOW_S, since_s=T0)
        first, second = sorted(read_attempts(store), key=lambda one: one.row.job_id)
        assert (first.decision_id, first.asked_mem_mib, first.row.req_mem_mib) == ("a", 64_000, 8000)
        assert first.row.admin_comment == f"JS1:abc {format_token(cut)};known=journal"
        assert (second.decision_id, second.asked_mem_mib, second.row.admin_comment) == ("", 8000, "JS1:def")


def test_a_job_that_was_queued_again_keeps_its_decision_though_its_attempts_are_read_one_by_one(
    store: Engine, tmp_path: Path
) -> None:
    """A preempted job ends hours after its first attempt was read."""
    cut = decision(
        id="a",
        time_s=T0 - 0.5,
        applied=True,
        request=request(mem_per_node_mib=64_000),
        grant=Grant(mem_per_node_mib=8000),
        reason="resized",
    )
    rows = [
        job_line(1, AdminComment="JS1:abc", State="PREEMPTED"),
        job_line(1, T0 + 5000, AdminComment="JS1:def"),
    ]
    settings = settings_of(FakeSacct(tmp_path / "slurm", rows[:1]), tmp_path)
    settings.journal.mkdir()
    (settings.journal / "decisions-20260101.jsonl").write_bytes(encode_decision(cut))
    ingest(store, settings, NOW_S, since_s=T0)
    FakeSacct(tmp_path / "slurm", rows)
    ingest(store, settings, NOW_S, since_s=T0)
    attempts = [(one.decision_id, one.asked_mem_mib, one.row.req_mem_mib) for one in read_attempts(store)]
    assert attempts == [("a", 64_000, 8000)] * 2
