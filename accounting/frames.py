"""Records in columns: what every reader produces, and what labels are computed from.

A reader (sacct, a dump, slurmdbd's database) yields Records of bounded size. The columns of jobs are the fields
of JobRow in accounting/records.py, in the same units; None becomes null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from accounting.records import Attempt, JobRow, Quarantined, Use

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Texts = NDArray[np.object_]
Flags = NDArray[np.bool_]
Part = TypeVar("Part", JobRow, Use)

# One row per attempt that has ended. `energy_j` is Slurm's own figure for the whole job, `tasks` the number
# that the job asked for; null if not recorded. `digest` is of the record as it was read; null if the record
# must not be skipped when it is read again.
JOBS = pa.schema(
    [
        ("cluster", pa.string()),
        ("job_id", pa.int64()),
        ("display_id", pa.string()),
        ("user", pa.string()),
        ("account", pa.string()),
        ("partition", pa.string()),
        ("qos", pa.string()),
        ("job_name", pa.string()),
        ("comment", pa.string()),
        ("admin_comment", pa.string()),
        ("state", pa.string()),
        ("submit_s", pa.int64()),
        ("start_s", pa.int64()),
        ("end_s", pa.int64()),
        ("elapsed_s", pa.int64()),
        ("limit_s", pa.int64()),
        ("nodes", pa.int64()),
        ("tasks", pa.int64()),
        ("req_cpus", pa.int64()),
        ("req_mem_mib", pa.int64()),
        ("req_gpus", pa.int64()),
        ("alloc_cpus", pa.int64()),
        ("alloc_mem_mib", pa.int64()),
        ("alloc_gpus", pa.int64()),
        ("energy_j", pa.float64()),
        ("slurm_release", pa.string()),
        ("gather", pa.string()),
        ("digest", pa.int64()),
    ]
)

# `job` is the attempt's row in the jobs of the same Records, counted from 0; steps are in the order of their jobs.
# Times are unix seconds; null means not recorded. `mem_max_task_mib` is the peak of the largest task (MaxRSS),
# `mem_total_mib` the sum over all tasks. `gpu_util_pct` is that of the busiest task; GPU memory, data read and written,
# and energy are sums over all tasks. `alloc_*` is the step's share of its job (AllocTRES), on all its nodes.
STEPS = pa.schema(
    [
        ("job", pa.int64()),
        ("step_id", pa.string()),
        ("state", pa.string()),
        ("start_s", pa.int64()),
        ("end_s", pa.int64()),
        ("tasks", pa.int64()),
        ("nodes", pa.int64()),
        ("mem_max_task_mib", pa.float64()),
        ("mem_total_mib", pa.float64()),
        ("cpu_s", pa.float64()),
        ("cpu_max_task_s", pa.float64()),
        ("gpu_util_pct", pa.float64()),
        ("gpu_mem_mib", pa.float64()),
        ("read_mib", pa.float64()),
        ("written_mib", pa.float64()),
        ("energy_j", pa.float64()),
        ("alloc_cpus", pa.int64()),
        ("alloc_mem_mib", pa.int64()),
    ]
)


# The same columns as the store's table of attempts (accounting/store/schema.py).
ATTEMPTS = pa.schema(
    [
        *(
            JOBS.field(name)
            for name in (
                "cluster", "job_id", "submit_s", "start_s", "end_s", "elapsed_s", "display_id", "user", "account",
                "partition", "qos", "job_name", "comment", "admin_comment", "state", "limit_s", "nodes", "req_cpus",
                "req_mem_mib", "req_gpus", "alloc_cpus", "alloc_mem_mib", "alloc_gpus",
            )
        ),
        ("num_tasks", pa.int64()),
        ("asked_cpus", pa.int64()),
        ("asked_mem_mib", pa.int64()),
        ("asked_gpus", pa.int64()),
        ("decision_id", pa.string()),
        ("script_signature", pa.string()),
        ("outcome", pa.string()),
        ("peak_mem_mib", pa.float64()),
        ("peak_node_mib", pa.float64()),
        ("memory_quality", pa.string()),
        ("cores", pa.float64()),
        ("cores_per_task", pa.float64()),
        ("cores_quality", pa.string()),
        ("wall_s", pa.int64()),
        ("wall_quality", pa.string()),
        ("gpus", pa.int64()),
        ("gpu_mem_mib", pa.float64()),
        ("gpu_quality", pa.string()),
        ("gpu_source", pa.string()),
        ("read_mib", pa.float64()),
        ("written_mib", pa.float64()),
        ("io_quality", pa.string()),
        ("energy_j", pa.float64()),
        ("energy_quality", pa.string()),
        ("slurm_release", pa.string()),
        ("gather", pa.string()),
        ("record_digest", pa.int64()),
        ("input_mib", pa.float64()),
        ("step_cpus", pa.int64()),
        ("step_mem_mib", pa.int64()),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Records:
    """Ended attempts with their steps, in columns; rejected input; the number of jobs that have not ended yet.

    `known` counts attempts left out because the store already has them in this form. `cut_off` says how the file
    ends too soon; '' if it does not.
    """

    jobs: pa.Table
    steps: pa.Table
    quarantined: tuple[Quarantined, ...] = ()
    unfinished: int = 0
    known: int = 0
    missing: tuple[str, ...] = field(default=())  # columns that the input lacks, with what that costs
    cut_off: str = ""


def flagged(jobs: pa.Table, steps: pa.Table, flags: Flags) -> tuple[pa.Table, pa.Table]:
    """Return the flagged rows of JOBS, with their STEPS renumbered to match."""
    place = np.cumsum(flags) - 1
    of_them = steps.filter(pa.array(flags[steps["job"].to_numpy()])) if len(steps) else steps
    moved = pa.array(place[of_them["job"].to_numpy()], pa.int64())
    return jobs.filter(pa.array(flags)), of_them.set_column(0, STEPS.field("job"), moved)


def attempts_in(table: pa.Table) -> list[Attempt]:
    """Return the rows of an ATTEMPTS table."""
    return [attempt_of(row) for row in table.to_pylist()]


def attempt_of(row: Mapping[str, Any]) -> Attempt:
    """Return one row of an ATTEMPTS table."""
    own = [name for name in Attempt.__struct_fields__ if name not in ("row", "use")]
    return Attempt(row=_part(JobRow, row), use=_part(Use, row), **{name: row[name] for name in own})


def job_row_of(jobs: pa.Table, row: int) -> JobRow:
    """Return one row of a JOBS table."""
    [found] = job_rows(jobs.slice(row, 1))
    return found


def job_rows(jobs: pa.Table) -> Iterator[JobRow]:
    """Yield the rows of a JOBS table."""
    return (_part(JobRow, fields) for fields in jobs.to_pylist())


def _part(kind: type[Part], row: Mapping[str, Any]) -> Part:
    return kind(**{name: row[name] for name in kind.__struct_fields__})


def by_value(texts: pa.ChunkedArray, function: Callable[[str], object]) -> Texts:
    """Apply a function to a column, once for each distinct text."""
    encoded = pc.dictionary_encode(texts).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # a column without chunks
        return np.empty(0, dtype=object)
    answers = np.array([function(text) for text in encoded.dictionary.to_pylist()], dtype=object)
    return answers[encoded.indices.to_numpy()] if len(answers) else np.empty(0, dtype=object)


def ints(column: pa.ChunkedArray) -> Ints:
    """Return whole numbers as an array, 0 for null."""
    numbers: Ints = pc.fill_null(column, 0).to_numpy().astype(np.int64, copy=False)
    return numbers


def floats(column: pa.ChunkedArray) -> Floats:
    """Return numbers as an array, NaN for null."""
    numbers: Floats = column.cast(pa.float64()).to_numpy().astype(np.float64)
    return numbers


def table_of(columns: Mapping[str, object], schema: pa.Schema) -> pa.Table:
    """Build a table from columns (Arrow, NumPy or plain values); columns not in the schema are left out."""
    return pa.Table.from_arrays([_array(columns[of.name], of.type) for of in schema], schema=schema)


def _array(column: object, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column.cast(kind)
    if isinstance(column, np.ndarray) and column.dtype == np.float64:
        return pa.array(column, from_pandas=True).cast(kind)  # NaN becomes null
    return pa.array(column, kind)
