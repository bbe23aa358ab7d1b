"""`rightsizer audit`: journal, store, tokens and Slurm's figures are compared, as far as files and answers exist."""

import json
import os
import re
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from accounting.decisions.decision import Decision, decode_decision, encode_decision
from accounting.decisions.token import format_token
from accounting.journal.links import Linker, newest_head, split_line
from accounting.key_file import read_key
from accounting.request import Grant
from slurm_plugin.recovery.journal import Entry
from slurm_plugin.recovery.journal import Journal as RecoveryJournal
from slurm_plugin.service.journal import Journal
from tests.builders import FakeSacct, decision, job_line, request
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run, assert_one_line

JOBS = 6
BEFORE_S = int(time.time()) - 4000
Found = list[tuple[str, str, str]]


def made(number: int) -> Decision:
    return decision(
        id=f"d{number}",
        time_s=float(BEFORE_S),
        reason="resized",
        request=request(cpus_per_task=8, mem_per_node_mib=8000),
        grant=Grant(cpus_per_task=2, mem_per_node_mib=512),
        applied=True,
    )


def write(folder: Path, decisions: list[Decision], key: bytes = b"") -> None:
    """Journal decisions into one file, also in the first hour of a day, when the journal makes another, empty one."""
    journal = Journal(folder, key=key)
    for one in decisions:
        journal.append(one)
    journal.close()
    for file in folder.glob("*.jsonl"):
        if not file.stat().st_size:
            file.unlink()


@dataclass
class Audited:
    """A site that has ingested some jobs with tokens, each from a decision in the journal."""

    site: Site
    run: Run
    fake: FakeSacct = field(init=False)
    now_s: int = field(default_factory=lambda: int(time.time()))
    tokens: dict[int, str] = field(
        default_factory=lambda: {number: format_token(made(number)) for number in range(1, JOBS + 1)}
    )

    @property
    def file(self) -> Path:
        [file] = (self.site.folder / "journal").glob("*.jsonl")
        return file

    @property
    def lines(self) -> list[bytes]:
        return self.file.read_bytes().splitlines()

    def journal(self, key: bytes = b"") -> None:
        write(self.site.folder / "journal", [made(number) for number in self.tokens], key)

    def slurm_says(self, **changes: str) -> None:
        tres = "billing=2,cpu=2,mem=512M,node=1"
        given = {"ReqTRES": tres, "AllocTRES": tres, **changes}
        lines = [
            job_line(number, self.now_s - 600 + 10 * number, 50, AdminComment=token, **given)
            for number, token in self.tokens.items()
        ]
        self.fake = FakeSacct(self.site.folder / "slurm", lines)
        self.site.configure(accounting={"sacct": self.fake.command, "first_days": 1})

    def ingest(self) -> None:
        assert self.run("ingest").code == 0

    def found(self, *arguments: str) -> Found:
        """Return what is found: state, where, what; the exit code must say whether any of it is a problem."""
        ran = self.run("audit", "--last", "2h", "--format", "json", *arguments)
        rows = [(row["state"], row["where"], row["what"]) for row in json.loads(ran.out)]
        assert ran.code == (3 if any(state == "problem" for state, _, _ in rows) else 0), ran.err
        return rows

    def rewrite(self, lines: list[bytes]) -> None:
        self.file.write_bytes(b"".join(line + b"\n" for line in lines))


@pytest.fixture
def audited(site: Site, run: Run) -> Audited:
    own = Audited(site, run)
    own.journal()
    own.slurm_says()
    own.ingest()
    return own


def test_an_audit_without_findings_says_that_everything_agrees(audited: Audited) -> None:
    assert audited.found() == []
    ran = audited.run("audit", "--last", "2h")
    assert (ran.code, ran.out) == (0, "")
    assert f"decisions: {JOBS} linked lines in 1 file" in ran.err
    assert f"{JOBS} attempts compared, {JOBS} of them with a token" in ran.err
    assert "no key" in ran.err
    assert "everything that was compared agrees" in ran.err


def test_a_changed_a_removed_and_a_forged_line_are_named_with_their_place(audited: Audited) -> None:
    lines, file = audited.lines, audited.file.name
    audited.rewrite(
        [*lines[:1], lines[1].replace(b'"mem_per_node_mib":512', b'"mem_per_node_mib":999'), *lines[2:]]
    )
    assert audited.found("--journal") == [("problem", f"{file}:2", "changed")]
    # The store has read the original line.
    assert audited.found() == [("problem", f"{file}:2", "changed")] * 2
    audited.rewrite(lines[:2] + lines[3:])
    assert audited.found() == [("problem", f"{file}:3", "removed"), ("problem", file, "removed")]
    audited.rewrite([*lines[:2], encode_decision(made(99))[:-1], *lines[2:]])
    assert audited.found() == [("problem", f"{file}:3", "inserted")]
    audited.rewrite(lines)
    assert audited.found() == []


def test_only_the_store_reveals_lines_cut_off_at_the_end(audited: Audited) -> None:
    audited.rewrite(audited.lines[:-2])
    assert audited.found("--journal") == []
    assert audited.found() == [("problem", audited.file.name, "removed")]
    shown = audited.run("audit", "--last", "2h", "--format=csv").out
    assert f"lines {JOBS - 1} to {JOBS} are unlike what the store has read" in shown


def test_a_journal_rewritten_without_a_key_does_not_match_the_store(audited: Audited) -> None:
    head, anew = Linker().begin("decisions"), []
    for line in audited.lines:
        parts = split_line(line)
        assert parts is not None
        text, head = Linker().linked(parts[0].replace(b'"alice"', b'"mallory"'), head)
        anew.append(text[:-1])
    audited.rewrite(anew)
    assert audited.found("--journal") == []
    file = audited.file.name
    told = audited.found()
    assert ("problem", file, "removed") in told
    assert [where for _, where, what in told if what == "changed"] == [
        f"{file}:{n}" for n in range(1, JOBS + 1)
    ]


def test_a_journal_with_a_key_cannot_be_rewritten_by_others(site: Site, run: Run) -> None:
    key = site.folder / "key"
    assert run("config", "journal-key", str(key)).code == 0
    assert_one_line(run("config", "journal-key", str(key)), 2, "exists already, and a new key does not match")
    site.configure(service={"journal_key": str(key)})
    own = Audited(site, run)
    own.journal(read_key(key, "journal"))
    assert own.found("--journal") == []
    lines = own.lines
    before, parts = newest_head(lines[2]), split_line(lines[3])
    assert before is not None
    assert parts is not None
    forged, _ = Linker().linked(parts[0].replace(b'"alice"', b'"mallory"'), before)
    own.rewrite([*lines[:3], forged[:-1], *lines[4:]])
    assert own.found("--journal") == [("problem", f"{own.file.name}:4", "changed")]
    key.chmod(0o644)
    assert_one_line(run("audit", "--journal"), 2, "other users may read the journal key .*; run `chmod 600")


def test_a_torn_write_is_a_warning(audited: Audited) -> None:
    lines = audited.lines
    audited.rewrite([*lines[:3], lines[3][:100], *lines[3:]])
    assert audited.found() == [("warning", f"{audited.file.name}:4", "torn")]


@pytest.mark.parametrize("ingested", [True, False])
def test_an_altered_token_is_reported_field_by_field(audited: Audited, ingested: bool) -> None:
    audited.tokens[2] = audited.tokens[2].replace("mem:8000", "mem:512")
    audited.tokens[4] = audited.tokens[4].replace("granted=cpus:2", "granted=cpus:1")
    audited.slurm_says()
    if ingested:
        audited.ingest()
    assert set(audited.found()) == {
        ("problem", "job 2", "asked"),
        ("problem", "job 4", "granted"),
        ("warning", "job 4", "CPUs"),
    }
    shown = audited.run("audit", "--last", "2h").out
    assert "cpus 1, mem 512" in shown
    assert "cpus 2, mem 512" in shown


def test_a_missing_token_and_one_of_an_unknown_decision_are_reported(audited: Audited) -> None:
    audited.tokens[3] = ""
    audited.slurm_says()
    assert audited.found() == [("problem", "job 3", "token")]
    audited.tokens[3] = format_token(made(77))
    audited.slurm_says()
    assert audited.found() == [("problem", "job 3", "id"), ("problem", "job 3", "decision")]
    # Once ingested, it is a decision without a line in the journal.
    audited.ingest()
    assert audited.found() == [("problem", "job 3", "decision")]


def test_an_allocation_that_differs_from_the_grant_is_a_warning(audited: Audited) -> None:
    audited.slurm_says(ReqTRES="cpu=2,mem=4000M,node=1", AllocTRES="cpu=2,mem=4000M,node=1")
    assert set(audited.found()) == {("warning", f"job {n}", "MiB") for n in range(1, JOBS + 1)}


def test_jobs_that_ended_earlier_are_left_out_and_jobs_not_ingested_are_counted(audited: Audited) -> None:
    assert "0 attempts compared" in audited.run("audit", "--last", "1m").err
    audited.tokens[JOBS + 1] = ""
    audited.slurm_says()
    assert "1 attempt not in the store yet" in audited.run("audit", "--last", "2h").err


def test_slurm_is_not_asked_for_times_before_the_oldest_stored_job(audited: Audited) -> None:
    before = len(audited.fake.calls())
    assert f"{JOBS} attempts compared" in audited.run("audit", "--last", "999999d").err
    asked = audited.fake.calls()[before:]
    assert min(begin_s for begin_s, _ in asked) > audited.now_s - 3600


def test_the_store_reveals_a_missing_journal(audited: Audited) -> None:
    audited.file.unlink()
    assert audited.found() == [("problem", "decisions-*.jsonl", "removed")]
    assert audited.found("--journal") == []


@pytest.mark.parametrize("output_format", ["table", "json", "csv"])
def test_a_file_whose_name_is_not_utf_8_is_checked_too(site: Site, run: Run, output_format: str) -> None:
    folder = Path(site.config.service.journal)
    folder.mkdir()
    forged = f'{{"id":"1","link":[1,"{"0" * 32}","{"0" * 32}"]}}\n'
    Path(os.fsdecode(os.fsencode(folder) + b"/decisions-\xff-20261122.jsonl")).write_text(forged)
    ran = run("audit", "--journal", "--format", output_format)
    assert ran.code == 3, ran.err
    assert r"decisions-\udcff-20261122.jsonl:1" in ran.out.replace("\\\\", "\\")


def test_a_missing_journal_folder_is_not_taken_for_an_empty_one(audited: Audited) -> None:
    audited.site.configure(service={"journal": str(audited.site.folder / "jurnal")})
    said = "the folder .*/jurnal does not exist; check service.journal"
    assert_one_line(audited.run("audit", "--journal"), 1, said)
    # The jobs are still compared; the lines that the store has read are reported as missing.
    assert re.search(said, audited.run("audit", "--last", "2h").err)
    assert audited.found() == [("problem", "decisions-*.jsonl", "removed")]
    audited.site.configure(service={"journal": str(audited.file)})
    assert_one_line(
        audited.run("audit", "--journal"), 1, "cannot read the journal's folder .*: Not a directory"
    )


def test_a_journal_of_the_previous_release_is_accepted_and_reported_as_unlinked(site: Site, run: Run) -> None:
    own = Audited(site, run)
    (site.folder / "journal").mkdir()
    old = site.folder / "journal" / "decisions-20260101.jsonl"
    old.write_bytes(b"".join(encode_decision(made(number)) for number in own.tokens))
    own.slurm_says()
    own.ingest()
    ran = run("audit", "--last", "2h")
    assert ran.code == 0
    assert f"{JOBS} lines without links, written by an earlier release" in ran.err
    own.journal()
    assert own.found() == []


def test_prune_removes_old_files_and_the_audit_still_holds(audited: Audited) -> None:
    day = audited.file.name[-14:-6]
    older = audited.file.with_name("decisions-20240101.jsonl")
    audited.file.rename(older)
    write(audited.site.folder / "journal", [made(50)])
    audited.ingest()
    ran = audited.run("ingest", "--prune", "30")
    assert "removed 1 file of the decision journal, ingested before" in ran.err
    assert not older.exists()
    assert audited.file.name == f"decisions-{day}.jsonl"
    assert [decode_decision(line) for line in audited.lines] == [made(50)]
    assert audited.found("--journal") == []


def test_recoveries_are_reported_from_the_store_and_explained_without_their_journal(audited: Audited) -> None:
    entry = Entry(
        job_id=2, restarts=0, what="lost", time_s=float(BEFORE_S), cause="out_of_memory", user="alice",
        account="phys", decision_id="d2", cpu_hours=1.5, mem_gib_hours=3.0, why="no script",
    )  # fmt: skip
    folder = audited.site.folder / "recovery"
    assert json.loads(audited.run("report", "recoveries", "--format", "json").out) == []
    RecoveryJournal(folder).append(entry)
    told = "job 2 failed because .*: it was killed for memory. .* owed 1.5 CPU hours and 3 GiB hours; .* no script"
    assert_told(audited.run("explain", "2").err, told)
    audited.ingest()
    for file in folder.iterdir():
        file.unlink()
    assert_told(audited.run("explain", "2").err, told)
    [row] = json.loads(audited.run("report", "recoveries", "--by", "account", "--format", "json").out)
    assert row == {"name": "phys", "requeued": 0, "lost": 1, "cpu_hours": 1.5, "mem_gib_hours": 3.0}


def assert_told(said: str, told: str) -> None:
    assert len(re.findall(told, said)) == 1, said


def as_host(audited: Audited, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Continue as another host with its own journal."""
    monkeypatch.setattr("socket.gethostname", lambda: name)
    audited.site.configure(service={"journal": str(audited.site.folder / name)})


def test_a_host_is_only_audited_for_its_own_journal(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, primary = audited.site.config.service.journal, socket.gethostname()
    as_host(audited, monkeypatch, "backup")
    other = Path(audited.site.config.service.journal)
    write(other, [decision(id=f"d{number}", time_s=float(BEFORE_S)) for number in range(20, 23)])
    audited.ingest()
    assert audited.found() == [], "the lines of the first host are not missed here"
    [file] = other.iterdir()
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    assert audited.found() == [("problem", file.name, "removed")]
    file.unlink()
    assert [found[0] for found in audited.found()] == ["problem"]
    as_host(audited, monkeypatch, primary)
    audited.site.configure(service={"journal": own})
    assert audited.found() == []
