"""The one place that runs sacct and reads what it prints.

Options and their reasons: `--delimiter` is a control character, because job names may hold `|`; free text comes
last and the column count is checked, so that a name cannot forge a row; `--noconvert` keeps bytes; times are unix
seconds through SLURM_TIME_FORMAT, so that no time zone or summer time stands between us and the record.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator

import msgspec

from accounting.errors import SlurmError
from accounting.records import JobRow, Quarantined, Step
from accounting.states import outcome_of
from accounting.tres import parse_tres, usage_cpu_s, usage_mem_mib
from accounting.units import parse_duration_s, parse_memory_mib, whole

DELIMITER = "\x1f"
COLUMNS = (
    "JobIDRaw", "JobID", "Cluster", "User", "Partition", "QOS", "State", "Submit", "Start", "End", "ElapsedRaw",
    "TimelimitRaw", "NNodes", "NTasks", "ReqTRES", "AllocTRES", "MaxRSS", "TotalCPU", "TRESUsageInMax",
    "TRESUsageInTot", "Account", "JobName", "Comment", "AdminComment",
)  # fmt: skip

Fields = dict[str, str]
JobWithSteps = tuple[JobRow, tuple[Step, ...]]


class Reading(msgspec.Struct):
    """What a stretch of sacct output held: ended jobs with their steps, and lines that were not taken."""

    jobs: list[JobWithSteps]
    quarantined: list[Quarantined]
    unfinished: int = 0


def query_sacct(command: str, since_s: int, until_s: int) -> list[str]:
    """Return sacct's lines about all users' jobs in a window of unix seconds, the heading included.

    Raises SlurmError where sacct is missing, fails, or prints other columns than were asked for.
    """
    arguments = [
        command, "--allusers", "--duplicates", "--parsable2", "--noconvert", f"--delimiter={DELIMITER}",
        f"--starttime={slurm_time(since_s)}", f"--endtime={slurm_time(until_s)}", f"--format={','.join(COLUMNS)}",
    ]  # fmt: skip
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    try:
        finished = subprocess.run(arguments, capture_output=True, env=environment, check=False)
    except OSError as error:
        raise SlurmError(
            f"cannot run {command!r}: {error.strerror}; install Slurm's client commands here or set accounting.sacct"
        ) from None
    if finished.returncode != 0:
        complaint = finished.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise SlurmError(
            f"{command} failed: {complaint[-1]}; check that slurmdbd runs and SLURM_CONF names the right cluster"
        )
    # Not splitlines(): names may hold every other character that Unicode calls a line end.
    lines = finished.stdout.decode(errors="replace").removesuffix("\n").split("\n")
    if tuple(lines[0].split(DELIMITER)) != COLUMNS:
        raise SlurmError(
            f"{command} did not print the columns it was asked for (first line: {lines[0][:80]!r}); "
            "check that accounting.sacct names Slurm's own sacct, 20.11 or newer"
        )
    return lines


def slurm_time(unix_s: int) -> str:
    """Return a time as sacct's options take it on every release (`uts` is seconds since the epoch)."""
    return f"uts{unix_s}"


def read_sacct(lines: Iterable[str]) -> Reading:
    """Read sacct's lines (heading first) into ended attempts with their steps.

    Step rows belong to the job row before them: after a requeue the same id comes once for each attempt.
    """
    reading = Reading(jobs=[], quarantined=[])
    row: JobRow | None = None
    steps: list[Step] = []
    for fields in _rows(lines, reading.quarantined):
        if "." in fields["JobIDRaw"]:
            if row is not None and fields["JobIDRaw"].startswith(f"{row.job_id}."):
                steps.append(_step(fields))
            continue
        _finish(reading, row, steps)
        row, steps = _job(fields, reading), []
    _finish(reading, row, steps)
    return reading


def _finish(reading: Reading, row: JobRow | None, steps: list[Step]) -> None:
    if row is not None:
        reading.jobs.append((row, tuple(steps)))


def _rows(lines: Iterable[str], quarantined: list[Quarantined]) -> Iterator[Fields]:
    for number, line in enumerate(lines):
        if number == 0 or not line:
            continue
        values = line.split(DELIMITER)
        if len(values) != len(COLUMNS):
            quarantined.append(
                Quarantined(line=line, reason=f"{len(values)} columns instead of {len(COLUMNS)}")
            )
            continue
        yield dict(zip(COLUMNS, values, strict=True))


def _job(fields: Fields, reading: Reading) -> JobRow | None:
    """Return the row of an ended attempt; None, counted or quarantined, where it is none."""
    job_id, submit_s = whole(fields["JobIDRaw"]), whole(fields["Submit"])
    start_s, end_s = whole(fields["Start"]) or 0, whole(fields["End"]) or 0
    if job_id is None or submit_s is None:
        reading.quarantined.append(
            Quarantined(line=DELIMITER.join(fields.values()), reason="no job id or submit time")
        )
        return None
    # A job's end can reach slurmdbd before its start (seen on 22.05): for two seconds its row is COMPLETED,
    # of root, and without a partition.
    if outcome_of(fields["State"]) == "unfinished" or end_s == 0 or not fields["Partition"]:
        reading.unfinished += 1
        return None
    if end_s < start_s:
        reading.quarantined.append(
            Quarantined(line=DELIMITER.join(fields.values()), reason="it ends before it starts")
        )
        return None
    req, alloc = parse_tres(fields["ReqTRES"]), parse_tres(fields["AllocTRES"])
    limit_min = whole(fields["TimelimitRaw"])
    return JobRow(
        cluster=fields["Cluster"],
        job_id=job_id,
        display_id=fields["JobID"],
        user=fields["User"],
        account=fields["Account"],
        partition=fields["Partition"],
        qos=fields["QOS"],
        job_name=fields["JobName"],
        comment=fields["Comment"],
        admin_comment=fields["AdminComment"],
        state=fields["State"],
        submit_s=submit_s,
        start_s=start_s,
        end_s=end_s,
        elapsed_s=whole(fields["ElapsedRaw"]) or 0,
        limit_s=None if limit_min is None else limit_min * 60,
        nodes=whole(fields["NNodes"]) or 0,
        req_cpus=req.cpus,
        req_mem_mib=req.mem_mib,
        req_gpus=req.gpus,
        alloc_cpus=alloc.cpus,
        alloc_mem_mib=alloc.mem_mib,
        alloc_gpus=alloc.gpus,
    )


def _step(fields: Fields) -> Step:
    return Step(
        step_id=fields["JobIDRaw"].partition(".")[2],
        state=fields["State"],
        start_s=whole(fields["Start"]) or 0,
        end_s=whole(fields["End"]) or 0,
        tasks=whole(fields["NTasks"]) or 1,
        mem_max_task_mib=parse_memory_mib(fields["MaxRSS"], bare_unit="B"),
        mem_total_mib=usage_mem_mib(fields["TRESUsageInTot"]),
        cpu_s=parse_duration_s(fields["TotalCPU"]),
        cpu_max_task_s=usage_cpu_s(fields["TRESUsageInMax"]),
    )
