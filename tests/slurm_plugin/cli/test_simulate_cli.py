"""`rightsizer simulate` as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.models.simulation.test_scenario import DEVICES, SCENARIO
from tests.slurm_plugin.conftest import Run, assert_one_line


def test_simulate_prints_a_row_for_each_policy_and_draws(tmp_path: Path, run: Run) -> None:
    pytest.importorskip("matplotlib")
    file, picture = tmp_path / "s.toml", tmp_path / "s.png"
    file.write_text(SCENARIO)
    chosen = ("--policy", "fifo", "--policy", "conservative", "--plot", str(picture))
    ran = run("simulate", str(file), *chosen, "--format", "json")
    assert ran.code == 0, ran.err
    rows = json.loads(ran.out)
    assert [row["policy"] for row in rows] == ["fifo", "conservative"]
    assert all(row["finished"] == row["jobs"] for row in rows)
    assert rows[1]["mean wait (s)"] < rows[0]["mean wait (s)"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_simulate_says_how_many_jobs_are_in_time_and_how_much_is_lent(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "s.toml"
    file.write_text("checkpoint_s = 60\n" + DEVICES)
    chosen = ("--policy", "edf-fit", "--policy", "deadlines")
    edf, ours = json.loads(run("simulate", str(file), *chosen, "--format", "json").out)
    assert edf["jobs"] == ours["jobs"] == ours["finished"]
    assert 0 < ours["lent %"] <= 100
    assert ours["in time %"] > edf["in time %"] > 0
    file.write_text(SCENARIO)
    (row,) = json.loads(run("simulate", str(file), "--policy", "deadlines", "--format", "json").out)
    assert (row["in time %"], row["interrupted"], row["lent %"]) == (None, None, None)
    table = run("simulate", str(file), "--policy", "deadlines").out
    assert "late" in table
    assert not [word for word in ("lent", "interrup", "in time") if word in table]


def test_simulate_explains_which_device_the_deadline_policy_chose(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "s.toml"
    file.write_text(DEVICES)
    asked = ("simulate", str(file), "--policy", "deadlines", "--policy", "edf-fit", "--explain")
    (row,) = json.loads(run(*asked, "3", "--format", "json").out)
    assert row["policy"] == "deadlines"
    assert row["why"].startswith("job 3 starts on ")
    placed = run(*asked, "3", "--placement", "fgd")
    assert "deadlines: job 3 starts on " in placed.err
    assert_one_line(run(*asked, "999999"), 1, "there is no job 999999")


def test_simulate_explains_a_start_on_several_devices(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "s.toml"
    nodes = "".join(f"[[nodes]]\ncpus = 4\nmem_mib = 1\nspeed = {speed}\n" for speed in (1, 2))
    file.write_text(f'placement = "spread"\n{nodes}[load]\ntrace = "t.csv"\n')
    (tmp_path / "t.csv").write_text("submit_s,run_s,cpus\n0,100,4\n0,100,6\n")
    asked = ("simulate", str(file), "--policy", "deadlines", "--format", "json", "--explain")
    (row,) = json.loads(run(*asked, "2").out)
    assert row["why"] == "job 2 starts wherever there is room: it fits on no device by itself"


def test_less_memory_for_all_jobs_shows_as_failures(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "s.toml"
    file.write_text("granted_share = 0.5\n" + SCENARIO)
    (row,) = json.loads(run("simulate", str(file), "--policy", "easy", "--format", "json").out)
    assert row["failures"] == row["jobs"] == row["finished"]


def test_jobs_that_outrun_their_limit_are_counted(tmp_path: Path, run: Run) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("submit_s,run_s,cpus,limit_s\n0,100,4,90\n0,100,4,100\n")
    ran = run(
        "simulate", "--nodes", "1x4:1000", "--trace", str(trace), "--policy", "fifo", "--format", "json"
    )
    (row,) = json.loads(ran.out)
    assert (row["jobs"], row["finished"], row["timeouts"]) == (2, 1, 1)


def test_nodes_and_a_trace_need_no_scenario_and_replace_its_own(tmp_path: Path, run: Run) -> None:
    trace, file = tmp_path / "t.csv", tmp_path / "s.toml"
    trace.write_text("submit_s,run_s,cpus\n0,100,4\n0,100,4\n")
    file.write_text(SCENARIO)
    for scenario in ((), (str(file),)):
        argv = ("simulate", *scenario, "--nodes", "1x4:1000", "--trace", str(trace), "--policy", "fifo")
        ran = run(*argv, "--format", "json")
        assert ran.code == 0, ran.err
        (row,) = json.loads(ran.out)
        assert (row["jobs"], row["finished"], row["mean wait (s)"]) == (2, 2, 50.0)
    # A scenario needs no load of its own next to a trace, and none of its own nodes next to --nodes.
    for kept, given in ((SCENARIO.split("[load]")[0], ()), ("", ("--nodes", "1x4:1000"))):
        file.write_text(kept)
        assert run("simulate", str(file), "--trace", str(trace), *given, "--policy", "fifo").code == 0
    lacking = run("simulate", str(file), "--nodes", "1x4:1000")
    assert "[load] needs either `trace` or [[load.kinds]]" in lacking.err
    alone = run("simulate", "--trace", str(trace))
    assert alone.code == 2
    assert "both --nodes and --trace" in alone.err


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("nonsense = 1\n" + SCENARIO, 2, "nonsense"),
        ("placment = 'whole'\n" + SCENARIO, 2, "unknown field `placment`; did you mean `placement`"),
        (SCENARIO.replace('"easy"', '"easier"'), 2, "there is no policy easier"),
    ],
)
def test_an_error_is_reported_in_one_line(
    tmp_path: Path, run: Run, text: str, code: int, reason: str
) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    assert_one_line(run("simulate", str(file)), code, reason)


def test_a_usage_error_is_reported_before_anything_is_read(tmp_path: Path, run: Run) -> None:
    missing = str(tmp_path / "none.toml")
    assert_one_line(
        run("simulate", missing, "--policy", "nope"), 2, "there is no policy nope; choose one of fifo"
    )
    drawn = run("simulate", missing, "--plot", "x.nonsense")
    assert (drawn.code, "give a file whose name ends in .png, .svg, .pdf" in drawn.err) == (2, True)
    assert_one_line(run("simulate", missing), 2, "does not exist")
    seed = run("simulate", missing, "--seed", "-1")
    assert (seed.code, "-1 is not in the range x>=0" in seed.err) == (2, True)


def test_the_scenario_of_the_docs_runs(tmp_path: Path, run: Run) -> None:
    page = Path(__file__).parents[3] / "docs" / "simulation.md"
    top, _ = page.read_text().split("\nInstead of kinds", 1)
    example = [line[4:] for line in top.splitlines() if line.startswith("    ") or not line]
    file = tmp_path / "s.toml"
    file.write_text("\n".join(example))
    rows = json.loads(run("simulate", str(file), "--format", "json").out)
    assert [row["policy"] for row in rows] == ["fifo", "easy", "easy++", "drf"]
    assert all(row["finished"] == row["jobs"] > 1000 for row in rows)


def test_simulate_explains_a_placement_by_what_other_jobs_would_lose(tmp_path: Path, run: Run) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text(
        "submit_s,run_s,cpus,mem_mib,gpus\n0,100,8,100,0.5\n0,100,8,100,1\n0,100,8,100,2\n5,100,8,100,0.25\n"
    )
    nodes = ("--nodes", "4x32:1000:2", "--nodes", "1x16:1000:2", "--trace", str(trace), "--policy", "fifo")
    ran = run("simulate", *nodes, "--placement", "fgd", "--explain", "4", "--format", "json")
    assert ran.code == 0, ran.err
    first, *others = json.loads(ran.out)
    assert others
    assert first["costs (GPUs)"] == min(row["costs (GPUs)"] for row in (first, *others))
    assert first["taken"] == 0.25
    assert f"started on node {first['node']}, " in ran.err
    assert f"the least of {1 + len(others)} nodes" in ran.err


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        (
            ("--placement", "fgd", "--explain", "2"),
            1,
            "there is no job 2; give a number from 1 to 1, in the order of arrival",
        ),
        (("--explain", "1"), 2, "add --placement fgd, or --policy deadlines"),
        (("--placement", "fdg"), 2, "there is no placement fdg; choose one of whole, spread, best-fit, fgd"),
        (("--placement", "fgd", "--explain", "0"), 2, "0 is not in the range x>=1"),
    ],
)
def test_a_job_that_cannot_be_explained_is_refused_with_a_reason(
    tmp_path: Path, run: Run, more: tuple[str, ...], code: int, told: str
) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("submit_s,run_s,cpus\n0,100,4\n")
    ran = run("simulate", "--nodes", "1x4:1000", "--trace", str(trace), "--policy", "fifo", *more)
    assert ran.code == code
    assert told in ran.err
