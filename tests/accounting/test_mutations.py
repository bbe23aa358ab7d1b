"""Lines of a dump, damaged at random: none crashes, and none is taken for what it is not.

`RIGHTSIZER_MUTATIONS=100000` runs as many; without it there are some thousands.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from accounting.dumps.read import read_dump
from accounting.frames import Records
from accounting.tres import parse_tres, parse_usage
from accounting.units import parse_duration_s, parse_memory_mib, parse_requested_mib, whole
from tests.accounting.dumps.table import COLUMNS, SETTINGS, job, step, text

MUTATIONS = int(os.environ.get("RIGHTSIZER_MUTATIONS", "4000"))
BYTES = "0123456789|.:-=,KMG \t\"'\\+_[]%xé\x00\x1f\n"


def mutated(line: str, chance: random.Random) -> str:
    """Return a line after one to three strokes of bad luck."""
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
        "alloc_cpus": _either(granted.cpus, whole(fields["AllocCPUS"])),
        "alloc_mem_mib": granted.mem_mib,
        "alloc_gpus": granted.gpus,
    }


def _either(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


def _requested(listed: str, cpus: int | None, nodes: int | None) -> int | None:
    request = parse_requested_mib(listed)
    each = {"c": cpus, "n": nodes, "": 1}[request[1]] if request else None
    return None if request is None or each is None else round(request[0] * each)


def expected_step(fields: dict[str, str]) -> dict[str, Any]:
    """Return what each column of a step means on its own."""
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
    }


def read_text(folder: Path, dump: str) -> list[Records]:
    """Read a dump with a job's line, and a step's, of which one may be damaged."""
    file = folder / "dump.psv"
    file.write_bytes(dump.encode())
    return list(read_dump(file, SETTINGS))


def damaged_dump(line: str, *, is_step: bool) -> str:
    """Return a dump in which one line is damaged."""
    plain = text([job(), step()]).split("\n")
    plain[2 if is_step else 1] = line
    return "\n".join(plain)


def check(parts: list[Records], line: str, *, is_step: bool) -> bool:
    """Whether the damaged line was taken; where it was, all of it must mean what it says."""
    jobs = pa.concat_tables([part.jobs for part in parts]).to_pylist()
    steps = pa.concat_tables([part.steps for part in parts]).to_pylist()
    kept_aside = "\n".join(one.line for part in parts for one in part.quarantined)
    shown = line.replace("\x00", "\\x00")
    values = shown.split("|")
    fields = (
        dict(zip(COLUMNS, values, strict=True)) if len(values) == len(COLUMNS) and "\n" not in line else None
    )
    for row, wanted in [*((one, not is_step) for one in jobs), *((one, is_step) for one in steps)]:
        original = expected_job(job()) if "job_id" in row else expected_step(step())
        wants = original
        if wanted and fields is not None:
            wants = expected_job(fields) if "job_id" in row else expected_step(fields)
        assert {name: row[name] for name in wants} == wants, line
    if is_step and jobs and not steps and shown:
        # Its job may stand alone only where the line is another job's, waits, or is kept aside itself.
        assert shown.split("\n")[0] in kept_aside or "R" in shown, line
    return bool(steps if is_step else jobs)


@pytest.mark.parametrize("is_step", [False, True], ids=["job", "step"])
def test_no_damaged_line_is_taken_for_what_it_is_not(tmp_path: Path, is_step: bool) -> None:
    chance = random.Random(20_11)
    whole_line = "|".join((step() if is_step else job()).values())
    taken = 0
    for _ in range(MUTATIONS // 2):
        line = mutated(whole_line, chance)
        taken += check(read_text(tmp_path, damaged_dump(line, is_step=is_step)), line, is_step=is_step)
    assert 0.05 < taken / (MUTATIONS // 2) < 0.6
