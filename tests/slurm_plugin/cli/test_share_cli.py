"""`rightsizer share` as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slurm_plugin.conftest import Run, assert_one_line

PAIRS = """kind,beside,speed,seconds,mem_mib
resnet,resnet,0.55,36000,20000
resnet,lm,0.74,36000,20000
lm,resnet,0.68,36000,15000
lm,lm,0.53,,15000
big,big,0,,70000
"""
JOBS = """job,kind,gpu,waited_s,ran_s
11,resnet,node1:0,,7200
12,lm,node1:1,,300
,,node2:0,,
21,big,,400,
22,lm,,300,
23,resnet,,200,
24,lm,,100,
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    pairs, jobs = tmp_path / "pairs.csv", tmp_path / "now.csv"
    pairs.write_text(PAIRS)
    jobs.write_text(JOBS)
    return str(pairs), str(jobs)


def test_pairs_are_listed_best_first_whether_measured_or_predicted(files: tuple[str, str], run: Run) -> None:
    rows = json.loads(run("share", files[0], "--format", "json").out)
    together = {(row["kind"], row["beside"]): row["together"] for row in rows}
    assert together["lm", "resnet"] == pytest.approx(0.74 + 0.68, abs=0.02)
    assert list(together.values()) == sorted(together.values(), reverse=True)
    assert together["big", "big"] == 0
    assert together["big", "lm"] > 1, "what is not told to be too large is thought to fit"
    assert {(row["kind"], row["beside"]): row["seen (h)"] for row in rows}["lm", "resnet"] == 10
    cramped = json.loads(run("share", files[0], "--gpu-mem-mib", "80000", "--format", "json").out)
    assert {row["beside"]: row["together"] for row in cramped if row["kind"] == "big"} == {
        "big": 0, "lm": 0, "resnet": 0
    }  # fmt: skip


def test_each_job_gets_the_best_gpu_with_a_reason(files: tuple[str, str], run: Run) -> None:
    argv = ("share", files[0], "--jobs", files[1], "--gpu-mem-mib", "80000", "--format", "json")
    rows = json.loads(run(*argv).out)
    assert [(row["job"], row["gpu"], row["beside"]) for row in rows] == [
        (21, "node2:0", ""),
        (22, "node1:0", 11),
        (24, "", ""),
        (23, "node1:1", 12),
    ]
    assert rows[0]["why"] == "job 21 (big) has node2:0, which was free, to itself"
    assert rows[2]["why"].endswith("but a job that gains more, or waits longer, goes first")


def test_the_table_shows_the_same_as_the_json(files: tuple[str, str], run: Run) -> None:
    ran = run("share", files[0], "--jobs", files[1])
    assert ran.code == 0, ran.err
    assert "node2:0" in ran.out


def test_running_jobs_are_moved_only_with_the_option_for_it(
    files: tuple[str, str], run: Run, tmp_path: Path
) -> None:
    jobs = tmp_path / "two.csv"
    jobs.write_text("job,kind,gpu,ran_s\n1,big,a,90\n2,big,a,50\n3,resnet,b,10\n")
    argv = ("share", files[0], "--jobs", str(jobs), "--format", "json")
    assert json.loads(run(*argv).out) == []
    moved = json.loads(run(*argv, "--move", "--gpu-mem-mib", "80000").out)
    assert [(row["job"], row["gpu"]) for row in moved] == [(2, "")]


def test_long_running_jobs_give_way_only_with_the_option_for_it(
    files: tuple[str, str], run: Run, tmp_path: Path
) -> None:
    jobs = tmp_path / "long.csv"
    jobs.write_text("job,kind,gpu,waited_s,ran_s\n1,big,a,0,14400\n2,big,b,0,14399\n3,big,,60,\n")
    argv = ("share", files[0], "--jobs", str(jobs), "--gpu-mem-mib", "80000", "--format", "json")
    assert [(row["job"], row["gpu"]) for row in json.loads(run(*argv, "--move").out)] == [(3, "")]
    told = json.loads(run(*argv, "--suspend").out)
    assert [(row["job"], row["gpu"]) for row in told] == [(3, "a"), (1, "")]
    assert told[0]["why"].endswith("job 1 (big), which has run 4.0 h, makes room")


def test_unknown_pairs_are_tried_only_with_the_option_for_it(tmp_path: Path, run: Run) -> None:
    pairs, jobs = tmp_path / "p.csv", tmp_path / "j.csv"
    pairs.write_text("kind,beside,speed,seconds\na,a,0.5,60\n")
    jobs.write_text("job,kind,gpu\n1,a,x\n2,b,\n")
    argv = ("share", str(pairs), "--jobs", str(jobs), "--format", "json")
    assert json.loads(run(*argv).out)[0]["gpu"] == ""
    assert json.loads(run(*argv, "--trying", "0.5").out)[0]["gpu"] == "x"


def test_the_largest_memory_need_of_a_kind_counts(tmp_path: Path, run: Run) -> None:
    pairs, jobs = tmp_path / "p.csv", tmp_path / "j.csv"
    pairs.write_text("kind,beside,speed,mem_mib\na,b,0.9,10000\nb,a,0.9,10000\n")
    told = "job,kind,gpu,mem_mib\n1,a,x,30000\n2,b,,10000\n3,a,,20000\n"
    jobs.write_text(told)
    argv = ("share", str(pairs), "--jobs", str(jobs), "--format", "json", "--gpu-mem-mib")
    assert {row["job"]: row["gpu"] for row in json.loads(run(*argv, "40000").out)}[2] == "x"
    assert {row["job"]: row["gpu"] for row in json.loads(run(*argv, "39999").out)}[2] == ""


@pytest.mark.parametrize(
    ("pairs", "jobs", "reason"),
    [
        ("kind,beside\na,b\n", JOBS, "has no column speed; give kind, beside, speed"),
        ("kind,beside,speed\na,b,fast\n", JOBS, "line 2: speed is 'fast'; give a number"),
        ("kind,beside,speed,seconds\na,b,1,1e300\n", JOBS, "line 2: seconds is '1e300'; give a number"),
        (PAIRS, "job,kind,gpu,waited_s\n1,lm,,nan\n", "line 2: waited_s is 'nan'; give a number"),
        ("kind,beside,speed\na,b,-1\n", JOBS, "both must be 0 or more"),
        ("kind,beside,speed\na,,1\n", JOBS, "line 2: kind, beside or speed is empty"),
        (PAIRS, "job,kind,gpu\nx,lm,\n", "line 2: job is 'x', kind 'lm'; give a job number and a kind"),
        (PAIRS, "job,kind,gpu\n,,\n", "neither job nor gpu is given"),
        (PAIRS, "job,kind,gpu\n1,lm,a\n2,lm,a\n3,lm,a\n", "line 4: a has a third job"),
        (PAIRS, "job,kind,gpu\n1,lm,a\n1,lm,\n", "line 3: job 1 is listed already"),
    ],
)
def test_an_error_in_a_file_is_reported_in_one_line(
    tmp_path: Path, run: Run, pairs: str, jobs: str, reason: str
) -> None:
    one, other = tmp_path / "p.csv", tmp_path / "j.csv"
    one.write_text(pairs)
    other.write_text(jobs)
    assert_one_line(run("share", str(one), "--jobs", str(other)), 2, reason)
    assert_one_line(run("share", str(tmp_path / "none.csv")), 2, "cannot read")
