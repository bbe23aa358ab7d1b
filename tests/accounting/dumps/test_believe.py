"""What is accepted of a dump: a job with all its steps; otherwise all its lines are set aside with a reason."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from accounting.dumps.rows import REACH_LINES
from tests.accounting.dumps.table import COLUMNS, SETTINGS, job, numbered, read, step, text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"End": "1700000050"}, "it ends before it starts"),
        ({"Start": "1600000000", "End": "1600000100"}, "it starts before it was submitted"),
        ({"End": "1900000000", "Start": "1899999900"}, "it ends in the future"),
        ({"ElapsedRaw": "-5"}, "elapsedraw is not a whole number"),
        ({"ElapsedRaw": "200"}, "it ran longer than the time from its start to its end"),
        ({"End": "Unknown"}, "no end, although its state says that it ended"),
        ({"Submit": "0"}, "no time of submission, or one before Slurm existed"),
        ({"Submit": "yesterday"}, "submit is not a time"),
        ({"State": "DONE"}, "State is not a state of Slurm"),
        ({"State": ""}, "State is not a state of Slurm"),
        ({"State": "RESIZING"}, "it ended in state RESIZING: the rest of it ran with other resources"),
        ({"ReqTRES": "cpu=4,mem=8Q"}, "reqtres is not a list of resources"),
        ({"AllocTRES": "cpu=900000000,mem=16G,node=2"}, "alloc_cpus is more than its nodes can have"),
        ({"AllocTRES": "cpu=8,mem=99999999G,node=2"}, "alloc_mem_mib is more than its nodes can have"),
        ({"TimelimitRaw": "ten"}, "timelimitraw is not a whole number"),
        ({"Partition": ""}, "no partition: its record was not completely written"),
        ({"JobID": "101"}, "JobID and JobIDRaw belong to different jobs"),
        ({"JobName": "a|b"}, "30 columns instead of 29"),
    ],
)
def test_an_impossible_line_is_quarantined_with_its_steps(
    tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    records = read(tmp_path, text([*numbered(99), job(**changes), step(), *numbered(101)]))
    assert records.jobs["job_id"].to_pylist() == [99, 101]
    assert len(records.steps) == 2
    assert records.quarantined[0].reason == reason
    assert records.quarantined[0].line.startswith("line 4: ")
    aside = "\n".join(one.line for one in records.quarantined)
    assert aside.count("solve") == 1
    assert all(one.source == "dump.psv" for one in records.quarantined)


@pytest.mark.parametrize(
    ("cpu_time_s", "told", "is_believed"),
    [
        (4 * 100, (), True),
        (4 * 100 + 1, (), False),
        (4 * (600 + 3600), (), True),
        (4 * (600 + 3601), (), False),
        (8 * 100 + 1, ("ElapsedRaw",), True),
        (8 * 100 + 1, ("Start", "End"), True),
    ],
)
def test_cpu_time_that_fits_no_run_on_the_requested_cpus_is_doubted_only_if_nothing_else_tells_how_long_it_ran(
    tmp_path: Path, cpu_time_s: int, told: tuple[str, ...], is_believed: bool
) -> None:
    columns = ("JobIDRaw", "State", "Submit", "CPUTimeRAW", "ReqCPUS", "TimelimitRaw", *told)
    records = read(tmp_path, text([job(CPUTimeRAW=str(cpu_time_s))], columns))
    assert (len(records.jobs), len(records.quarantined)) == (is_believed, not is_believed)


def test_a_step_that_was_lost_with_its_node_has_no_end(tmp_path: Path) -> None:
    columns = tuple(name for name in COLUMNS if name != "NTasks")
    records = read(tmp_path, text([job(State="NODE_FAIL"), step(End="Unknown")], columns))
    assert (records.steps["end_s"].to_pylist(), records.steps["tasks"].to_pylist()) == ([0], [1])


def test_without_a_column_of_ends_a_job_ends_after_its_run_or_when_it_was_submitted(tmp_path: Path) -> None:
    never = {"State": "CANCELLED by 0", "Start": "Unknown", "ElapsedRaw": "0"}
    columns = tuple(name for name in COLUMNS if name != "End")
    records = read(tmp_path, text([job(), job(JobIDRaw="101", JobID="101", **never)], columns))
    assert records.jobs["end_s"].to_pylist() == [1700000160, 1700000000]


def test_the_record_after_a_resize_is_quarantined(tmp_path: Path) -> None:
    before = job(State="RESIZING")
    rest = job(Submit=before["End"], Start=before["End"], ElapsedRaw="60", End=str(int(before["End"]) + 60))
    records = read(tmp_path, text([*numbered(99), before, step(), rest, *numbered(101)]))
    assert records.jobs["job_id"].to_pylist() == [99, 101]
    assert [one.reason.partition(":")[0] for one in records.quarantined] == [
        "it ended in state RESIZING",
        "its size was changed while it ran",
    ]


@pytest.mark.parametrize("job_id", ["1OO", "", "99999999999"])
def test_a_line_without_an_id_may_be_the_end_of_a_forged_one(tmp_path: Path, job_id: str) -> None:
    records = read(tmp_path, text([*numbered(99), job(JobIDRaw=job_id), step(), *numbered(101)]))
    assert records.jobs["job_id"].to_pylist() == [101]
    assert [one.reason for one in records.quarantined] == [
        "it is next to a piece of a broken line, and may be forged",
        "no job id",
        "the line of its job is not before it",
    ]
    names = tuple(name for name in COLUMNS if name not in ("JobName", "Comment", "AdminComment"))
    unforgeable = read(tmp_path, text([*numbered(99), job(JobIDRaw=job_id), step(), *numbered(101)], names))
    assert unforgeable.jobs["job_id"].to_pylist() == [99, 101]


@pytest.mark.parametrize(
    "changes",
    [
        {"MaxRSS": "much"},
        {"MaxRSS": "999999999999999999"},
        {"TotalCPU": "1-2-3"},
        {"TotalCPU": "900000-00:00:00"},
        {"TRESUsageInTot": "cpu=00:00:10,mem=5;energy=1"},
        {"End": "1700000000"},
        {"State": "WHAT"},
        {"JobName": "a|b"},
        {"JobName": "a\nb"},
    ],
)
def test_a_job_with_a_damaged_step_is_not_half_counted(tmp_path: Path, changes: dict[str, str]) -> None:
    records = read(
        tmp_path, text([*numbered(99), job(), step(**changes), step(JobIDRaw="100.1"), *numbered(101)])
    )
    assert records.jobs["job_id"].to_pylist() == [99, 101]
    assert records.steps["job"].to_pylist() == [0, 1]
    assert records.quarantined


@pytest.mark.parametrize("block_bytes", [23_000, 34_500, SETTINGS.block_bytes])
def test_a_name_cannot_forge_a_line(tmp_path: Path, block_bytes: int) -> None:
    """Nor where a block would end among the pieces: with 23,000 and 34,500 bytes, it would."""
    settings = msgspec.structs.replace(SETTINGS, block_bytes=block_bytes)
    forged = "|".join(job(JobIDRaw="666", JobID="666", User="eve").values())
    for name in (
        f"x\n{forged}\ny",
        f"x||\n{forged}\ny|z",
        f"x\n\n{forged}\n{forged}\ny",
        f"x\n{forged}|\n{forged}\n",
        # Of both pieces, each looks like the beginning of a line.
        f"x|\n{forged}\n7|y",
    ):
        others = [row for number in range(101, 201) for row in numbered(number)]
        records = read(tmp_path, text([*others, job(JobName=name), step(), *others]), settings)
        taken = records.jobs["job_id"].to_pylist()
        assert not {100, 666} & set(taken), name
        # Lines near it are in doubt: the dump does not show where the name ends.
        assert len(taken) >= 2 * (100 - REACH_LINES // 2)


def test_steps_apart_from_their_job_are_quarantined_with_it(tmp_path: Path) -> None:
    records = read(tmp_path, text([job(), *numbered(99), step()]))
    assert records.jobs["job_id"].to_pylist() == [99]
    assert len(records.quarantined) == 2
