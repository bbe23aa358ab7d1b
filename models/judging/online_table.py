"""Reads a table of past jobs for a replay, one job a row, and writes what each would have been granted.

Columns of the table: job_id, job_name, submit_time, start, end (unix seconds), elapsed_s, req_mem_mib, peak_mem_mib;
if known also user, account, partition, req_cpus, used_cores, limit_s, input_mib (the size of the input files, as
known at submission). Other columns are ignored, except one that is named as the size of the input in bytes.
"""

from __future__ import annotations

import lzma
import math
import os
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas

from accounting.errors import ModelError
from accounting.frames import Flags
from accounting.presence import is_folder, is_there
from accounting.request import JobRequest
from models.judging.online import OnlineJob
from models.past.jobs import PastJob

NEEDED = (
    "job_id", "job_name", "submit_time", "start", "end", "elapsed_s", "req_mem_mib", "peak_mem_mib",
)  # fmt: skip
FIGURES = (
    "submit_time", "start", "end", "elapsed_s", "req_mem_mib", "peak_mem_mib", "req_cpus", "used_cores", "limit_s",
    "input_mib",
)  # fmt: skip
# No real amount or time is larger.
HIGHEST = 1e15
BYTES_IN_MIB = 2.0**20
# What pandas lets through of a file that it is to unpack by its name; ImportError: what unpacks it is not installed.
PACKED_BADLY = (EOFError, ImportError, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error)
GRANTED = ("job_id", "alloc_mem_mib", "alloc_cpus", "reason")
Sized = tuple[OnlineJob, JobRequest, str]
# By name: what is asked and what was used of an amount.
AMOUNTS: tuple[tuple[str, Callable[[JobRequest], int], Callable[[PastJob], float | None]], ...] = (
    ("memory", lambda request: request.mem_per_node_mib or 0, lambda past: past.mem_mib),
    ("CPUs", lambda request: request.cpus_per_task or 0, lambda past: past.cores_per_task),
)
TEXTS = ("job_id", "job_name", "user", "account", "partition")


def read_jobs(file: Path, input_bytes: str | None = None) -> list[OnlineJob]:
    """Return the jobs of a CSV file (.gz as well); ModelError if it does not hold what is needed.

    `input_bytes` names the column with the size of the input in bytes, if it is not in `input_mib`.
    """
    try:
        with warnings.catch_warnings():
            # For lines longer than the header: pandas would drop the surplus, or take it for a row's name.
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            table = pandas.read_csv(
                file, dtype=str, keep_default_na=False, index_col=False, skip_blank_lines=False
            ).fillna("")
    except FileNotFoundError:
        raise ModelError(f"the file {file} does not exist") from None
    except (OSError, ValueError, *PACKED_BADLY, pandas.errors.ParserWarning) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(
            f"cannot read {file}: {reason}; give a CSV file in UTF-8 with a header line"
        ) from None
    missing = [name for name in NEEDED if name not in table.columns]
    if missing:
        raise ModelError(
            f"{file} lacks the columns {', '.join(missing)}; its first line must name "
            f"{', '.join(NEEDED)}, separated by commas"
        )
    if input_bytes is not None and input_bytes not in table.columns:
        raise ModelError(
            f"{file} has no column {input_bytes}; give the column with the size of the input in bytes"
        )
    # pandas gives this name to the second of two columns of one name.
    twice = [name for name in (*FIGURES, *TEXTS) if f"{name}.1" in table.columns]
    if twice:
        raise ModelError(f"{file} has the columns {', '.join(twice)} more than once; leave only one of each")
    # The index still counts the rows that are dropped here, for line numbers.
    table = table[_filled(table)]
    for name in FIGURES:
        table[name] = _numbers(table, name, file) if name in table.columns else math.nan
    if input_bytes is not None:
        table["input_mib"] = _numbers(table, input_bytes, file) / BYTES_IN_MIB
    for name in TEXTS:
        table[name] = table[name] if name in table.columns else ""
    _check(table, file)
    if table.empty:
        raise ModelError(f"{file} has no jobs; write one job per line below the header")
    return [_job(row) for row in table[[*FIGURES, *TEXTS]].to_dict("records")]


def read_ids(file: Path, jobs: Sequence[OnlineJob]) -> frozenset[str]:
    """Return the job ids of a file, one a line; ModelError if it cannot be read, or names a job that is not there."""
    try:
        ids = frozenset(file.read_text(encoding="utf-8-sig").split())
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"cannot read {file}: {error}; give a file with one job_id per line") from None
    strange = sorted(ids - {job.job_id for job in jobs})
    if strange:
        raise ModelError(
            f"{file} lists {len(strange)} jobs that are not in the table; the first is {strange[0]}"
        )
    return ids


def tally(sized: Sequence[Sized]) -> dict[str, object]:
    """Return one row: how many jobs, how many cut and failed, and what share of the requests was saved.

    A job that got less than it used counts with both its runs, the second with its full request.
    """
    row: dict[str, object] = {"jobs": len(sized)}
    for name, asked_of, used_of in AMOUNTS:
        known = [
            (asked, asked_of(granted), min(used, asked), job.past.wall_s)
            for job, granted, _ in sized
            if (asked := asked_of(job.request)) and (used := used_of(job.past)) is not None
        ]
        failed = sum(given < used for _, given, used, _ in known)
        held = sum((given + (asked if given < used else 0)) * wall_s for asked, given, used, wall_s in known)
        requested = sum(asked * wall_s for asked, _, _, wall_s in known)
        row |= {
            f"{name} cut": sum(given < asked for asked, given, _, _ in known),
            f"{name} saved %": round(100 * (1 - held / requested), 1) if requested else None,
            f"{name} short": failed,
            f"{name} short %": round(100 * failed / len(known), 2) if known else None,
        }
    return row


def write_grants(file: Path, sized: Iterable[Sized]) -> None:
    """Write job_id, alloc_mem_mib, alloc_cpus and reason; an amount that is not changed is empty.

    Reasons hold users' names of jobs. A line end in one would begin a new row: CSV writers do not quote a lone
    carriage return.
    """
    rows = [
        (
            job.job_id,
            _changed(job.request.mem_per_node_mib, granted.mem_per_node_mib),
            _changed(job.request.cpus_per_task, granted.cpus_per_task),
            " ".join(reason.split()),
        )
        for job, granted, reason in sized
    ]
    try:
        pandas.DataFrame(rows, columns=list(GRANTED)).to_csv(file, index=False)
    except OSError as error:
        raise _unwritable(file, error.strerror or str(error)) from None


def check_writable(file: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise ModelError if a file cannot be written: before a replay that takes minutes, not after it.

    It must not be one of the inputs either, which would be overwritten.
    """
    # pandas packs a file by its name's ending; for this one it needs another package.
    if file.suffix == ".zst" and find_spec("zstandard") is None:
        raise ModelError(f"cannot write {file}: .zst needs Python's zstandard; give a .csv or .csv.gz file")
    try:
        if is_folder(file):
            raise _unwritable(file, "it is a folder")
        if not is_folder(file.parent):
            raise _unwritable(file, f"the folder {file.parent} does not exist")
        if not os.access(file if is_there(file) else file.parent, os.W_OK):
            raise _unwritable(file, "permission denied")
        if file.is_file() and any(one.exists() and file.samefile(one) for one in inputs):
            raise _unwritable(file, "it is the input file")
    except OSError as error:  # a folder above it is closed
        raise _unwritable(file, error.strerror or str(error)) from None


def _unwritable(file: Path, reason: str) -> ModelError:
    return ModelError(f"cannot write {file}: {reason}; give a file in a folder that you may write")


def _changed(asked: int | None, granted: int | None) -> str:
    return "" if granted is None or granted == asked else str(granted)


def _numbers(table: pandas.DataFrame, name: str, file: Path) -> pandas.Series[Any]:
    told = table[name].str.strip()
    numbers = pandas.to_numeric(told.where(told != "", None), errors="coerce")
    odd = (numbers.isna() & (told != "") & (told.str.lower() != "nan")) | (numbers.abs() > HIGHEST)
    if odd.any():
        row = int(odd.to_numpy().argmax())
        raise _refused(table, row, f"{name} is {told.iloc[row]!r}, which is not a usable number", file)
    return numbers


def _check(table: pandas.DataFrame, file: Path) -> None:
    """Refuse rows that would make a replay mean something else than it says."""
    problems = {
        "job_id occurs twice": table["job_id"].duplicated(),
        "job_id is empty": table["job_id"] == "",
        "submit_time, start or end is missing": table[["submit_time", "start", "end"]].isna().any(axis=1),
        "it ends before it starts, or starts before it is submitted": (
            (table["end"] < table["start"]) | (table["start"] < table["submit_time"])
        ),
        "elapsed_s is missing or negative": ~(table["elapsed_s"] >= 0),
        "a figure is negative": (
            table[["req_mem_mib", "peak_mem_mib", "req_cpus", "used_cores", "input_mib"]] < 0
        ).any(axis=1),
    }
    for problem, rows in problems.items():
        if rows.any():
            raise _refused(table, int(rows.to_numpy().argmax()), problem, file)


def _filled(table: pandas.DataFrame) -> Flags:
    """Return which rows hold anything: below the last one, a spreadsheet may leave rows of commas alone."""
    first, others = table.iloc[:, 0].str.strip(), table.iloc[:, 1:]
    filled: Flags = ((first != "") | (others != "").any(axis=1)).to_numpy()
    return filled


def _refused(table: pandas.DataFrame, row: int, problem: str, file: Path) -> ModelError:
    """Return the error to raise for a row; its line number counts blank lines, and line ends within quotes."""
    texts = table.iloc[:row].select_dtypes(exclude="number")
    within = sum(int(column.str.count("\n").sum()) for _, column in texts.items())
    line = table.index[row] + 2 + within
    return ModelError(f"{file}, line {line}: {problem}; correct or remove that row")


def _job(row: dict[Any, Any]) -> OnlineJob:
    asked_mib, asked_cpus = _whole(row["req_mem_mib"]), _whole(row["req_cpus"])
    return OnlineJob(
        job_id=row["job_id"],
        submit_s=row["submit_time"],
        start_s=row["start"],
        end_s=row["end"],
        request=JobRequest(
            user=row["user"],
            account=row["account"],
            partition=row["partition"],
            job_name=row["job_name"],
            cpus_per_task=asked_cpus,
            mem_per_node_mib=asked_mib,
            wall_s=_whole(row["limit_s"]),
            input_mib=_known(row["input_mib"]),
        ),
        past=PastJob(
            end_s=int(row["end"]),
            num_tasks=1,
            asked_cpus=asked_cpus,
            asked_mem_mib=asked_mib,
            asked_gpus=None,
            complete=True,
            mem_mib=_known(row["peak_mem_mib"]),
            mem_at_least=False,
            cores_per_task=_known(row["used_cores"]),
            wall_s=round(row["elapsed_s"]),
            gpus=None,
            gpu_source="",
            script="",
            input_mib=_known(row["input_mib"]),
        ),
    )


def _whole(value: float) -> int | None:
    """Return an amount that was asked for; None if nothing was asked, or 0 (all there is)."""
    return math.floor(value) if value >= 1 else None


def _known(value: float) -> float | None:
    return value if value > 0 else None
