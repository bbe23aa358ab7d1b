"""`rightsizer evaluate --online` reads a table of past jobs, and writes what each would have been granted."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_plugin.cli.output import Progress
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run, assert_one_line

HEADER = (
    "job_id", "user", "job_name", "submit_time", "start", "end", "elapsed_s", "req_mem_mib", "peak_mem_mib", "req_cpus",
    "used_cores",
)  # fmt: skip
JOBS = 40


def line(number: int, peak_mib: float = 400.0) -> list[object]:
    """Return a job every 100 seconds that runs for 50, requests 8000 MiB and 8 CPUs, and uses 400 MiB and one core."""
    came = 1000 + 100 * number
    return [f"j{number}", "ann", "fit", came, came + 5, came + 55, 50, 8000, peak_mib, 8, 1.0]


def table(file: Path, lines: Iterable[list[object]]) -> Path:
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([HEADER, *lines])
    return file


def read(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return table(tmp_path / "jobs.csv", [line(number) for number in range(JOBS)])


@pytest.mark.usefixtures("site")
def test_every_job_has_a_line_with_its_grant_and_the_reason(run: Run, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "granted.csv"
    ran = run("evaluate", "--online", "--from-file", str(jobs), "--predictions", str(out), "--format", "json")
    assert ran.code == 0, ran.err
    rows = read(out)
    assert list(rows[0]) == ["job_id", "alloc_mem_mib", "alloc_cpus", "reason"]
    assert [row["job_id"] for row in rows] == [f"j{number}" for number in range(JOBS)]
    assert (rows[0]["alloc_mem_mib"], rows[0]["alloc_cpus"]) == ("", "")
    assert "not enough evidence" in rows[0]["reason"]
    granted = [int(row["alloc_mem_mib"] or 8000) for row in rows]
    assert granted == sorted(granted, reverse=True), "no job surprises, so that each is given less"
    assert 400 < granted[-1] < 600
    assert "history" in rows[-1]["reason"]
    assert rows[-1]["alloc_cpus"] == "1"
    [whole] = json.loads(ran.out)
    assert (whole["jobs"], whole["memory short"], whole["CPUs short"]) == (JOBS, 0, 0)
    assert whole["memory saved %"] == pytest.approx(100 * (1 - sum(granted) / JOBS / 8000), abs=0.1)


@pytest.mark.usefixtures("site")
def test_a_job_that_needs_more_than_it_got_is_counted(run: Run, tmp_path: Path) -> None:
    file = table(tmp_path / "jobs.csv", [line(n, 400.0 if n < JOBS - 1 else 3000.0) for n in range(JOBS)])
    ran = run(
        "evaluate",
        "--online",
        "--from-file",
        str(file),
        "--predictions",
        str(tmp_path / "out"),
        "--format",
        "csv",
    )
    [row] = csv.DictReader(ran.out.splitlines())
    assert (row["jobs"], row["memory short"], row["memory short %"]) == (str(JOBS), "1", "2.5")


@pytest.mark.usefixtures("site")
def test_warm_jobs_are_learned_from_but_not_judged(run: Run, jobs: Path, tmp_path: Path) -> None:
    ids, out = tmp_path / "warm", tmp_path / "out.csv"
    ids.write_text("\n".join(f"j{number}" for number in range(20, JOBS)), encoding="utf-8")
    options = ["--from-file", str(jobs), "--predictions", str(out), "--warm-ids", str(ids)]
    ran = run("evaluate", "--online", *options, "--decide-at", "start", "--format", "json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)[0]["jobs"] == 20
    rows = read(out)
    assert len(rows) == 20
    assert 400 < int(rows[0]["alloc_mem_mib"]) < 800


@pytest.mark.usefixtures("site")
def test_a_bar_shows_how_many_jobs_are_sized(
    run: Run, jobs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[float, int | None]] = []

    @contextmanager
    def bar(_label: str) -> Iterator[Progress]:
        yield lambda done, rows=None: drawn.append((done, rows))

    monkeypatch.setattr("slurm_plugin.cli.models.evaluate.progress_bar", bar)
    ids = tmp_path / "warm"
    ids.write_text("\n".join(f"j{number}" for number in range(20)), encoding="utf-8")
    options = ["--from-file", str(jobs), "--predictions", str(tmp_path / "out"), "--warm-ids", str(ids)]
    assert run("evaluate", "--online", *options).code == 0
    assert drawn == [(number / 20, number) for number in range(1, 21)]


def test_the_policy_of_the_site_counts(run: Run, site: Site, jobs: Path, tmp_path: Path) -> None:
    site.configure(policy={"memory_floor_mib": 5000})
    out = tmp_path / "out.csv"
    run("evaluate", "--online", "--from-file", str(jobs), "--predictions", str(out))
    assert min(int(row["alloc_mem_mib"] or 8000) for row in read(out)) == 5024


def test_evidence_below_the_minimum_of_the_site_is_not_enough(
    run: Run, site: Site, jobs: Path, tmp_path: Path
) -> None:
    site.configure(models={"min_evidence": 15})
    out = tmp_path / "out.csv"
    run("evaluate", "--online", "--from-file", str(jobs), "--predictions", str(out))
    assert [bool(row["alloc_cpus"]) for row in read(out)] == [False] * 15 + [True] * (JOBS - 15)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--online"], "--online needs --from-file and --predictions"),
        (["--online", "--from-file", "x"], "--online needs --from-file and --predictions"),
        (["--online", "--predictions", "x"], "--online needs --from-file and --predictions"),
        (["--from-file", "x"], "need --online"),
        (["--predictions", "x"], "need --online"),
        (["--warm-ids", "x"], "need --online"),
        (["--decide-at", "start"], "need --online"),
        (["--online", "--from-file", "x", "--predictions", "y", "--decide-at", "end"], "'submit', 'start'"),
    ],
)
def test_options_that_exclude_each_other_are_usage_errors(run: Run, options: list[str], why: str) -> None:
    ran = run("evaluate", *options)
    assert ran.code == 2
    assert why in ran.err
    assert not ran.out


@pytest.mark.usefixtures("site")
def test_an_error_in_a_file_is_reported_in_one_line(run: Run, jobs: Path, tmp_path: Path) -> None:
    def ran(file: Path, out: Path, *more: str) -> tuple[str, ...]:
        return ("evaluate", "--online", "--from-file", str(file), "--predictions", str(out), *more)

    out = tmp_path / "out.csv"
    odd = table(tmp_path / "odd.csv", [line(1), line(1)])
    assert_one_line(run(*ran(tmp_path / "none", out)), 1, "the file .*none does not exist")
    assert_one_line(run(*ran(odd, out)), 1, "line 3: job_id occurs twice; correct or remove that row")
    assert_one_line(run(*ran(jobs, tmp_path)), 1, "cannot write .*: it is a folder")
    assert_one_line(run(*ran(jobs, tmp_path / "none" / "out")), 1, "the folder .* does not exist")
    assert_one_line(run(*ran(jobs, out, "--warm-ids", str(jobs))), 1, "not in the table")
    assert not out.exists()


@pytest.mark.usefixtures("site")
def test_an_input_file_is_not_overwritten(run: Run, jobs: Path, tmp_path: Path) -> None:
    ids, other_name = tmp_path / "ids", tmp_path / "other.csv"
    ids.write_text("j1\n", encoding="utf-8")
    other_name.symlink_to(jobs)
    before = jobs.read_bytes()
    for out in (jobs, other_name, ids):
        options = ["--from-file", str(jobs), "--predictions", str(out), "--warm-ids", str(ids)]
        assert_one_line(run("evaluate", "--online", *options), 1, "cannot write .*: it is the input file")
    assert (jobs.read_bytes(), ids.read_text(encoding="utf-8")) == (before, "j1\n")
