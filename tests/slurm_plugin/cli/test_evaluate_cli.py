"""`rightsizer evaluate` with its strategies, and how well run times are predicted."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from accounting.records import Attempt
from accounting.store.database import open_store
from slurm_plugin.cli.output import Progress
from tests.builders import T0, attempt, past
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run, assert_one_line
from tests.stores import store_attempts

EVALUATING = "learning from the earlier jobs, judging on the later ones"


def reading(number: int) -> Attempt:
    """Return a job of a workflow that reads 20 MiB a second, and uses at most 110 of the 8000 MiB that it requests."""
    run_s = 60 + (number * 37) % 240
    plain = attempt(
        job_id=500 + number,
        display_id=str(500 + number),
        job_name="PIPE:STEP:READ",
        submit_s=T0 + 1000 * number,
        start_s=T0 + 1000 * number + 10,
        elapsed_s=run_s,
        mem_mib=100.0 + number % 11,
        cores=0.5 + number % 3 * 0.1,
    )
    use = msgspec.structs.replace(plain.use, read_mib=20.0 * run_s, written_mib=3.0, io_quality="exact")
    return msgspec.structs.replace(plain, use=use)


@pytest.fixture
def stored(site: Site) -> Site:
    """Return a site whose store has a workflow of ninety jobs, and others too few to learn run times from."""
    store_attempts(site.config.store.url, [*past(90), *map(reading, range(90))])
    return site


def test_run_times_are_evaluated_by_type_and_too_little_evidence_is_reported(run: Run, stored: Site) -> None:
    stored.configure(job_types=({"name": "plots", "job_name": ("plot*",)},))
    ran = run("evaluate", "--run-time", "--format", "json")
    assert ran.code == 0, ran.err
    assert "learned and judged 4 types of jobs in " in ran.err
    rows = {row["type"]: row for row in json.loads(ran.out)}
    assert list(rows) == ["read", "fit", "plots", "sim"]
    read = rows["read"]
    assert (read["jobs"], read["judged"]) == (90, 28)
    assert read["WMAPE"] < 0.05
    assert read["WMAPE"] <= read["forest WMAPE"]
    assert read["importance (* more than chance)"].startswith("read_mib +")
    assert "*" in read["importance (* more than chance)"].split(",")[0]
    assert rows["plots"]["note"] == "not enough evidence: 30 jobs, 50 are needed"
    assert rows["plots"]["WMAPE"] is None


def test_a_store_without_jobs_is_reported_in_one_line(run: Run, site: Site) -> None:
    open_store(site.config.store.url, create=True).dispose()
    assert_one_line(run("evaluate", "--run-time"), 1, "no attempt in the store is completed .* ingest")


@pytest.mark.usefixtures("stored")
def test_the_table_of_run_times_leaves_out_small_types_and_the_csv_does_not(run: Run) -> None:
    ran = run("evaluate", "--run-time")
    assert "read_mib" in ran.out
    assert "not enough evidence" not in ran.out
    assert "not shown: 3 types of fewer than 50 jobs, which JSON and CSV include" in ran.err
    rows = list(csv.DictReader(io.StringIO(run("evaluate", "--run-time", "--format", "csv").out)))
    assert [row["type"] for row in rows] == ["read", "fit", "plot", "sim"]


def test_strategies_are_shown_together_or_alone_and_their_settings_count(run: Run, stored: Site) -> None:
    both = run("evaluate", "--strategy", "all", "--format", "json")
    assert "adaptive-scaling: learned the run time of 1 types" in both.err
    assert re.search(r"adaptive-scaling: kept as asked: .*plot: \d+ jobs, 50 are needed", both.err)
    rows = {(row["resource"], row["method"]): row for row in json.loads(both.out)}
    methods = {method for _, method in rows}
    assert methods == {"user request", "max of history + 15 %", "rightsizer", "adaptive-scaling"}
    scaled = rows["memory", "adaptive-scaling"]
    assert 0 < scaled["resized"] < scaled["jobs"], "the workflow's jobs alone"
    assert scaled["failed"] == 0
    stored.configure(models={"scaling": {"alpha": 0.9}})
    alone = run("evaluate", "--strategy", "adaptive-scaling", "--format", "json")
    by_less = {(row["resource"], row["method"]): row for row in json.loads(alone.out)}
    assert ("memory", "rightsizer") not in by_less
    assert scaled["saved %"] > by_less["memory", "adaptive-scaling"]["saved %"] > 0


@pytest.mark.parametrize(
    "ignored",
    [
        ["--drift", "--strategy", "all"],
        ["--run-time", "--train-share", "0.5"],
        ["--drift", "--run-time"],
        ["--online", "--strategy", "all"],
    ],
)
@pytest.mark.usefixtures("site")
def test_options_that_would_be_ignored_are_a_usage_error(ignored: list[str], run: Run) -> None:
    ran = run("evaluate", *ignored)
    assert (ran.code, ran.out) == (2, "")
    assert re.search("cannot be combined|do not go together", ran.err)


@pytest.mark.usefixtures("site")
def test_a_strategy_that_does_not_exist_is_refused(run: Run) -> None:
    assert run("evaluate", "--strategy", "guess").code == 2


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("command", "steps"),
    [
        (
            ["train"],
            ["reading the store", "judging a rehearsal on the latest jobs", "learning from 180 attempts"],
        ),
        (["evaluate", "--strategy", "all"], ["reading the store", EVALUATING]),
        (["evaluate", "--drift"], ["reading the store", "learning from 180 attempts"]),
    ],
    ids=" ".join,
)
def test_a_terminal_shows_what_takes_minutes_at_a_large_site(
    command: list[str], steps: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, list[tuple[float, int | None]]] = {}
    open_bars: list[str] = []

    @contextmanager
    def bar(label: str) -> Iterator[Progress]:
        assert not open_bars, "two bars at a time draw over each other"
        shares = drawn.setdefault(label, [])
        open_bars.append(label)
        yield lambda done, rows=None: shares.append((done, rows))
        open_bars.remove(label)

    for module in ("train", "evaluate", "drift", "job_types"):
        monkeypatch.setattr(f"slurm_plugin.cli.models.{module}.progress_bar", bar)
    assert run(*command).code == 0
    assert list(drawn) == steps
    assert bool(drawn[steps[1]]) == ("--drift" not in command)
