"""Rows of accounting as this project keeps them: attempts at running a job, and their steps."""

from __future__ import annotations

from typing import Literal

import msgspec

from accounting.states import Outcome

MemoryQuality = Literal["sampled", "censored", "absent"]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of an attempt. Memory is MiB, times are unix seconds, CPU time is seconds; None = not recorded.

    `mem_max_task_mib` is the peak of the largest task (MaxRSS), `mem_total_mib` the sum over all tasks.
    """

    step_id: str
    state: str
    start_s: int
    end_s: int
    tasks: int
    mem_max_task_mib: float | None
    mem_total_mib: float | None
    cpu_s: float | None
    cpu_max_task_s: float | None


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """sacct's own row of an attempt, before anything is concluded from it.

    `start_s` is 0 where it never started. `req_*` is ReqTRES, which is what was left after our own rewrite;
    `alloc_*` is AllocTRES. Both are totals of the job; memory is MiB.
    """

    cluster: str
    job_id: int
    display_id: str
    user: str
    account: str
    partition: str
    qos: str
    job_name: str
    comment: str
    admin_comment: str
    state: str
    submit_s: int
    start_s: int
    end_s: int
    elapsed_s: int
    limit_s: int | None
    nodes: int
    req_cpus: int | None
    req_mem_mib: int | None
    req_gpus: int | None
    alloc_cpus: int | None
    alloc_mem_mib: int | None
    alloc_gpus: int | None


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt really used, and how far the figures can be trusted.

    `peak_mem_mib` is the job's peak in MiB, a lower bound where `memory_quality` is `censored`. `cores` is the
    mean number of busy cores while it ran, `cores_per_task` the same for its busiest task. None = not known.
    """

    outcome: Outcome
    peak_mem_mib: float | None
    memory_quality: MemoryQuality
    cores: float | None
    cores_per_task: float | None
    wall_s: int
    gpus: int | None = None
    gpu_source: str = ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at running a job: sacct's row, the original request where our token tells it, and its use.

    `asked_*` are totals of the job as its user asked for them, before any rewrite of ours.
    """

    row: JobRow
    num_tasks: int
    asked_cpus: int | None
    asked_mem_mib: int | None
    asked_gpus: int | None
    decision_id: str
    script_signature: str
    use: Use


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU did for one job on one node, over all samples of one source."""

    job_id: int
    node: str
    gpu: int
    source: str
    samples: int
    first_s: int
    last_s: int
    util_max_pct: float
    util_mean_pct: float
    mem_max_mib: float


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A line of input that was not taken, and why."""

    line: str
    reason: str
