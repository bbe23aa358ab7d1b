"""Reading sacct into the store: incremental, idempotent, and safe to kill."""

import contextlib
import os
import random
import sqlite3
import time
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine

from accounting.decisions.decision import encode_decision
from accounting.errors import SlurmError
from accounting.ingest.ingesting import fetched_answer, ingest, source_of
from accounting.ingest.retry import retry
from accounting.ingest.run import IngestReport, IngestSettings, Run
from accounting.slurm.sacct_records import Metering
from accounting.slurm.windows import Fetched
from accounting.store.database import open_store
from accounting.store.quarantine import list_quarantine
from accounting.store.records import Counts, read_attempts
from tests.accounting.ingest.recorded import NOW_S, content, recorded, settings_of
from tests.builders import (
    DAY_S,
    T0,
    FakeSacct,
    SacctRow,
    answer_of,
    decision,
    executable,
    job_line,
    step_line,
)
from tests.conftest import PATIENCE_S, Site

# How often ingest is killed in the middle; $RIGHTSIZER_KILLS for more.
KILLS = int(os.environ.get("RIGHTSIZER_KILLS", "6"))


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


def test_a_run_continues_where_the_last_one_stopped_less_the_overlap(store: Engine, tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path / "slurm", recorded())
    settings = settings_of(fake, tmp_path)
    ingest(store, settings, NOW_S)
    fake.fail_at(None)
    report = ingest(store, settings, NOW_S + 500)
    assert fake.calls() == [(NOW_S - 3600, NOW_S + 500)]
    assert report.attempts.new == 0


def worked_in_turn(end_s: int) -> list[SacctRow]:
    """Two jobs of three hours whose first steps needed most; the second, of salloc, has no batch step."""
    start_s, large = end_s - 10_800, {"MaxRSS": str(5 * 1024**3)}
    usage = dict.fromkeys(("TRESUsageInMax", "TRESUsageInTot"), f"cpu=02:00:00,mem={5 * 1024**3}")
    return [
        job_line(1, start_s, 10_800, JobID="900_1"),
        step_line(1, "batch", start_s, 10_800),
        step_line(1, "0", start_s, 3600, **large, **usage),
        step_line(1, "1", start_s + 7200, 3600),
        job_line(2, start_s, 10_800, JobID="2_7", Submit=str(start_s)),
        step_line(2, "0", start_s, 3600, **large, **usage),
        step_line(2, "1", start_s + 7200, 3600),
    ]


def test_steps_that_ended_before_the_window_of_their_job_count(store: Engine, tmp_path: Path) -> None:
    # slurmdbd reports only steps that ran in the window: seen on 22.05, and so written in all releases to 26.05.
    fake = FakeSacct(tmp_path / "slurm", worked_in_turn(NOW_S - 60))
    settings = settings_of(fake, tmp_path)
    first = ingest(store, settings, NOW_S)
    whole = content(store)
    assert (first.attempts, first.steps, first.quarantined) == (Counts(new=2), Counts(new=5), 0)
    assert {one.use.peak_mem_mib for one in read_attempts(store)} >= {5 * 1024 + 200.0}
    # As each round of `ingest --watch` does, and each run within the overlap.
    for back_s in (120, 3600, 5000, 9000):
        again = ingest(store, settings, NOW_S, since_s=NOW_S - back_s)
        assert (again.attempts, again.quarantined) == (Counts(same=2), 0)
    assert content(store) == whole


def test_jobs_are_asked_for_by_few_numbers_at_once(store: Engine, tmp_path: Path) -> None:
    """MariaDB takes minutes for a thousand tasks by the id of their array, which is also the number of one of them."""
    rows = [job_line(900 + task, NOW_S - 500, JobID=f"900_{task}") for task in range(300)]
    fake = FakeSacct(tmp_path / "whole", rows)
    spy = executable(
        tmp_path / "sacct", f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexec {fake.command} "$@"\n'
    )
    settings = msgspec.structs.replace(settings_of(fake, tmp_path), sacct=str(spy))
    assert ingest(store, settings, NOW_S, since_s=NOW_S - 450).attempts == Counts(new=300)
    calls = [
        line.split("--jobs=")[1]
        for line in (tmp_path / "asked").read_text().splitlines()
        if "--jobs=" in line
    ]
    asked = [call.split(" ")[0].split(",") for call in calls if "MaxRSS" in call]
    assert [len(ids) for ids in asked] == [250, 50]
    assert {*asked[0], *asked[1]} == {"900_0", *(str(number) for number in range(901, 1200))}


def test_a_job_whose_earlier_steps_are_missing_waits_for_the_next_run(store: Engine, tmp_path: Path) -> None:
    fake = FakeSacct(tmp_path / "whole", worked_in_turn(NOW_S - 60))
    cut = executable(
        tmp_path / "sacct",
        f'#!/bin/sh\ncase "$*" in *--jobs=1,2_7*) {fake.command} "$@" | head -n 4;; *) {fake.command} "$@";; esac\n',
    )
    settings = settings_of(fake, tmp_path)
    with pytest.raises(SlurmError, match="a part of job 900_1 missing"):
        ingest(store, msgspec.structs.replace(settings, sacct=str(cut)), NOW_S, since_s=NOW_S - 120)
    assert read_attempts(store) == []
    assert ingest(store, settings, NOW_S, since_s=NOW_S - 120).steps.new == 5


def test_a_job_that_was_running_is_read_when_it_has_ended(store: Engine, tmp_path: Path) -> None:
    running = FakeSacct(tmp_path / "slurm", [job_line(1, NOW_S - 50, State="RUNNING", End="Unknown")])
    settings = settings_of(running, tmp_path)
    FakeSacct(tmp_path / "slurm", [job_line(1, NOW_S - 50, State="RUNNING", End=str(NOW_S))])
    first = ingest(store, settings, NOW_S)
    FakeSacct(tmp_path / "slurm", [job_line(1, NOW_S - 50, 100), step_line(1, start_s=NOW_S - 50)])
    second = ingest(store, settings, NOW_S + 100)
    assert (first.attempts, first.unfinished) == (Counts(), 1)
    assert (second.attempts, second.unfinished) == (Counts(new=1), 0)


def test_an_impossible_request_does_not_stop_ingest(store: Engine, tmp_path: Path) -> None:
    # Seen on 22.05: a submission that is refused at once is recorded all the same, as FAILED, with its request.
    asked = {
        1: "billing=3600000000,cpu=3600000000,mem=3600000000000M,node=1",  # -n 60000 -c 60000
        2: "billing=1,cpu=1,gres/gpu=3000000000,mem=1000M,node=1",
        3: "billing=1,cpu=1,mem=9000000000000000M,node=1",
        4: "billing=1,cpu=1,mem=14730855926290448384M,node=1",
    }
    comment = "rightsizer/1;id=4ea01338cd18;mode=observe;why=no-model;asked=tasks:60000,cpus:60000"
    rows = [
        job_line(number, NOW_S - 50, 0, State="FAILED", ReqTRES=tres, AllocTRES="", AdminComment=comment)
        for number, tres in asked.items()
    ]
    fake = FakeSacct(tmp_path / "slurm", [*rows, job_line(5, NOW_S - 100), step_line(5, start_s=NOW_S - 100)])
    report = ingest(store, settings_of(fake, tmp_path), NOW_S)
    assert report.attempts == Counts(new=5)
    most = 2**31 - 1
    stored = {one.row.job_id: one for one in read_attempts(store)}
    assert [stored[number].row.req_cpus for number in range(1, 6)] == [most, 1, 1, 1, 8]
    assert [stored[number].row.req_gpus for number in range(1, 6)] == [None, most, None, None, None]
    assert {stored[number].asked_cpus for number in asked} == {most}


def test_a_job_in_an_unknown_state_is_kept_for_another_try(store: Engine, tmp_path: Path) -> None:
    # A window may end in every second of the run.
    rows = [job_line(number, T0 + number * 3600, State="LAUNCH_FAILED") for number in range(1, 48)]
    fake = FakeSacct(tmp_path / "slurm", rows)
    settings = settings_of(fake, tmp_path)
    edges_s = [end_s for _, end_s in windows_of(store, settings, fake)]
    rows += [
        job_line(100 + place, end_s - 105, State="LAUNCH_FAILED") for place, end_s in enumerate(edges_s[:-1])
    ]
    FakeSacct(tmp_path / "slurm", rows)
    report = ingest(store, settings, NOW_S, since_s=T0)
    assert report.attempts == Counts()
    assert kept(store) == len(rows)
    run = Run(settings, NOW_S)
    assert retry(store, run, source_of(settings, NOW_S)) == 0
    assert kept(store) == len(rows), "what is not understood again stays"
    FakeSacct(tmp_path / "slurm", [{**row, "State": "FAILED"} for row in rows])
    assert retry(store, run, source_of(settings, NOW_S)) == len(rows)
    assert kept(store) == 0
    assert run.report.attempts.new == len(rows)


def test_a_job_that_slurm_has_purged_stays_in_the_quarantine(store: Engine, tmp_path: Path) -> None:
    fake = FakeSacct(
        tmp_path / "slurm", [job_line(number, NOW_S - 500, State="LAUNCH_FAILED") for number in (1, 2)]
    )
    settings = settings_of(fake, tmp_path)
    ingest(store, settings, NOW_S)
    FakeSacct(tmp_path / "slurm", [job_line(2, NOW_S - 500), job_line(3, NOW_S - 500)])
    run = Run(settings, NOW_S)
    assert retry(store, run, source_of(settings, NOW_S)) == 1
    assert kept(store) == 1, "the one record that there is of job 1"
    assert run.report.attempts.new == 2


def test_the_record_after_a_resize_is_no_job_when_tried_again_either(store: Engine, tmp_path: Path) -> None:
    # As 26.05 records it: the rest has no step, and starts as it is submitted.
    before = [job_line(1, NOW_S - 600, 100, State="RESIZING"), step_line(1, start_s=NOW_S - 600)]
    rest = job_line(1, NOW_S - 500, 200, Submit=str(NOW_S - 500))
    settings = settings_of(FakeSacct(tmp_path / "slurm", [*before, rest]), tmp_path)
    ingest(store, settings, NOW_S)
    run = Run(settings, NOW_S)
    assert retry(store, run, source_of(settings, NOW_S)) == 0
    assert (kept(store), run.report.attempts) == (2, Counts())


def windows_of(store: Engine, settings: IngestSettings, fake: FakeSacct) -> list[tuple[int, int]]:
    """Ingest everything, and return the windows that were asked for."""
    ingest(store, settings, NOW_S, since_s=T0)
    return fake.calls()


def kept(store: Engine) -> int:
    with store.connect() as connection:
        return sum(group.lines for group in list_quarantine(connection))


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


def test_a_run_killed_anywhere_and_repeated_loses_and_doubles_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a slurmctld that says what measures, no digest is stored.
    executable(site.folder / "scontrol", "#!/bin/sh\necho 'SLURM_VERSION           = 24.11.5'\n")
    monkeypatch.setenv("PATH", str(site.folder), prepend=":")
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
        metering=Metering(release="24.11"),
    )
    ingest(whole, settings, int(time.time()))
    assert seen == content(whole)
    assert len(seen["attempts"]) == 72
    assert len(seen["decisions"]) == 50
    whole.dispose()


def test_only_jobs_that_ended_within_a_day_are_handed_on(store: Engine, tmp_path: Path) -> None:
    told = list[int]()
    fake = FakeSacct(tmp_path / "slurm", [job_line(7, NOW_S - 2 * DAY_S), job_line(8, NOW_S - 3600)])
    settings = msgspec.structs.replace(
        settings_of(fake, tmp_path), hand_on=lambda new, _: told.extend(one.row.job_id for one in new)
    )
    assert ingest(store, settings, NOW_S).attempts.new == 2
    assert told == [8]


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
        ingest(engine, settings, NOW_S, source=source)
        ingest(engine, settings, NOW_S + 500_000, since_s=NOW_S + 400_000, source=source)
        asked.clear()
        ingest(engine, settings, NOW_S + 600_000, source=source)
    finally:
        engine.dispose()
    assert asked[0][0] == NOW_S - 60
