"""`rightsizer report`, `export` and `config pseudonym-key`, and progress bars on a real terminal."""

import csv
import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from accounting.store.database import open_store
from models.training import training
from models.versions import registry
from models.versions.artefact import HISTORY
from slurm_plugin.cli.output import rate_of
from tests.accounting.report.report_store import fill, measured
from tests.builders import DAY_S, T0, FakeSacct, job_line, step_line
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run, assert_one_line


@pytest.fixture
def stocked(site: Site) -> Site:
    """Return a site with 60 attempts: ann wastes memory, bob's are too short to tell."""
    engine = open_store(site.config.store.url, create=True)
    ann = [measured(n, user="ann", job_name=f"fit_{n:03d}") for n in range(1, 41)]
    bob = [
        measured(n, user="bob", job_name="tiny", wall_s=5, memory_quality="short", alloc_cpus=4)
        for n in range(41, 61)
    ]
    fill(engine, [*ann, *bob])
    engine.dispose()
    return site


REPORTS = [
    ["families"],
    ["families", "--energy"],
    ["users"],
    ["users", "--by", "account"],
    ["waste"],
    ["waste", "--by", "user"],
    ["quality"],
    ["quality", "--advice"],
]


@pytest.mark.usefixtures("stocked")
@pytest.mark.parametrize("arguments", REPORTS, ids=" ".join)
def test_every_report_is_available_in_every_format(arguments: list[str], run: Run) -> None:
    as_json = run("report", *arguments, "--format", "json")
    assert as_json.code == 0, as_json.err
    rows = json.loads(as_json.out)
    assert rows
    as_csv = list(csv.DictReader(io.StringIO(run("report", *arguments, "--format", "csv").out)))
    assert len(as_csv) == len(rows)
    assert list(as_csv[0]) == list(rows[0])
    table = run("report", *arguments)
    assert table.code == 0
    assert "\x1b" not in table.out
    named = rows[0].get("family") or rows[0].get("user") or rows[0].get("account") or rows[0]["cluster"]
    assert named in table.out


@pytest.mark.parametrize("arguments", REPORTS, ids=" ".join)
def test_an_empty_store_has_nothing_to_show(arguments: list[str], run: Run, site: Site) -> None:
    open_store(site.config.store.url, create=True).dispose()
    shown = run("report", *arguments)
    assert (shown.code, shown.out) == (0, "")
    assert "select differently, or run `rightsizer ingest`" in shown.err
    nothing = run("report", *arguments, "--format", "csv").out
    assert json.loads(run("report", *arguments, "--format", "json").out) == []
    engine = open_store(site.config.store.url)
    fill(engine, [measured(n, memory_quality="short") for n in range(1, 21)])
    engine.dispose()
    assert nothing == run("report", *arguments, "--format", "csv").out.splitlines(keepends=True)[0]


@pytest.mark.parametrize("arguments", [["recoveries"], ["advisor"], ["advisor", "--effect"]], ids=" ".join)
def test_an_empty_csv_still_has_its_heading(arguments: list[str], run: Run, site: Site) -> None:
    open_store(site.config.store.url, create=True).dispose()
    shown = run("report", *arguments, "--format", "csv")
    assert shown.out.count("\n") == 1
    assert "," in shown.out
    assert run("report", *arguments).err.count("nothing to show") <= 1


def test_since_after_until_is_a_usage_error(run: Run, site: Site, tmp_path: Path) -> None:
    open_store(site.config.store.url, create=True).dispose()
    window = ("--since", "2026-02-01", "--until", "2026-01-01")
    for command in (("report", "waste"), ("forecast",), ("export", "--to", str(tmp_path / "x.csv"))):
        turned = run(*command, *window)
        assert (turned.code, turned.out) == (2, "")
        assert "give a --since before --until" in turned.err


@pytest.mark.parametrize("option", ["--since", "--until"])
def test_a_time_before_the_first_representable_one_is_a_usage_error(
    option: str, run: Run, site: Site, tmp_path: Path
) -> None:
    open_store(site.config.store.url, create=True).dispose()
    reports = [("report", name) for name in ("users", "families", "waste", "cuts", "quality", "advisor")]
    commands = [*reports, ("forecast",), ("export", "--to", str(tmp_path / "x.csv"))]
    if option == "--since":
        commands += [("report", "recoveries"), ("ingest",)]
    for command in commands:
        ran = run(*command, option, "0001-01-01")
        assert (ran.code, ran.out) == (2, ""), command
        assert (
            f"{option} 0001-01-01 is not a time at which jobs can run; give one such as 2026-01-31" in ran.err
        )


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("zone", "far"), [("America/Los_Angeles", "9999-12-31T23:59:59"), ("Asia/Tokyo", "0001-01-01")]
)
def test_a_time_that_this_machine_cannot_represent_is_a_usage_error(
    zone: str, far: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        ran = run("report", "users", "--since", far)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (ran.code, ran.out) == (2, "")
    assert f"--since {far[:10]} is not a time at which jobs can run" in ran.err


def rows_of(run: Run, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("report", *arguments, "--format", "json").out)
    return found


@pytest.mark.usefixtures("stocked")
def test_options_select_attempts(run: Run) -> None:
    assert [row["user"] for row in rows_of(run, "families", "--top", "1")] == ["ann"]
    [only] = rows_of(run, "families", "--user", "bob")
    assert (only["family"], only["jobs"]) == ("tiny", 20)
    for nobody in (["--cluster", "x"], ["--account", "x"], ["--partition", "x"], ["--until", "2001-01-01"]):
        assert rows_of(run, "families", *nobody) == []
    day = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(T0 + 40 * 10_000 + 3600))
    assert sum(row["jobs"] for row in rows_of(run, "users", "--since", day)) == 21
    assert run("report", "users", "--top", "0").code == 2


def test_a_cluster_is_found_in_any_case_of_its_name(run: Run, site: Site) -> None:
    engine = open_store(site.config.store.url, create=True)
    named = [measured(n, cluster=name, user=name) for n, name in enumerate(("alpha", "Theta.csv"), 1)]
    fill(engine, named)

    def users(cluster: str) -> list[str]:
        return [row["user"] for row in rows_of(run, "users", "--cluster", cluster)]

    assert users("Alpha") == users("alpha") == ["alpha"]
    assert users("Theta.csv") == ["Theta.csv"]
    # If two names differ only in case, each finds its own cluster.
    fill(engine, [measured(3, cluster="Alpha", user="Alpha")])
    engine.dispose()
    assert (users("Alpha"), users("alpha"), users("ALPHA")) == (["Alpha"], ["alpha"], ["alpha"])


@pytest.mark.usefixtures("stocked")
def test_waste_says_what_it_left_out_and_why(run: Run) -> None:
    shown = run("report", "waste")
    assert "memory: 40 attempts measured; left out: 20 too short to be sampled" in shown.err
    assert "cores" not in shown.err
    [ann, bob] = rows_of(run, "waste")
    assert (ann["user"], ann["right_cores"], ann["right_mem_gib"]) == ("ann", 3, round(1184 / 1024, 3))
    assert (bob["user"], bob["memory_left_out"], bob["right_mem_gib"]) == ("bob", 20, None)


def test_the_margins_of_the_site_size_requests(run: Run, stocked: Site) -> None:
    stocked.configure(policy={"memory_margin": 1.0, "cores_margin": 1.0})
    [ann, _] = rows_of(run, "waste")
    assert (ann["right_cores"], ann["right_mem_gib"]) == (4, 2.0)
    stocked.configure(models={"min_evidence": 41})
    assert rows_of(run, "waste")[0]["right_cores"] is None


@pytest.mark.usefixtures("stocked")
def test_the_quality_report_says_what_to_change(run: Run) -> None:
    shown = run("report", "quality")
    assert "JobAcctGatherFrequency=task=10" in shown.out
    assert re.search(r"memory +alpha +24.11 +jobacct_gather/cgroup +60 +0 +66.67 +33.33", shown.out)
    [line] = [row for row in rows_of(run, "quality", "--advice") if "Frequency" in row["line"]]
    assert (line["file"], line["cluster"]) == ("slurm.conf", "alpha")
    assert "33 % of the attempts ended before their memory was sampled" in line["reason"]


def test_ingest_can_report_on_what_it_read(run: Run, site: Site) -> None:
    first_s = int(time.time()) - 2 * DAY_S
    lines = [
        line
        for number in range(1, 6)
        for line in (
            job_line(number, first_s + 1000 * number),
            step_line(number, start_s=first_s + 1000 * number),
        )
    ]
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", lines).command})
    shown = run("ingest", "--report", "--format", "json")
    assert shown.code == 0, shown.err
    assert "attempts: 5 new, 0 changed, 0 as they were" in shown.err
    rows = {row["dimension"]: row for row in json.loads(shown.out)}
    assert rows["memory"]["attempts"] == 5
    assert shown.out == run("report", "quality", "--format", "json").out


def test_an_ingest_without_jobs_does_not_advise_to_ingest(run: Run, site: Site) -> None:
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", []).command})
    shown = run("ingest", "--report")
    assert shown.code == 0, shown.err
    assert "attempts: 0 new" in shown.err
    assert "these options" not in shown.err


def test_a_selection_is_exported(run: Run, stocked: Site) -> None:
    file = stocked.folder / "some.parquet"
    assert run("export", "--to", str(file), "--user", "bob").code == 0
    assert pyarrow.parquet.read_table(file)["user"].unique().to_pylist() == ["bob"]
    refused = run("export", "--to", str(file), "--what", "steps", "--user", "bob", "--force")
    assert (refused.code, "--user: usable only with --what attempts" in refused.err) == (2, True)


def test_the_export_command_writes_parquet_or_csv_and_does_not_overwrite(run: Run, stocked: Site) -> None:
    file = stocked.folder / "out.parquet"
    ran = run("export", "--to", str(file))
    assert (ran.code, ran.out) == (0, "")
    assert f"60 rows of attempts in {file}" in ran.err
    assert pyarrow.parquet.read_table(file).num_rows == 60
    assert_one_line(run("export", "--to", str(file)), 1, "exists already")
    assert run("export", "--to", str(file), "--what", "steps", "--force").code == 0
    assert pyarrow.parquet.read_schema(file).names[4] == "step_id"
    assert_one_line(run("export", "--to", "x.txt"), 1, r"the file's name must end in \.parquet or \.csv")
    assert run("export", "--to", "x.csv", "--what", "everything").code == 2


def test_an_export_may_use_pseudonyms(run: Run, stocked: Site) -> None:
    key, file = stocked.folder / "key", stocked.folder / "out.csv"
    assert_one_line(
        run("export", "--to", str(file), "--pseudonymise", str(key)), 2, "cannot read the pseudonym key"
    )
    made = run("config", "pseudonym-key", str(key))
    assert (made.code, made.out) == (0, "")
    assert key.stat().st_mode & 0o777 == 0o600
    assert_one_line(run("config", "pseudonym-key", str(key)), 2, "exists already")
    assert run("export", "--to", str(file), "--pseudonymise", str(key)).code == 0
    rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
    assert len({row["user"] for row in rows}) == 2
    assert not {row["user"] for row in rows} & {"ann", "bob"}
    assert {row["job_name"][-4:] for row in rows} >= {"_001", "_040"}
    key.chmod(0o644)
    assert_one_line(
        run("export", "--to", str(file), "--force", "--pseudonymise", str(key)), 2, "other users may read"
    )


_BAR = """
import time
from slurm_plugin.cli.output import progress_bar
with progress_bar("reading") as progress:
    for step in range(1, 21):
        time.sleep(0.05)
        progress(step / 40, step * 1000)
with progress_bar("old") as progress:
    progress(0.5)
    time.sleep(0.2)
"""


def on_a_terminal(**environment: str) -> str:
    """Return what the bar draws on a pseudo-terminal."""
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-c", _BAR],
        stderr=theirs,
        stdout=subprocess.PIPE,
        env={**plain, "TERM": "xterm-256color", "COLUMNS": "120", **environment},
        cwd=Path(__file__).parents[3],
    )
    os.close(theirs)
    drawn = b""
    try:
        while select.select([ours], [], [], 20)[0]:
            drawn += os.read(ours, 65536)
    except OSError:
        pass  # the other end was closed
    finally:
        os.close(ours)
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert out == b""
    return drawn.decode()


def test_a_bar_on_a_terminal_shows_its_rate_and_the_remaining_time() -> None:
    drawn = on_a_terminal()
    assert re.search(r"\d[\d,]* rows/s", drawn)
    assert re.search(r"\d:\d\d:\d\d", drawn)
    assert re.search(r"\d+%", drawn)
    assert re.search(r"\x1b\[[0-9;]*3[0-9]", drawn)


def test_a_bar_honours_no_color() -> None:
    drawn = on_a_terminal(NO_COLOR="1")
    assert "rows/s" in drawn
    assert not re.search(r"\x1b\[[0-9;]*(?:3|9)[0-9][;m]", drawn)


def test_rates_are_shown_in_rows_per_second() -> None:
    assert rate_of(150_000, 1.5) == "100,000 rows/s"
    assert rate_of(None, 1.0) == rate_of(0, 1.0) == rate_of(5, None) == rate_of(5, 0.0) == ""


def test_the_model_in_use_says_which_families_fewer_cpus_slow(site: Site, run: Run) -> None:
    """With two CPUs they keep 1.3 cores busy, and with eight 1.7: two are too few."""
    cut = [measured(n, cores=1.3, cores_per_task=1.3, alloc_cpus=2) for n in range(4, 12)]
    past = [*[measured(n, cores=1.7, cores_per_task=1.7) for n in range(1, 4)], *cut]
    engine = open_store(site.config.store.url, create=True)
    fill(engine, past)
    engine.dispose()

    def right_cores() -> int:
        [row] = json.loads(run("report", "waste", "--format", "json").out)
        return int(row["right_cores"])

    assert right_cores() == 2
    version = training.save(training.train(past, 100), site.models, past[-1].row.end_s)
    registry.promote(site.models, version)
    assert right_cores() == 4
    (site.models / version / HISTORY).write_text("{}", encoding="utf-8")
    assert right_cores() == 2
    assert "right sizes are computed from use alone: the model file" in run("report", "waste").err


def test_the_margins_of_right_sizes_are_the_documented_ones(run: Run) -> None:
    from slurm_plugin.cli.report.advised import ADVISED_JOBS, ADVISED_MARGIN

    said = " ".join(run("report", "waste", "--help").out.split())
    guide = " ".join((Path(__file__).parents[3] / "docs" / "analyst.md").read_text(encoding="utf-8").split())
    assert (ADVISED_JOBS, ADVISED_MARGIN) == (5, 0.15)
    assert "the most that a family has used, plus 15 %, if at least five attempts of it were measured" in said
    assert "a margin of 15 %, or the site's of `[policy]`" in guide
    assert "fewer than five measured attempts, or `models.min_evidence` where that is more" in guide
