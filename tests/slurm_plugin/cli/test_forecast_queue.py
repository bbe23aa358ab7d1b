"""`rightsizer forecast` with a queue: pending and running jobs are demand, though they have not ended."""

from __future__ import annotations

import json
import time

import pytest

from accounting.ingest.ingesting import SACCT
from accounting.records import Attempt
from accounting.report.selection import Selection
from accounting.store import schema
from accounting.store.database import open_store
from accounting.store.records import write_rows
from slurm_plugin.cli.forecast.open_jobs import attempts_of
from slurm_plugin.slurm import backends
from slurm_plugin.slurm.snapshot import QueuedJob
from tests.builders import attempt
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run
from tests.slurm_plugin.slurm.fake_queue import FakeQueue
from tests.slurm_plugin.slurm.queued import running, snapshot, waiting
from tests.stores import store_attempts

HOUR_S, DAY_S = 3600, 86_400
OPTIONS = ("--step", "6h", "--horizon", "12h", "--format", "json")


@pytest.fixture
def now_s() -> int:
    """Return the end of the last full six hours: what is stored has ended by then."""
    return int(time.time()) // (6 * HOUR_S) * 6 * HOUR_S


@pytest.fixture
def jobs(site: Site, now_s: int) -> list[Attempt]:
    """Store one job of ten days and 8 CPUs a day, for weeks: ten run at a time, and none of the last ten has ended."""
    site.configure(accounting={"cluster": "alpha"})
    found = [
        attempt(
            job_id=day, cluster="alpha", submit_s=now_s - day * DAY_S, start_s=now_s - day * DAY_S,
            elapsed_s=10 * DAY_S, token=False,
        )
        for day in range(10, 60)
    ]  # fmt: skip
    store_attempts(site.config.store.url, found)
    return found


def mark_read(site: Site, until_s: int, cluster: str = "alpha") -> None:
    """Record until when accounting was read."""
    engine = open_store(site.config.store.url)
    with engine.begin() as connection:
        row = {"source": SACCT, "cluster": cluster, "read_until_s": until_s}
        write_rows(connection, schema.windows, [row])
    engine.dispose()


def queue_of(monkeypatch: pytest.MonkeyPatch, *jobs: QueuedJob) -> FakeQueue:
    queue = FakeQueue(snapshot(*jobs))
    monkeypatch.setattr(backends, "open_queue", lambda _name: queue)
    return queue


def long_jobs(now_s: int, **changes: object) -> list[QueuedJob]:
    """Return the jobs of the last ten days, which are running."""
    began_s = [now_s - day * DAY_S for day in range(10)]
    return [running(day, submit_s=at_s, start_s=at_s, cpus=8, **changes) for day, at_s in enumerate(began_s)]


@pytest.mark.usefixtures("jobs")
def test_running_jobs_count_though_they_have_not_ended(
    run: Run, site: Site, now_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_read(site, now_s + 60)
    monkeypatch.setattr(time, "time", lambda: now_s + 60.0)
    queue_of(monkeypatch, *long_jobs(now_s))
    ran = run("forecast", *OPTIONS)
    assert ran.code == 0, ran.err
    assert "counted too: 10 jobs waiting or running now" in ran.err
    assert "forecast anew" not in ran.err
    for row in json.loads(ran.out):
        assert row["cores"] == pytest.approx(80, abs=1)
        assert row["high"] - row["low"] < 20


def test_steps_of_which_much_has_ended_since_accounting_was_read_are_forecast_too(
    run: Run, site: Site, now_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.configure(accounting={"cluster": "alpha"})
    begun_s = [now_s - HOUR_S * number for number in range(1, 40 * 24)]
    found = [
        attempt(job_id=at, cluster="alpha", submit_s=at_s, start_s=at_s, elapsed_s=HOUR_S, token=False)
        for at, at_s in enumerate(begun_s, start=1)
    ]
    store_attempts(site.config.store.url, found)
    mark_read(site, now_s)
    monkeypatch.setattr(time, "time", lambda: now_s + 5.0 * HOUR_S)
    queue_of(monkeypatch)
    ran = run("forecast", *OPTIONS)
    assert ran.code == 0, ran.err
    assert "the last 6 h are forecast again and not shown: accounting was last read 5 h ago" in ran.err


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("dumps", ""),
        ("until", ""),
        (
            "stale",
            "jobs that wait and run now are not counted: accounting was last read more than one step ago",
        ),
        (
            "another",
            "the jobs that wait and run now are not counted: this machine cannot read the queue of cluster alpha",
        ),
        ("silent", "jobs that wait and run now are not counted: slurmctld is down"),
    ],
)
@pytest.mark.usefixtures("jobs")
def test_without_the_queue_the_recent_past_is_forecast_too_with_the_reason(
    case: str, said: str, run: Run, site: Site, now_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: now_s + 60.0)
    queue = queue_of(monkeypatch, *long_jobs(now_s))
    if case != "dumps":
        mark_read(site, now_s - DAY_S if case == "stale" else now_s + 60)
    if case == "another":
        site.configure(accounting={"cluster": "beta"})
    queue.failing = "slurmctld is down" if case == "silent" else ""
    until = ("--until", "2100-01-01") if case == "until" else ()
    ran = run("forecast", *OPTIONS, *until)
    assert ran.code == 0, ran.err
    assert "forecast again and not shown" in ran.err
    assert "counted too" not in ran.err
    assert said in ran.err
    assert ("jobs that wait and run now are not counted" in ran.err) is bool(said)


def test_each_task_of_an_array_counts_and_jobs_of_others_do_not(now_s: int) -> None:
    jobs = [
        waiting(7, array_job_id=7, array_tasks="1-3", tasks=3, cpus=4, partitions=("gpu", "main"), submit_s=now_s - 9),
        running(8, account="other", submit_s=now_s - 9),
        running(9, state="COMPLETING", submit_s=now_s - 9),
    ]  # fmt: skip
    found = attempts_of(jobs, Selection(cluster="alpha", account="physics"), now_s)
    rows = found.select(["partition", "start_s", "req_cpus", "alloc_cpus", "end_s"]).to_pylist()
    one = {"partition": "gpu", "start_s": 0, "req_cpus": 4, "alloc_cpus": None, "end_s": now_s}
    assert rows == [one] * 3
    assert len(set(found["job_id"].to_pylist())) == 3
