"""Dumps made by tests: a site's jobs as sacct prints them, in any columns."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from accounting.dumps.jobs import DumpSettings
from accounting.dumps.read import read_dump
from accounting.frames import Records

SETTINGS = DumpSettings(now_s=1_800_000_000, zone=ZoneInfo("Europe/Berlin"))
JOB = {
    "JobIDRaw": "100", "JobID": "100", "Cluster": "blue", "User": "ada", "Account": "math", "Partition": "main",
    "QOS": "normal", "State": "COMPLETED", "Submit": "1700000000", "Start": "1700000060", "End": "1700000160",
    "ElapsedRaw": "100", "TimelimitRaw": "10", "NNodes": "2", "NTasks": "", "ReqCPUS": "4", "AllocCPUS": "8",
    "ReqTRES": "billing=4,cpu=4,mem=8G,node=1", "AllocTRES": "billing=8,cpu=8,gres/gpu=2,mem=16G,node=2",
    "ReqMem": "8G", "MaxRSS": "", "TotalCPU": "06:40", "TRESUsageInMax": "", "TRESUsageInTot": "",
    "TRESUsageOutTot": "", "ConsumedEnergyRaw": "5000", "JobName": "align", "Comment": "", "AdminComment": "",
}  # fmt: skip
STEP = {
    **dict.fromkeys(JOB, ""), "JobIDRaw": "100.0", "JobID": "100.0", "Cluster": "blue", "State": "COMPLETED",
    "Submit": "1700000061", "Start": "1700000061", "End": "1700000159", "ElapsedRaw": "98", "NNodes": "2",
    "NTasks": "4", "AllocTRES": "cpu=8,mem=16G,node=2", "MaxRSS": "104857600", "TotalCPU": "06:39.500",
    "TRESUsageInMax": "cpu=00:01:50,energy=9,fs/disk=1048576,gres/gpumem=1G,gres/gpuutil=87,mem=104857600",
    "TRESUsageInTot": "cpu=00:06:39,energy=4000,fs/disk=4194304,gres/gpumem=2G,gres/gpuutil=99,mem=419430400,pages=0",
    "TRESUsageOutTot": "energy=9,fs/disk=2097152", "ConsumedEnergyRaw": "4000", "JobName": "solve",
}  # fmt: skip
COLUMNS = tuple(JOB)


def job(**changes: str) -> dict[str, str]:
    """Return a job's line by its columns."""
    return {**JOB, **changes}


def step(**changes: str) -> dict[str, str]:
    """Return a step's line by its columns."""
    return {**STEP, **changes}


def numbered(number: int, **changes: str) -> list[dict[str, str]]:
    """Return a job with a step, with another job id."""
    return [
        job(JobIDRaw=str(number), JobID=str(number), **changes),
        step(JobIDRaw=f"{number}.0", JobID=f"{number}.0"),
    ]


def text(rows: list[dict[str, str]], columns: tuple[str, ...] = COLUMNS, delimiter: str = "|") -> str:
    """Return a dump of rows, its heading first."""
    lines = [delimiter.join(columns), *(delimiter.join(row[name] for name in columns) for row in rows)]
    return "\n".join(lines) + "\n"


def spreadsheet(rows: list[dict[str, str]], columns: tuple[str, ...], delimiter: str) -> str:
    """Return a dump as a spreadsheet writes it: with quotes around what has a delimiter in it."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, delimiter=delimiter, lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def read(folder: Path, data: str | bytes, settings: DumpSettings = SETTINGS, packed: bool = False) -> Records:
    """Read a whole dump."""
    data = data.encode() if isinstance(data, str) else data
    file = folder / ("dump.psv.gz" if packed else "dump.psv")
    file.write_bytes(gzip.compress(data) if packed else data)
    return together(list(read_dump(file, settings)))


def together(parts: list[Records]) -> Records:
    """Return the blocks of a dump as one."""
    begins = [sum(len(one.jobs) for one in parts[:number]) for number in range(len(parts))]
    steps = [
        part.steps.set_column(0, part.steps.schema.field("job"), pc.add(part.steps["job"], begin))
        for part, begin in zip(parts, begins, strict=True)
    ]
    return Records(
        jobs=pa.concat_tables([part.jobs for part in parts]),
        steps=pa.concat_tables(steps),
        quarantined=tuple(line for part in parts for line in part.quarantined),
        unfinished=sum(part.unfinished for part in parts),
        missing=tuple(line for part in parts for line in part.missing),
        cut_off="".join(part.cut_off for part in parts),
    )
