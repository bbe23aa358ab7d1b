"""From sacct, the GPU spool and the journal into the store: incremental, idempotent, and safe to kill."""

import contextlib
import itertools
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, select

from accounting.decisions import encode_decision
from accounting.errors import SlurmError, StoreError
from accounting.ingest import (
    WINDOW_BYTES,
    Fetched,
    IngestReport,
    IngestSettings,
    Window,
    fetched_answer,
    first_span_s,
    ingest,
    next_span_s,
    starts_at,
)
from accounting.journal import read_journal
from accounting.request import Grant
from accounting.sacct_records import Metering
from accounting.store import schema
from accounting.store.database import open_store
from accounting.store.records import Counts, read_attempts, read_decision
from accounting.token import format_token
from tests.builders import DAY_S, T0, FakeSacct, SacctRow, answer_of, decision, job_line, request, step_line
from tests.conftest import PATIENCE_S, Site
from tests.spools import read_spool

NOW_S = T0 + 10 * DAY_S
# How often ingest is killed in the middle; $RIGHTSIZER_KILLS for more.
KILLS = int(os.environ.get("RIGHTSIZER_KILLS", "6"))


def recorded(first_s: int = T0, jobs: int = 60) -> list[SacctRow]:
    """Jobs spread over ten days; each fifth was requeued once, each seventh name breaks its line."""
    lines: list[SacctRow] = []
    for number in range(1, jobs + 1):
        start_s = first_s + number * 10 * DAY_S // (jobs + 1)
        name = f"bad\nname {number}" if number % 7 == 0 else f"fit-{number}"
        if number % 5 == 0:
            lines += [
                job_line(number, start_s, 50, State="REQUEUED", JobName=name),
                step_line(number, start_s=start_s, seconds=50),
            ]
            start_s += 100
        lines += [job_line(number, start_s, JobName=name), step_line(number, start_s=start_s)]
    return lines


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    engine = open_store(f"sqlite:///{tmp_path}/store.db", create=True)
    yield engine
    engine.dispose()


def settings_of(fake: FakeSacct, tmp_path: Path) -> IngestSettings:
    return IngestSettings(
        sacct=fake.command,
        overlap_s=3600,
        first_days=12,
        gpu_spool=tmp_path / "spool",
        journal=tmp_path / "journal",
    )


def content(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """All that a store holds, but for the moments at which it was written."""
    moments = {"seen_s", "read_until_s"}
    with engine.connect() as connection:
        return {
            table.name: sorted(
                (
                    tuple(row)
                    for row in connection.execute(
                        select(*(c for c in table.columns if c.name not in moments))
                    )
                ),
                key=repr,
            )
            for table in schema.metadata.tables.values()
        }


def test_a_second_run_adds_nothing(store: Engine, tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path / "slurm", recorded())
    settings = settings_of(fake, tmp_path)
    first = ingest(store, settings, NOW_S)
    before = content(store)
    second = ingest(store, settings, NOW_S, since_s=T0 - DAY_S)
    assert (first.attempts.new, first.quarantined) == (72, 0)  # 60 jobs and 12 requeues
    assert (second.attempts.new, second.attempts.changed, second.steps.new, second.quarantined) == (
        0,
        0,
        0,
        0,
    )
    assert second.attempts.same == 72
    assert content(store) == before


def test_a_run_goes_on_where_the_last_one_stopped_less_the_overlap(store: Engine, tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path / "slurm", recorded())
    settings = settings_of(fake, tmp_path)
    ingest(store, settings, NOW_S)
    fake.fail_at(None)
    report = ingest(store, settings, NOW_S + 500)
    assert fake.calls() == [(NOW_S - 3600, NOW_S + 500)]
    assert report.attempts.new == 0


def test_a_job_that_was_running_comes_when_it_has_ended(store: Engine, tmp_path: Path) -> None:
    running = FakeSacct(tmp_path / "slurm", [job_line(1, NOW_S - 50, State="RUNNING", End="Unknown")])
    settings = settings_of(running, tmp_path)
    FakeSacct(tmp_path / "slurm", [job_line(1, NOW_S - 50, State="RUNNING", End=str(NOW_S))])
    first = ingest(store, settings, NOW_S)
    FakeSacct(tmp_path / "slurm", [job_line(1, NOW_S - 50, 100), step_line(1, start_s=NOW_S - 50)])
    second = ingest(store, settings, NOW_S + 100)
    assert (first.attempts, first.unfinished) == (Counts(), 1)
    assert (second.attempts, second.unfinished) == (Counts(new=1), 0)


@pytest.mark.parametrize("call", [1, 3, 6])
def test_a_run_that_failed_is_completed_by_the_next(call: int, store: Engine, tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path / "slurm", recorded())
    settings = settings_of(fake, tmp_path)
    fake.fail_at(call)
    with pytest.raises(SlurmError, match="Connection refused"):
        ingest(store, settings, NOW_S)
    fake.fail_at(None)
    ingest(store, settings, NOW_S)
    whole = open_store(f"sqlite:///{tmp_path}/whole.db", create=True)
    ingest(whole, settings, NOW_S)
    assert content(store) == content(whole)
    whole.dispose()


def test_killed_anywhere_and_run_again_it_loses_and_doubles_nothing(site: Site) -> None:
    fake = FakeSacct(site.folder / "slurm", recorded(int(time.time()) - 11 * DAY_S))
    site.configure(accounting={"sacct": fake.command})
    (site.folder / "journal").mkdir()
    journal = site.folder / "journal" / "decisions-20260101.jsonl"
    journal.write_bytes(b"".join(encode_decision(decision(id=str(number))) for number in range(50)))
    draw, first_s = random.Random(7), int(time.time()) - 11 * DAY_S
    since = time.strftime("%Y-%m-%d", time.gmtime(first_s - DAY_S))
    for number in range(KILLS):
        # Each run finds every job changed, so that there is something to write wherever it is killed.
        summary = f"summary {number}"
        FakeSacct(site.folder / "slurm", [{**row, "AdminComment": summary} for row in recorded(first_s)])
        fake.fail_at(None)
        killed = site.start("ingest", "--since", since)
        until, calls = time.monotonic() + PATIENCE_S, draw.randint(1, 8)
        while len(fake.calls()) < calls and killed.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.1))
        killed.kill()
        killed.wait()
    with contextlib.closing(sqlite3.connect(site.folder / "store.db")) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    last = site.start("ingest", "--since", since, "--format", "json")
    _, errors = last.communicate(timeout=PATIENCE_S)
    assert last.returncode == 0, errors.decode()
    interrupted = open_store(site.config.store.url)
    seen = content(interrupted)
    interrupted.dispose()
    whole = open_store(f"sqlite:///{site.folder}/whole.db", create=True)
    config = site.config
    settings = IngestSettings(
        sacct=fake.command,
        overlap_s=3600,
        first_days=30,
        gpu_spool=Path(config.accounting.gpu_spool),
        journal=Path(config.service.journal),
    )
    ingest(whole, settings, int(time.time()))
    assert seen == content(whole)
    assert len(seen["attempts"]) == 72
    assert len(seen["decisions"]) == 50
    whole.dispose()


def windows_of(
    until_s: int | None, now_s: int, since_s: int | None = None, answer_bytes: int = 0
) -> list[Window]:
    """The windows that a run asks for, where each answer has so many bytes."""
    settings = IngestSettings(sacct="", overlap_s=3600, first_days=2, gpu_spool=Path(), journal=Path())
    begin_s, windows = starts_at(until_s, now_s, settings, since_s), []
    span_s = first_span_s(now_s - begin_s)
    while begin_s < now_s:
        end_s = min(begin_s + span_s, now_s)
        windows.append((begin_s, end_s))
        begin_s, span_s = end_s, next_span_s(span_s, answer_bytes)
    return windows


def test_windows_begin_at_the_first_days_the_last_end_or_where_told() -> None:
    assert windows_of(None, NOW_S)[0][0] == NOW_S - 2 * DAY_S
    assert windows_of(NOW_S - 100, NOW_S) == [(NOW_S - 3700, NOW_S)]
    assert windows_of(NOW_S - 100, NOW_S, NOW_S - 5 * DAY_S)[0][0] == NOW_S - 5 * DAY_S


def test_a_clock_that_went_back_leaves_nothing_unread() -> None:
    assert windows_of(NOW_S + DAY_S, NOW_S) == [(NOW_S - 3600, NOW_S)]


@given(st.integers(0, 40 * DAY_S), st.none() | st.integers(1, 40 * DAY_S), st.integers(0, 2 * WINDOW_BYTES))
def test_windows_follow_each_other_up_to_now_and_are_a_day_at_most(
    back_s: int, since_back_s: int | None, answer_bytes: int
) -> None:
    since_s = None if since_back_s is None else NOW_S - since_back_s
    windows = windows_of(NOW_S - back_s, NOW_S, since_s, answer_bytes)
    assert all(0 < end - begin <= DAY_S for begin, end in windows)
    assert all(one[1] == next_one[0] for one, next_one in itertools.pairwise(windows))
    assert windows[-1][1] == NOW_S


def test_windows_grow_while_answers_are_small_and_shrink_where_they_are_large() -> None:
    assert next_span_s(3600, 0) == 7200
    assert next_span_s(DAY_S, 0) == DAY_S
    assert next_span_s(DAY_S, WINDOW_BYTES + 1) == DAY_S // 2
    assert next_span_s(60, WINDOW_BYTES + 1) == 60


def test_a_torn_last_line_of_the_journal_waits_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "decisions-20260101.jsonl"
    first, second = encode_decision(decision(id="a")), encode_decision(decision(id="b"))
    for cut in (1, len(second) // 2, len(second) - 1):
        file.write_bytes(first + second[:cut])
        [part] = read_journal(tmp_path, {})
        assert ([one.id for one in part.decisions], part.quarantined) == (["a"], [])
        assert part.read_bytes == len(first)
        file.write_bytes(first + second)
        [rest] = read_journal(tmp_path, {file.name: part.read_bytes})
        assert [one.id for one in rest.decisions] == ["b"]


def test_the_journal_is_read_on_and_bad_lines_are_kept_once(store: Engine, tmp_path: Path) -> None:
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


def test_the_input_that_a_decision_saw_is_its_attempts_and_in_no_token(store: Engine, tmp_path: Path) -> None:
    sized, plain = (
        decision(id=name, request=request(input_mib=mib)) for name, mib in (("a", 1234.5), ("b", None))
    )
    assert "1234" not in format_token(sized)
    tokens = {1: format_token(sized), 2: format_token(plain), 3: "", 4: format_token(decision(id="lost"))}
    lines = [job_line(number, T0 + DAY_S, 50, AdminComment=token) for number, token in tokens.items()]
    settings = settings_of(FakeSacct(tmp_path / "slurm", lines), tmp_path)
    settings.journal.mkdir()
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


def test_a_journal_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "decisions-20260101.jsonl").mkdir()
    with pytest.raises(StoreError, match="cannot read the journal file"):
        read_journal(tmp_path, {})


def sample(job_id: int, time_s: int, gpu: int = 0, util_pct: float = 90, source: str = "nvml") -> str:
    return (
        f'{{"job_id":"{job_id}","node":"n1","time_s":{time_s},"gpu":{gpu},'
        f'"util_pct":{util_pct},"mem_mib":2000,"source":"{source}"}}\n'
    )


def test_gpu_samples_go_to_the_attempt_they_were_taken_in(store: Engine, tmp_path: Path) -> None:
    first_s, second_s = T0 + 10, T0 + 1000
    fake = FakeSacct(
        tmp_path / "slurm",
        [job_line(7, first_s, State="REQUEUED"), job_line(7, second_s), job_line(8, first_s)],
    )
    settings = settings_of(fake, tmp_path)
    settings.gpu_spool.mkdir()
    lines = [sample(7, first_s + 10 * n, gpu) for n in range(10) for gpu in (0, 1)]
    lines += [sample(7, second_s + 10 * n, 0) for n in range(10)]
    (settings.gpu_spool / "n1.jsonl").write_text("".join(lines))
    report = ingest(store, settings, NOW_S)
    assert report.gpu_use == Counts(new=3)
    used = {
        (one.row.job_id, one.row.start_s): (one.use.gpus, one.use.gpu_source) for one in read_attempts(store)
    }
    assert used == {(7, first_s): (2, "nvml"), (7, second_s): (1, "nvml"), (8, first_s): (None, "")}


def test_gpu_samples_that_come_late_are_told_to_the_attempt_in_the_store(
    store: Engine, tmp_path: Path
) -> None:
    fake = FakeSacct(tmp_path / "slurm", [job_line(7), step_line(7), job_line(8), step_line(8)])
    settings = settings_of(fake, tmp_path)
    ingest(store, settings, NOW_S)
    before = read_attempts(store)
    settings.gpu_spool.mkdir()
    (settings.gpu_spool / "n1.jsonl").write_text("".join(sample(7, T0 + 10 + 10 * n) for n in range(10)))
    # The window of the job is not read again.
    report = ingest(store, settings, NOW_S, since_s=NOW_S - 10)
    assert (report.gpu_use, report.attempts) == (Counts(new=1), Counts())
    late, other = read_attempts(store)
    assert (late.use.gpus, late.use.gpu_source, late.use.gpu_mem_mib) == (1, "nvml", 2000)
    assert (
        msgspec.structs.replace(late.use, gpus=None, gpu_source="", gpu_mem_mib=None, gpu_quality="absent")
        == before[0].use
    )
    assert other == before[1]
    again = ingest(store, settings, NOW_S, since_s=T0)
    assert again.attempts == Counts(same=2)
    assert read_attempts(store) == [late, other]


def test_bad_lines_of_the_gpu_spool_are_quarantined_and_a_torn_one_waits(tmp_path: Path) -> None:
    bad = ["rubbish\n", sample(-1, 5), sample(10**25, 5), sample(1, 5).replace("2000", "null"), "\udcff\n"]
    text = sample(1, T0) + "".join(bad) + sample(1, T0 + 10)[:-20]
    (tmp_path / "n1.jsonl").write_bytes(text.encode(errors="surrogateescape"))
    uses, quarantined = read_spool(tmp_path)
    assert [(use.job_id, use.samples) for use in uses] == [(1, 1)]
    assert len(quarantined) == len(bad)
    assert read_spool(tmp_path / "nothing") == ([], [])


@given(st.lists(st.integers(0, 500), min_size=1, max_size=30, unique=True))
def test_samples_are_parted_where_their_meter_paused(times: list[int]) -> None:
    from accounting.gpu_samples import ATTEMPT_GAP_S, GpuSample, aggregate

    samples = [
        GpuSample(job_id=1, node="n1", time_s=at, gpu=0, util_pct=at % 101, mem_mib=1, source="nvml")
        for at in times
    ]
    uses = sorted(aggregate(samples), key=lambda use: use.first_s)
    gaps = sum(b - a > ATTEMPT_GAP_S for a, b in zip(sorted(times), sorted(times)[1:], strict=False))
    assert len(uses) == gaps + 1
    assert sum(use.samples for use in uses) == len(times)
    assert max(use.util_max_pct or 0.0 for use in uses) == max(at % 101 for at in times)


def test_a_report_of_nothing_counts_nothing(store: Engine, tmp_path: Path) -> None:
    report = ingest(store, settings_of(FakeSacct(tmp_path / "slurm", []), tmp_path), NOW_S)
    assert report == IngestReport(Counts(), Counts(), Counts(), Counts())


def test_reading_from_later_on_leaves_the_mark_for_the_next_plain_run(site: Site) -> None:
    config, asked = site.config, list[tuple[int, int]]()

    def source(begin_s: int, end_s: int) -> Fetched:
        asked.append((begin_s, end_s))
        return fetched_answer(answer_of([]), end_s, Metering())

    settings = IngestSettings(
        sacct="", overlap_s=60, first_days=1, gpu_spool=site.folder, journal=site.folder / "journal"
    )
    engine = open_store(config.store.url, create=True)
    try:
        ingest(engine, settings, 1_000_000, source=source)
        ingest(engine, settings, 1_500_000, since_s=1_400_000, source=source)
        asked.clear()
        ingest(engine, settings, 1_600_000, source=source)
    finally:
        engine.dispose()
    assert asked[0][0] == 1_000_000 - 60
