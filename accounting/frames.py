"""Records as columns, in bulk: what every reader hands over, and what labels are concluded from.

A reader (sacct, a dump, slurmdbd's database) yields Records of bounded size. The columns are the fields of JobRow and
Step in accounting/records.py, in their units; null is None there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from accounting.records import Quarantined

# One row an attempt that has ended. `energy_j` is Slurm's own figure for the whole job, `tasks` what the job asked for:
# null where the record does not tell. `digest` is of the record as it was read; null where it is not to be skipped
# when it is read again.
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

# `job` is the row of its attempt in the jobs of the same Records, counted from 0; steps are in the order of their jobs.
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
    ]
)


@dataclass(frozen=True)
class Records:
    """Ended attempts with their steps, in columns; input that was not taken; how many jobs have not ended yet."""

    jobs: pa.Table
    steps: pa.Table
    quarantined: tuple[Quarantined, ...] = ()
    unfinished: int = 0
    missing: tuple[str, ...] = field(default=())  # columns that the input lacks, with what that costs
