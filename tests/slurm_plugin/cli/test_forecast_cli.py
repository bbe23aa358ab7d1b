"""`rightsizer forecast`, from a store and from a CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
from pathlib import Path

import msgspec
import pytest

from accounting.records import Attempt
from accounting.store.database import open_store
from tests.builders import attempt
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run, assert_one_line
from tests.stores import store_attempts

HOUR_S = 3600
T0 = 1_699_920_000  # a midnight, UTC
SHORT = ("--step", "6h", "--horizon", "12h")


def day_and_night(days: int) -> list[Attempt]:
    """Return a job of main for each hour; from six till noon three more, of gpu."""
    return [
        attempt(
            job_id=10 * hour + number,
            submit_s=T0 + HOUR_S * hour,
            start_s=T0 + HOUR_S * hour,
            elapsed_s=HOUR_S,
            partition="gpu" if number else "main",
            alloc_gpus=2 if number else None,
            token=False,
        )
        for hour in range(24 * days)
        for number in range(4 if 6 <= hour % 24 < 12 else 1)
    ]


def store(site: Site, attempts: list[Attempt]) -> None:
    store_attempts(site.config.store.url, attempts)


def test_the_store_is_forecast_by_partition(run: Run, site: Site) -> None:
    store(site, day_and_night(14))
    ran = run("forecast", *SHORT, "--by", "partition", "--what", "jobs", "--format", "json")
    assert ran.code == 0, ran.err
    rows = {(row["series"], row["time"]): row for row in json.loads(ran.out)}
    # The last step of six hours is left out, because an hour of it need not have ended, and is not shown.
    assert "the last 6 h of the store are forecast again and not shown" in ran.err
    assert list(rows) == [
        (name, time) for name in ("main", "gpu") for time in ("2023-11-28T00:00Z", "2023-11-28T06:00Z")
    ]
    assert [row["jobs"] for row in rows.values()] == [1, 1, 0, 3]
    for row in rows.values():
        assert row["low"] <= row["jobs"] <= row["high"]
        assert (row["model"], row["weight"]) == ("seasonal naive", 1)
    assert "main: seasonal naive at all 2 steps" in ran.err


def test_the_largest_groups_are_those_of_the_history_that_is_used(run: Run, site: Site) -> None:
    """A group that was the largest before, and is gone, takes no row from the largest one now."""
    jobs = day_and_night(14)
    gone = [
        attempt(
            job_id=10**6 + hour, submit_s=start_s, start_s=start_s, elapsed_s=HOUR_S, partition="gone",
            alloc_cpus=5000, token=False,
        )
        for hour in range(24)
        for start_s in [T0 + HOUR_S * hour]
    ]  # fmt: skip
    store(site, [*jobs, *gone])
    options = (*SHORT, "--by", "partition", "--what", "cores", "--top", "1", "--format", "json")
    assert {row["series"] for row in json.loads(run("forecast", *options).out)} == {"gone", "(others)"}
    recent = run("forecast", *options, "--history", "9d")
    assert {row["series"] for row in json.loads(recent.out)} == {"main", "(others)"}


@pytest.mark.parametrize(("what", "is_"), [("cores", 8), ("gpus", 0), ("memory", 8000)])
def test_the_column_name_includes_the_unit(what: str, is_: float, run: Run, site: Site) -> None:
    store(site, day_and_night(14))
    ran = run("forecast", *SHORT, "--what", what, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    column = {"memory": "memory_mib"}.get(what, what)
    assert list(rows[0]) == ["series", "time", column, "low", "high", "model", "weight"]
    assert float(rows[0][column]) == is_


def test_too_little_history_says_how_much_there_is_and_how_much_is_needed(run: Run, site: Site) -> None:
    store(site, day_and_night(3))
    ran = run("forecast", "--format", "json")
    assert (ran.code, ran.out) == (1, "")
    assert "steps of 1 h are known (2.9 days)" in ran.err
    assert "needs 96 (4 days); read more of the past" in ran.err


def test_an_empty_and_a_missing_store_say_what_to_do(run: Run, site: Site) -> None:
    assert_one_line(run("forecast"), 1, "the store .* does not exist; run `rightsizer ingest` first")
    open_store(site.config.store.url, create=True).dispose()
    assert_one_line(run("forecast"), 1, "no job that has ended; run `rightsizer ingest`")


def test_jobs_of_one_hour_are_too_little(run: Run, site: Site) -> None:
    store(
        site, [attempt(job_id=job, submit_s=T0 + job, start_s=T0 + job, token=False) for job in range(1, 21)]
    )
    assert_one_line(run("forecast"), 1, r"no whole step of 3600 s .* 20 attempts; read more of the past")


@pytest.mark.usefixtures("site")
def test_milliseconds_in_a_csv_are_refused_with_their_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "demand.csv"
    rows = (f"{1000 * (T0 + 5 * number)},{number % 7}" for number in range(20_000))
    file.write_text("time,gpus\n" + "\n".join(rows) + "\n")
    said = "demand.csv: line 2 of the CSV: .* is not a time in unix seconds; divide milliseconds by 1000"
    assert_one_line(run("forecast", "--from-csv", str(file)), 1, said)


def test_a_resource_that_no_job_has_is_reported(run: Run, site: Site) -> None:
    store(site, [attempt(job_id=job, token=False) for job in range(1, 6)])
    said = "none of the 5 attempts in the store had gpus or asked for any; choose another"
    assert_one_line(run("forecast", "--what", "gpus"), 1, said)


@pytest.fixture
def swing(tmp_path: Path) -> Path:
    """Return a CSV of twelve days that swing with the time of day."""
    file = tmp_path / "demand.csv"
    rows = (f"{T0 + HOUR_S * hour},{50 + 20 * math.sin(math.tau * hour / 24):.3f}" for hour in range(24 * 12))
    file.write_text("time,gpus\n" + "\n".join(rows) + "\n")
    return file


@pytest.mark.usefixtures("site")
def test_a_csv_is_forecast_and_drawn(run: Run, swing: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `plots`")
    drawn = tmp_path / "demand.png"
    ran = run("forecast", "--from-csv", str(swing), *SHORT, "--plot", str(drawn), "--format", "json")
    assert ran.code == 0, ran.err
    first = json.loads(ran.out)[0]
    mean = sum(50 + 20 * math.sin(math.tau * hour / 24) for hour in range(6)) / 6
    assert (first["series"], first["time"]) == ("gpus", "2023-11-26T00:00Z")
    assert first["value"] == pytest.approx(mean, abs=0.01)
    assert drawn.read_bytes().startswith(b"\x89PNG")
    assert "gpus: of 2 steps" in ran.err or "gpus: seasonal naive at all 2 steps" in ran.err
    failed = run("forecast", "--from-csv", str(swing), *SHORT, "--plot", str(tmp_path / "demand.nonsense"))
    assert (failed.code, failed.out) == (2, "")
    assert "give a file whose name ends in .png, .svg, .pdf" in failed.err
    nowhere = run("forecast", "--from-csv", str(swing), *SHORT, "--plot", str(tmp_path / "no" / "d.png"))
    assert nowhere.code == 2
    assert "does not exist, or you may not write there" in nowhere.err


@pytest.mark.usefixtures("site")
def test_gaps_in_a_csv_are_reported(run: Run, swing: Path) -> None:
    lines = swing.read_text().splitlines()
    swing.write_text("\n".join([*lines[:20], *lines[60:]]) + "\n")
    ran = run("forecast", "--from-csv", str(swing), *SHORT)
    assert ran.code == 0, ran.err
    assert re.search(
        r"left out: the first \d+ of \d+ steps, because a gap of more than 3 steps follows", ran.err
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--step", "7h"], "must divide a day"),
        (["--step", "6h", "--horizon", "13h"], "a whole number of --step"),
        (["--horizon", "soon"], "'soon' is not a span of time; write for example 30m, 24h or 7d"),
        (["--horizon", "0h"], "not a span of time"),
        (["--level", "1"], "0.5<=x<=0.99"),
    ],
)
@pytest.mark.usefixtures("site")
def test_a_usage_error_is_explained(arguments: list[str], said: str, run: Run) -> None:
    ran = run("forecast", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.usefixtures("site")
def test_an_unreadable_csv_is_reported_in_one_line(run: Run, tmp_path: Path) -> None:
    assert_one_line(
        run("forecast", "--from-csv", str(tmp_path / "none.csv")),
        1,
        "cannot read .*none.csv: No such file or directory; give a CSV",
    )
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    assert_one_line(
        run("forecast", "--from-csv", str(binary)),
        1,
        "cannot read .*binary.csv: it is not a text file; give a CSV",
    )
    endless = tmp_path / "endless.csv"
    endless.write_text(f"time,gpus\n0,{'1' * 200_000}\n")
    assert_one_line(run("forecast", "--from-csv", str(endless)), 1, "endless.csv: field larger than")


@pytest.mark.usefixtures("site")
def test_a_bad_value_in_a_csv_is_named_with_its_file_and_a_remedy(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("time,gpus\n0,1\n3600,x\n")
    assert_one_line(
        run("forecast", "--from-csv", str(bad)),
        1,
        r"bad.csv: line 3 of the CSV: 'x' is not a number; write for example",
    )


@pytest.mark.parametrize(
    "ignored", [["--by", "partition"], ["--what", "jobs"], ["--cluster", "a"], ["--top", "3"]]
)
@pytest.mark.usefixtures("site")
def test_an_option_that_a_csv_would_ignore_is_a_usage_error(
    ignored: list[str], run: Run, swing: Path
) -> None:
    ran = run("forecast", "--from-csv", str(swing), *ignored)
    assert (ran.code, ran.out) == (2, "")
    assert f"{ignored[0]}: cannot be combined with --from-csv" in ran.err


def test_the_forecast_from_an_old_store_is_said_to_be_for_that_time(run: Run, site: Site) -> None:
    store(site, day_and_night(14))
    said = r"the store ends [\d.]+ days ago, at 2023-11-28T00:00Z: this is what followed then, not what comes now"
    assert re.search(said, run("forecast", *SHORT).err)
    chosen = run("forecast", *SHORT, "--until", "2023-11-27", "--format", "json")
    assert chosen.code == 0, chosen.err
    assert "followed then" not in chosen.err
    assert {row["time"][:10] for row in json.loads(chosen.out)} <= {"2023-11-26", "2023-11-27"}


def test_a_selection_or_a_single_cluster_is_forecast(run: Run, site: Site) -> None:
    store(site, day_and_night(14))
    by_partition = (*SHORT, "--by", "partition", "--what", "jobs", "--format", "json")
    rows = json.loads(run("forecast", *by_partition, "--partition", "gpu").out)
    assert {row["series"] for row in rows} == {"gpu"}
    assert_one_line(
        run("forecast", "--partition", "none"), 1, "no attempt of this selection; select differently"
    )
    other = day_and_night(14)
    for number, one in enumerate(other):
        other[number] = msgspec.structs.replace(one, row=msgspec.structs.replace(one.row, cluster="beta"))
    store(site, [one for one in other if one.row.partition == "main"])
    assert_one_line(
        run("forecast", *by_partition), 1, "several clusters: alpha, beta; choose one with --cluster"
    )
    rows = json.loads(run("forecast", *by_partition, "--cluster", "beta").out)
    assert {(row["series"], row["jobs"]) for row in rows} == {("main", 1)}


@pytest.mark.usefixtures("site")
def test_a_model_without_its_library_is_reported(
    run: Run, swing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else found(name))
    monkeypatch.setitem(sys.modules, "torch", None)
    ran = run("forecast", "--from-csv", str(swing), *SHORT)
    assert ran.code == 0, ran.err
    assert "PCA+LSTM is not used: it needs PyTorch: run `" in ran.err
    assert "/bin/pip install -c constraints.txt '.[lstm]'` in the folder of rightsizer's source" in ran.err


@pytest.mark.usefixtures("site")
def test_a_table_shows_names_with_brackets_as_they_are(run: Run, swing: Path) -> None:
    swing.write_text(swing.read_text().replace("gpus", "node[lstm]"))
    ran = run("forecast", "--from-csv", str(swing), *SHORT)
    assert "node[lstm]" in ran.out
