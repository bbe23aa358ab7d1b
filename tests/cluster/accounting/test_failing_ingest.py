"""Ingest on a real Slurm that fails meanwhile: nothing is half counted, and the next run completes it.

slurmdbd is away or has purged steps, sacct's output is cut off anywhere, the clock is set back, two ingests run at
the same time.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from accounting.ingest.ingesting import ingest, ingest_window, source_of
from accounting.ingest.run import IngestSettings, Run
from accounting.ingest.window_marks import LATE
from accounting.records import Attempt
from accounting.store import schema
from accounting.store.database import open_store
from slurm_plugin.cli.ingest.settings import settings_of
from slurm_plugin.config.file import load_config
from slurm_plugin.sandbox import teardown
from tests.cluster.accounting import cutting_sacct, workload
from tests.cluster.accounting.site import Ingested, Site, started_site
from tests.cluster.conftest import commands_on
from tests.cluster.matrix.prefixes import SYSTEM, releases, why_missing
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RELEASES = releases()
JOBS = 12
# So long after the last job's end none of its steps can still be on its way to slurmdbd.
SETTLES_S = 11
RANDOM_CUTS = 3
TABLES = (schema.attempts, schema.steps)

Rows = tuple[list[str], ...]


@dataclass(frozen=True)
class Ready:
    """A release on which jobs with steps have ended, and what one undisturbed run made of them."""

    site: Site
    whole: Rows

    def stored(self, store: str) -> Rows:
        """Return all attempts and steps of a store, in an order of its own; nothing if there is no store."""
        if not (self.site.folder / f"{store}.db").exists():
            return tuple([] for _ in TABLES)
        return tuple(sorted(map(repr, self.site.rows(table, store))) for table in TABLES)

    def windows(self, store: str) -> list[dict[str, Any]]:
        """Return until when a store has read sacct."""
        return self.site.rows(schema.windows, store)


@pytest.fixture(scope="module", params=RELEASES)
def ready(request: pytest.FixtureRequest, make_folder: Callable[[], Path]) -> Iterator[Ready]:
    """Return a release with some jobs that have ended, their steps in slurmdbd."""
    prefix = RELEASES[request.param]
    reason = why_missing(prefix)
    if reason:
        pytest.skip(reason)
    with started_site(make_folder(), prefix) as site:
        for number in range(JOBS):
            site.submit(f"job-{number}", "--mem=50", script="srun true; srun true")
        site.submit("odd", "--mem=50", b"--job-name=odd\nname", script="srun true")
        site.submit("in-turn", "--mem=50", script="srun true; sleep 5; srun true")
        workload.wait_ended(site)
        time.sleep(SETTLES_S)
        assert site.ingest("undisturbed").status == 0
        ready = Ready(site, ())
        whole = ready.stored("undisturbed")
        assert [len(rows) for rows in whole] == [JOBS + 2, 3 * JOBS + 2 + 3]
        yield Ready(site, whole)


def complaint_of(ingested: Ingested) -> str:
    """Return the one line in which a run says why it failed."""
    assert ingested.status == 1, ingested
    lines = [line for line in ingested.said.splitlines() if line.startswith("rightsizer: ")]
    assert len(lines) == 1, ingested.said
    assert "Traceback" not in ingested.said
    return lines[0]


def test_ingest_reports_a_missing_slurmdbd_and_the_next_run_completes_it(ready: Ready) -> None:
    assert ready.site.ingest("away").status == 0
    before, marks = ready.stored("away"), ready.windows("away")
    ready.site.end_slurmdbd()
    try:
        assert "slurmdbd" in complaint_of(ready.site.ingest("away"))
        assert (ready.stored("away"), ready.windows("away")) == (before, marks)
        complaint_of(ready.site.ingest("never-there"))
        assert ready.stored("never-there") == ([], [])
    finally:
        ready.site.start_slurmdbd()
    for store in ("away", "never-there"):
        assert ready.site.ingest(store).status == 0
        assert ready.stored(store) == ready.whole


def cuts() -> list[tuple[str, str, str]]:
    """Return which question is cut, where, and the exit status that follows."""
    chosen = random.Random(4)
    anywhere = [f"{chosen.random():.3f}" for _ in range(RANDOM_CUTS)]
    lines = ["0", "line:0", "line:0.03", "line:0.5", "line:0.98"]
    ended_well = [(call, where, "0") for call in ("0", "1") for where in (*lines, *anywhere)]
    return [*ended_well, ("0", "0.5", "1"), ("1", "0.5", "1")]


# A cut answer looks alike whichever release printed it.
@pytest.mark.parametrize("ready", [SYSTEM], indirect=True)
@pytest.mark.parametrize(("call", "where", "status"), cuts())
def test_an_answer_that_was_cut_off_is_not_taken_for_a_complete_one(
    ready: Ready, call: str, where: str, status: str
) -> None:
    store = f"cut-{call}-{where}-{status}".replace(":", "-")
    ingested = cut_off(ready.site, store, call, where, status)
    if ingested.status == 0:
        # What was missing from the texts was asked for again.
        assert (call, status) == ("0", "0")
        assert ready.stored(store) == ready.whole
        return
    complaint_of(ingested)
    assert ready.stored(store) == ([], [])
    assert ready.windows(store) == []
    # Here no overlap brings anything back: what was wrongly marked as read would stay lost.
    ready.site.configuration(store, overlap_s=0)
    assert ready.site.ingest(store).status == 0
    assert ready.stored(store) == ready.whole


def cut_off(site: Site, store: str, call: str, where: str, status: str) -> Ingested:
    """Run ingest with a sacct whose answer is cut off."""
    program = site.folder / "cutting_sacct.py"
    shutil.copy(cutting_sacct.__file__, program)
    program.chmod(0o755)
    site.configuration(store, sacct=str(program), overlap_s=0)
    real = shutil.which("sacct", path=site.environment()["PATH"])
    assert real is not None
    ingested = site.ingest(
        store,
        more={
            "CUT_SACCT": real,
            "CUT_CALL": call,
            "CUT_AT": where,
            "CUT_STATUS": status,
            "CUT_COUNT": str(site.folder / f"{store}.count"),
        },
    )
    site.configuration(store, sacct="sacct")
    return ingested


def test_steps_that_ended_before_the_window_of_their_job_count(ready: Ready) -> None:
    engine = open_store(ready.site.url("seconds"), create=True)
    ends_s = {one.row.end_s for one in ready.site.attempts("undisturbed")}
    with commands_on(ready.site.sandbox):
        settings, now_s = settings_of(load_config(str(ready.site.configuration("seconds")))), int(time.time())
        run, source = Run(settings, now_s), source_of(settings, now_s)
        for end_s in sorted(ends_s):
            ingest_window(engine, run, source(end_s - 1, end_s), end_s - 1, end_s)
    engine.dispose()
    assert ready.stored("seconds") == ready.whole


def test_a_clock_that_was_ahead_loses_no_job(ready: Ready) -> None:
    ahead_s = 86_400
    engine = open_store(ready.site.url("clock"), create=True)
    settings = IngestSettings(
        sacct=str(real_sacct(ready.site)),
        overlap_s=1,
        first_days=2,
        gpu_spool=ready.site.folder / "no-spool",
        journal=ready.site.folder / "no-journal",
    )
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(ready.site.sandbox.layout.slurm_conf))
            ingest(engine, settings, int(time.time()) + ahead_s)
            later = ready.site.submit("later", "--mem=50")
            workload.wait_ended(ready.site)
            # A window ends before the second in which it is asked for.
            time.sleep(3)
            report = ingest(engine, settings, int(time.time()))
            again = ingest(engine, settings, int(time.time()))
    finally:
        engine.dispose()
    assert report.attempts.new == 1
    assert (again.attempts.new, again.attempts.changed) == (0, 0)
    assert later in {one.row.job_id for one in ready.site.attempts("clock")}


def real_sacct(site: Site) -> Path:
    """Return the release's own sacct."""
    found = shutil.which("sacct", path=site.environment()["PATH"])
    assert found is not None
    return Path(found)


def test_ingests_at_the_same_time_store_what_a_single_one_stores(ready: Ready) -> None:
    site = ready.site
    one = site.ingest("alone")
    with ThreadPoolExecutor(4) as pool:
        several = list(pool.map(lambda _: site.ingest("together"), range(4)))
    assert (one.status, *(each.status for each in several)) == (0, 0, 0, 0, 0), [
        each.said for each in several
    ]
    assert ready.stored("together") == ready.stored("alone")
    assert site.ingest("together").found_new == 0
    with closing(sqlite3.connect(site.folder / "together.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_ingest_works_if_the_last_job_was_requeued_and_is_pending(ready: Ready) -> None:
    """Asked for this job by its id, sacct also shows the pending attempt; asked for the window, it does not."""
    site = ready.site
    job = site.submit("again", "--mem=50", script="sleep 600")
    try:
        wait_until(lambda: site.states().get(str(job)) == "RUNNING", "the job runs")
        site.run("scontrol", "requeuehold", str(job))
        wait_until(lambda: site.states().get(str(job)) == "PENDING", "it waits again")
        time.sleep(SETTLES_S)
        found = site.ingest("again")
    finally:
        site.run("scancel", str(job))
    assert found.status == 0, found.said
    assert [one.use.outcome for one in site.attempts("again") if one.row.job_id == job] == ["cut_short"]


@contextmanager
def steps_purged(site: Site) -> Iterator[None]:
    """Empty slurmdbd's steps as PurgeStepAfter does, which deletes rows without regard to their job."""
    site.database("CREATE TABLE purged AS SELECT * FROM {steps}")
    try:
        site.database("DELETE FROM {steps}")
        yield
    finally:
        site.database("INSERT INTO {steps} SELECT * FROM purged")
        site.database("DROP TABLE purged")


def known_of(site: Site, store: str) -> tuple[list[Attempt], list[str]]:
    """Return all attempts and steps of a store, in an order of its own."""
    attempts = sorted(site.attempts(store), key=lambda one: one.row.key)
    return attempts, sorted(map(repr, site.rows(schema.steps, store)))


def test_steps_that_slurmdbd_has_purged_stay_in_the_store(ready: Ready) -> None:
    site = ready.site
    assert site.ingest("purged").status == 0
    before = known_of(site, "purged")
    with steps_purged(site):
        assert "." not in site.run("sacct", "--allusers", "--noheader", "--format=JobID").strip()
        assert site.ingest("purged").status == 0
        assert site.ingest("after").status == 0
    assert known_of(site, "purged") == before
    # A job first read after the purge is not taken for one that needed nothing.
    after = [one for one in site.attempts("after") if one.use.outcome == "completed"]
    assert {(one.use.peak_mem_mib, one.use.cores) for one in after} == {(None, None)}


# What slurmctld keeps, and hands on when it can, is alike on all releases.
@pytest.mark.parametrize("ready", [SYSTEM], indirect=True)
def test_a_job_that_slurmctld_handed_on_late_is_read_within_a_day(ready: Ready) -> None:
    site, store = ready.site, "late"
    site.configuration(store, overlap_s=0, late_days=1, cluster=site.sandbox.layout.cluster)
    assert site.ingest(store).status == 0
    site.end_slurmdbd()
    kept = site.submit("kept", "--mem=50")
    wait_until(lambda: site.states().get(str(kept)) is None, "it has ended")
    time.sleep(2)  # a window ends before the second in which it is asked for
    slurmctld = teardown.running_record(site.sandbox.layout, "slurmctld")
    assert slurmctld is not None
    os.kill(slurmctld.pid, signal.SIGSTOP)
    try:
        site.start_slurmdbd()
        # slurmdbd answers, as it does for readers on other hosts, but lacks what slurmctld has not handed on.
        assert site.ingest(store).status == 0
    finally:
        os.kill(slurmctld.pid, signal.SIGCONT)
    # For some seconds it may know only the state (22.05): the record of the end came before that of the start.
    wait_until(lambda: has_ended_in_sacct(site, kept), "slurmdbd knows its end")
    assert site.ingest(store).status == 0
    assert kept not in {one.row.job_id for one in site.attempts(store)}
    with closing(sqlite3.connect(site.folder / f"{store}.db")) as connection, connection:
        connection.execute("UPDATE windows SET read_until_s = read_until_s - 86400 WHERE source = ?", (LATE,))
    assert site.ingest(store).found_new > 0
    assert kept in {one.row.job_id for one in site.attempts(store)}


def has_ended_in_sacct(site: Site, job: int) -> bool:
    told = site.run("sacct", "--allusers", "-X", "--noheader", "--parsable2", "--format=JobID,State,End")
    return any(line.startswith(f"{job}|COMPLETED|") and "Unknown" not in line for line in told.splitlines())
