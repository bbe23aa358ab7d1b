"""Lines of a dump, damaged at random: none causes a crash, and none is taken for something else.

`RIGHTSIZER_MUTATIONS=100000` runs that many; the default is some thousands.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accounting.dumps.read import read_dump
from accounting.dumps.rows import REACH_LINES
from accounting.frames import Records
from accounting.tres import parse_tres, parse_usage
from accounting.units import parse_duration_s, parse_memory_mib, parse_requested_mib, whole
from tests.accounting.dumps.table import COLUMNS, SETTINGS, job, step

MUTATIONS = int(os.environ.get("RIGHTSIZER_MUTATIONS", "4000"))
BATCH = 100
# The number of whole lines between two damaged ones, and their first job id, which no damage makes out of 100.
APART = 2 * REACH_LINES + 8
FIRST_FILLER = 3_000_000_000
Row = dict[str, Any]
BYTES = "0123456789|.:-=,KMG \t\"'\\+_[]%xé\x00\x1f\n"


def mutated(line: str, chance: random.Random) -> str:
    """Return a line after one to three random changes."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        line = chance.choice(STROKES)(line, chance)
    return line


def _cut(line: str, chance: random.Random) -> str:
    return line[: chance.randrange(len(line) + 1)]


def _flip(line: str, chance: random.Random) -> str:
    at = chance.randrange(len(line) + 1)
    return line[:at] + chance.choice(BYTES) + line[at + 1 :]


def _insert(line: str, chance: random.Random) -> str:
    at = chance.randrange(len(line) + 1)
    return line[:at] + chance.choice(BYTES) * chance.choice((1, 1, 3, 40)) + line[at:]


def _drop(line: str, chance: random.Random) -> str:
    at = chance.randrange(len(line) + 1)
    return line[:at] + line[at + chance.choice((1, 1, 2, 20)) :]


def _swap(line: str, chance: random.Random) -> str:
    fields = line.split("|")
    one, other = chance.randrange(len(fields)), chance.randrange(len(fields))
    fields[one], fields[other] = fields[other], fields[one]
    return "|".join(fields)


def _repeat(line: str, chance: random.Random) -> str:
    fields = line.split("|")
    at = chance.randrange(len(fields))
    return "|".join([*fields[:at], fields[at], *fields[at:]])


STROKES: tuple[Callable[[str, random.Random], str], ...] = (
    _cut,
    _flip,
    _flip,
    _insert,
    _drop,
    _swap,
    _repeat,
)
FILLER: Row = {
    "cluster": "blue", "user": "ada", "account": "math", "partition": "main", "qos": "normal", "job_name": "align",
    "comment": "", "admin_comment": "", "state": "COMPLETED", "submit_s": 1700000000, "start_s": 1700000060,
    "end_s": 1700000160, "elapsed_s": 100, "limit_s": 600, "nodes": 2, "tasks": None, "req_cpus": 4,
    "req_mem_mib": 8192, "req_gpus": None, "alloc_cpus": 8, "alloc_mem_mib": 16384, "alloc_gpus": 2, "energy_j": 5000.0,
    "slurm_release": "", "gather": "", "digest": None,
}  # fmt: skip
EXACT = {
    "user": "User", "account": "Account", "partition": "Partition", "qos": "QOS", "job_name": "JobName",
    "comment": "Comment", "admin_comment": "AdminComment", "state": "State",
}  # fmt: skip


def expected_job(fields: dict[str, str]) -> dict[str, Any]:
    """Return what each column of a job means on its own."""
    requested, granted = parse_tres(fields["ReqTRES"]), parse_tres(fields["AllocTRES"])
    cpus = _either(requested.cpus, whole(fields["ReqCPUS"]))
    nodes = _either(whole(fields["NNodes"]), granted.nodes)
    limit_min = whole(fields["TimelimitRaw"])
    return {
        **{name: fields[column] for name, column in EXACT.items()},
        "cluster": fields["Cluster"] or "dump.psv",
        "job_id": whole(fields["JobIDRaw"]),
        "submit_s": whole(fields["Submit"]),
        "start_s": whole(fields["Start"]) or 0,
        "end_s": whole(fields["End"]),
        "limit_s": None if limit_min is None else limit_min * 60,
        "nodes": nodes or 0,
        "tasks": whole(fields["NTasks"]),
        "req_cpus": cpus,
        "req_mem_mib": _either(requested.mem_mib, _requested(fields["ReqMem"], cpus, nodes)),
        "req_gpus": requested.gpus,
        "alloc_cpus": _either(granted.cpus, whole(fields["AllocCPUS"]) if _elapsed_s(fields) else None),
        "alloc_mem_mib": granted.mem_mib,
        "alloc_gpus": granted.gpus,
    }


def _either(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


def _elapsed_s(fields: dict[str, str]) -> int:
    start_s, end_s = whole(fields["Start"]), whole(fields["End"])
    ran_s = end_s - start_s if start_s and end_s else 0
    return _either(whole(fields["ElapsedRaw"]), ran_s) or 0


def _requested(listed: str, cpus: int | None, nodes: int | None) -> int | None:
    request = parse_requested_mib(listed)
    each = {"c": cpus, "n": nodes, "": 1}[request[1]] if request else None
    return None if request is None or each is None else round(request[0] * each)


def expected_step(fields: dict[str, str]) -> dict[str, Any]:
    """Return what each column of a step means on its own."""
    granted = parse_tres(fields["AllocTRES"])
    in_max, in_tot, out_tot = (
        parse_usage(fields[name]) for name in ("TRESUsageInMax", "TRESUsageInTot", "TRESUsageOutTot")
    )
    return {
        "step_id": fields["JobIDRaw"].partition(".")[2],
        "state": fields["State"],
        "start_s": whole(fields["Start"]) or 0,
        "end_s": whole(fields["End"]) or 0,
        "tasks": _either(whole(fields["NTasks"]), 1),
        "nodes": _either(whole(fields["NNodes"]), 1),
        "mem_max_task_mib": parse_memory_mib(fields["MaxRSS"], bare_unit="B"),
        "mem_total_mib": in_tot.mem_mib,
        "cpu_s": parse_duration_s(fields["TotalCPU"]),
        "cpu_max_task_s": in_max.cpu_s,
        "gpu_util_pct": in_max.gpu_util_pct,
        "gpu_mem_mib": in_tot.gpu_mem_mib,
        "read_mib": in_tot.moved_mib,
        "written_mib": out_tot.moved_mib,
        "alloc_cpus": _either(granted.cpus, whole(fields["AllocCPUS"])),
        "alloc_mem_mib": granted.mem_mib,
    }


def fillers(number: int) -> list[str]:
    """Return lines that keep one damaged line from casting doubt on another."""
    ids = range(FIRST_FILLER + number * APART, FIRST_FILLER + (number + 1) * APART)
    return ["|".join(job(JobIDRaw=str(one), JobID=str(one)).values()) for one in ids]


def whole_rows(number: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return a job and its step before any damage."""
    one = str(100 + number)
    return job(JobIDRaw=one, JobID=one), step(JobIDRaw=f"{one}.0", JobID=f"{one}.0")


def damaged_dump(damaged: list[str], *, is_step: bool) -> str:
    """Return a dump with a job and its step for each damaged line, which replaces one of the two."""
    lines = ["|".join(COLUMNS)]
    for number, line in enumerate(damaged):
        whole_job, whole_step = ("|".join(row.values()) for row in whole_rows(number))
        lines += [*fillers(number), *((whole_job, line) if is_step else (line, whole_step))]
    return "\n".join([*lines, *fillers(len(damaged)), ""])


def taken_by_line(parts: list[Records], count: int) -> list[tuple[list[Row], list[Row]]]:
    """Return the jobs and steps that were taken for each damaged line; the fillers show where each one is."""
    jobs = [job for part in parts for job in part.jobs.to_pylist()]
    steps: list[list[Row]] = [[] for _ in jobs]
    begin = 0
    for part in parts:
        for one in part.steps.to_pylist():
            steps[begin + one["job"]].append(one)
        begin += len(part.jobs)
    taken: list[tuple[list[Row], list[Row]]] = [([], []) for _ in range(count)]
    at = 0
    for one, its_steps in zip(jobs, steps, strict=True):
        if one["job_id"] >= FIRST_FILLER and one["job_id"] < FIRST_FILLER + (count + 1) * APART:
            at = min((one["job_id"] - FIRST_FILLER) // APART, count - 1)
            assert one == {**FILLER, "job_id": one["job_id"], "display_id": one["display_id"]}
            assert not its_steps
            continue
        taken[at][0].append(one)
        taken[at][1].extend(its_steps)
    return taken


def check(
    number: int, line: str, jobs: list[Row], steps: list[Row], kept_aside: str, *, is_step: bool
) -> bool:
    """Return whether the damaged line was taken; fail unless all that was taken means what it says."""
    shown = line.replace("\x00", "\\x00")
    lines = [one for one in shown.split("\n") if one]
    values = lines[0].split("|") if len(lines) == 1 else []
    fields = dict(zip(COLUMNS, values, strict=True)) if len(values) == len(COLUMNS) else None
    whole_job, whole_step = whole_rows(number)
    for rows, whole_row, expected, damaged in (
        (jobs, whole_job, expected_job, not is_step),
        (steps, whole_step, expected_step, is_step),
    ):
        for row in rows:
            wants = expected(fields if damaged and fields is not None else whole_row)
            assert {name: row[name] for name in wants} == wants, line
    if is_step and jobs and not steps and shown:
        # The job may stand alone only where the damaged line belongs to another job, or is quarantined itself.
        assert shown.split("\n")[0] in kept_aside or fields is not None, line
    return bool(steps if is_step else jobs)


@pytest.mark.parametrize("is_step", [False, True], ids=["job", "step"])
def test_no_damaged_line_is_taken_for_something_else(tmp_path: Path, is_step: bool) -> None:
    chance = random.Random(20_11)
    whole_lines = ["|".join(whole_rows(number)[is_step].values()) for number in range(BATCH)]
    file = tmp_path / "dump.psv"
    taken = 0
    for _ in range(0, MUTATIONS // 2, BATCH):
        damaged = [mutated(line, chance) for line in whole_lines]
        file.write_bytes(damaged_dump(damaged, is_step=is_step).encode())
        parts = list(read_dump(file, SETTINGS))
        aside = "\n".join(one.line for part in parts for one in part.quarantined)
        for number, (jobs, steps) in enumerate(taken_by_line(parts, BATCH)):
            taken += check(number, damaged[number], jobs, steps, aside, is_step=is_step)
    assert 0.05 < taken / (MUTATIONS // 2) < 0.6
