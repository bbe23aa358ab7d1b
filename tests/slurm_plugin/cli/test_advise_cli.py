"""`rightsizer advise` on a queue with state, with all its options."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from accounting.store.database import open_store
from slurm_plugin.slurm import gateway
from tests.accounting.report.report_store import fill, measured
from tests.conftest import Site
from tests.slurm_plugin.advisor.conftest import mixed
from tests.slurm_plugin.conftest import Run, assert_one_line
from tests.slurm_plugin.slurm.fake_queue import FakeQueue
from tests.slurm_plugin.slurm.queued import TERMS, snapshot


@pytest.fixture
def queue(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeQueue]:
    """Return a queue that the site's advisor finds; restore the logging afterwards."""
    site.configure(advisor={"directory": str(site.folder / "advisor"), "control_share": 0.0, "period_s": 1})
    queue = FakeQueue(mixed())
    monkeypatch.setattr(gateway, "open_queue", lambda _name: queue)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    monkeypatch.setattr(root, "handlers", [])
    yield queue
    root.handlers, root.level = handlers, level


def test_a_dry_run_changes_nothing_and_leaves_nothing_behind(queue: FakeQueue, run: Run, site: Site) -> None:
    ran = run("advise")
    assert ran.code == 0, ran.err
    lines = [line.split() for line in ran.out.splitlines() if line.strip()]
    assert lines[0][:3] == ["job", "user", "now"]
    assert {line[0] for line in lines[2:]} == {str(number) for number in range(3, 15)}
    assert "factors would change (this was a dry run; --apply makes the changes)" in ran.err
    assert queue.writes == []
    assert not (site.folder / "advisor").exists()


def test_the_applied_factors_are_those_in_the_json_and_undo_restores_the_old_ones(
    queue: FakeQueue, run: Run
) -> None:
    before = queue.snapshot
    ran = run("advise", "--once", "--apply", "--format", "json")
    assert ran.code == 0, ran.err
    rows = {row["job_id"]: row for row in json.loads(ran.out)}
    assert queue.factors() == {
        job: row["proposed_factor"] for job, row in rows.items() if row["proposed_factor"]
    }
    assert rows[7]["base_start_s"] > rows[7]["start_s"]
    assert rows[7]["low_s"] <= rows[7]["start_s"] <= rows[7]["high_s"]
    assert rows[13]["why"] == "it is held"
    assert [row["proposed_place"] for row in rows.values()] == list(range(1, 13))
    assert run("advise", "--undo", "--expired").err == ""
    assert queue.factors()
    undone = run("advise", "--undo")
    assert undone.code == 0
    assert re.search(r"^undone: \d+ changes of the advisor$", undone.err, re.MULTILINE)
    assert queue.snapshot == before


def test_a_job_that_ends_while_changes_are_undone_is_no_failure(queue: FakeQueue, run: Run) -> None:
    assert run("advise", "--apply").code == 0
    queue.before_write = lambda: queue.remove(next(iter(queue.factors())))
    undone = run("advise", "--undo")
    assert undone.code == 0, undone.err
    assert len(queue.snapshot.jobs) < len(mixed().jobs)


def test_csv_has_every_job_and_top_limits_the_table(
    queue: FakeQueue, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_plugin.cli.advise.TOP", 5)
    as_csv = list(csv.DictReader(io.StringIO(run("advise", "--format", "csv").out)))
    assert len(as_csv) == 12
    assert "7 more jobs in the queue" in run("advise").err
    few = run("advise", "--top", "3")
    assert "9 more jobs in the queue; --top N shows more" in few.err
    assert queue.writes == []


def test_a_plan_that_changes_nothing_says_so(queue: FakeQueue, run: Run) -> None:
    queue.snapshot = snapshot()
    ran = run("advise", "--apply")
    assert (ran.code, ran.out) == (0, "")
    assert "0 waiting jobs, 0 running; the best plan is to change nothing, because " in ran.err


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"priority_type": "priority/basic"}, "Required: PriorityType=priority/multifactor"),
        ({"parameters": ()}, r"Required: SchedulerParameters=…,bf_continue"),
        ({"site_factor_plugin": "site_factor/x"}, "site_factor/x sets the SiteFactor itself"),
    ],
)
def test_the_command_refuses_and_says_what_to_set(
    terms: dict[str, object], says: str, queue: FakeQueue, run: Run
) -> None:
    queue.snapshot = replace(queue.snapshot, terms=replace(TERMS, **terms))
    assert_one_line(run("advise", "--apply"), 1, says)
    assert queue.writes == []


def test_an_unreachable_slurmctld_is_reported_in_one_line(queue: FakeQueue, run: Run) -> None:
    queue.failing = "scontrol failed"
    assert_one_line(run("advise"), 1, "scontrol failed; check that slurmctld runs")


@pytest.mark.parametrize(
    "options", [("--once", "--watch"), ("--undo", "--apply"), ("--expired",), ("--undo", "--watch")]
)
def test_options_that_exclude_each_other_are_a_usage_error(options: tuple[str, ...], run: Run) -> None:
    assert run("advise", *options).code == 2


@pytest.mark.usefixtures("queue")
def test_two_advisors_do_not_work_on_one_queue(run: Run, site: Site) -> None:
    with gateway.open_gateway(site.config, apply=True):
        assert_one_line(run("advise", "--apply"), 1, rf"another advisor \(process {os.getpid()} on ")
        assert run("advise").code == 0


def test_what_a_running_advisor_has_set_is_not_undone_by_another_process(
    queue: FakeQueue, run: Run, site: Site
) -> None:
    """A backup controller's host may share the folder: a unit there that ends for the lock undoes by ExecStopPost."""
    assert run("advise", "--once", "--apply").code == 0
    applied = queue.factors()
    assert applied
    with gateway.open_gateway(site.config, apply=True):
        assert_one_line(run("advise", "--undo"), 1, "another advisor")
        assert run("advise", "--undo", "--expired").code == 0
    assert queue.factors() == applied
    assert run("advise", "--undo").code == 0
    assert queue.factors() == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_advisor_undoes_its_changes(
    number: int, queue: FakeQueue, run: Run, monkeypatch: pytest.MonkeyPatch, site: Site
) -> None:
    before, seen = queue.snapshot, []
    known = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}

    def wait(event: threading.Event, _pause_s: float | None = None) -> bool:
        seen.append(queue.factors())
        os.kill(os.getpid(), number)
        return event.is_set()

    monkeypatch.setattr(threading.Event, "wait", wait)
    try:
        ran = run("advise", "--watch", "--apply")
    finally:
        for one, handler in known.items():
            signal.signal(one, handler)
    assert ran.code == 0, ran.err
    assert seen[0]
    assert queue.snapshot == before
    assert "stopped" in ran.err
    assert re.search(r"^undone: \d+ changes of the advisor$", ran.err, re.MULTILINE)
    assert list((site.folder / "advisor").glob("cycles-*.jsonl"))


def test_cycles_are_ingested_and_reported(queue: FakeQueue, run: Run, site: Site) -> None:
    """From the journal to the report, using only the command line."""
    run("advise", "--apply")
    assert run("report", "advisor").code == 1  # there is no store yet
    store = open_store(site.config.store.url, create=True)
    from accounting.ingest.run import IngestSettings
    from accounting.ingest.run import Run as IngestRun
    from accounting.ingest.spools import ingest_spools

    settings = IngestSettings(
        sacct="none",
        overlap_s=0,
        first_days=1,
        gpu_spool=Path(site.config.accounting.gpu_spool),
        journal=Path(site.config.service.journal),
        advisor=Path(site.config.advisor.directory),
    )
    ingested = IngestRun(settings, 1)
    ingest_spools(store, ingested)
    assert ingested.report.cycles.new == 1
    told = {job.job_id: job for job in queue.snapshot.jobs}
    submit_s = int(told[7].submit_s)
    start_s = int(queue.snapshot.time_s) + 1200
    fill(store, [measured(7, cluster="alpha", submit_s=submit_s, start_s=start_s, end_s=start_s + 60)])
    store.dispose()
    ran = run("report", "advisor", "--format", "json")
    assert ran.code == 0, ran.err
    rows = json.loads(ran.out)
    assert [row["jobs"] for row in rows] == [1, 1]
    effect = json.loads(run("report", "advisor", "--effect", "--format", "json").out)
    assert effect == []
    table = run("report", "advisor")
    assert "expected starts and real starts" in table.out
    assert "no effect can be shown" in table.err
