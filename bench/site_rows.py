"""Rows of the store as a busy site's accounting would give them: seeded, in columns, made in chunks. Pure.

Families of jobs recur with their own needs, users and names, as real ones do; a quarter of the jobs carry our
token, one in fifty was cut off at a limit, one in ten used GPUs. A chunk is a span of time: jobs are in the order
of their ids and submissions, but not of their ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]

T0 = 1_700_000_000
FAMILIES, USERS = 3_000, 400
USER_NAMES = tuple(f"user{number:03d}" for number in range(USERS))
JOB_NAMES = tuple(f"stage-{number % 40}_{number:04x} α={number % 9}" for number in range(FAMILIES))
SIGNATURES = tuple(f"{number * 2654435761 % 2**48:012x}" for number in range(FAMILIES))
MEAN_GAP_S = 15.0
STATES = ("COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED by 1207")
OUTCOMES = ("completed", "cut_short", "out_of_memory", "timeout", "cut_short")
STATE_SHARES = (0.86, 0.08, 0.01, 0.01, 0.04)
MEMORY_QUALITIES = ("sampled", "sampled", "censored", "sampled", "sampled")


def chunk(number: int, each: int) -> tuple[pa.Table, pa.Table]:
    """Return (attempts, steps) of the `number`th `each` jobs, two steps per job; the same each time."""
    return _chunk(number * each + 1, each, np.random.default_rng((4, number)))


def _chunk(first_id: int, jobs: int, draw: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    family = draw.zipf(1.3, jobs) % FAMILIES
    job_id = np.arange(first_id, first_id + jobs)
    submit_s = T0 + (job_id * MEAN_GAP_S).astype(np.int64)
    start_s = submit_s + draw.exponential(900, jobs).astype(np.int64)
    wall_s = 1 + draw.lognormal(6.0 + (family % 7) / 3, 1.0, jobs).astype(np.int64)
    state = draw.choice(len(STATES), jobs, p=STATE_SHARES)
    base: dict[str, Any] = {
        "cluster": _repeated(("alpha",), np.zeros(jobs, np.int64)),
        "job_id": job_id,
        "submit_s": submit_s,
        "start_s": start_s,
        "end_s": start_s + wall_s,
        "elapsed_s": wall_s,
        "state": _repeated(STATES, state),
        "wall_s": wall_s,
    }
    attempts = pa.table({**base, **_texts(job_id, family, draw), **_figures(family, state, wall_s, draw)})
    return attempts, _steps(attempts, draw)


def _repeated(words: tuple[str, ...], which: Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(which), pa.array(words)).cast(pa.string())


def _texts(job_id: Array, family: Array, draw: np.random.Generator) -> dict[str, Any]:
    jobs = len(job_id)
    ours = draw.random(jobs) < 0.25
    ids = [
        f"{value:012x}" if has else "" for value, has in zip(draw.integers(0, 2**48, jobs), ours, strict=True)
    ]
    word = (
        "rightsizer/1;id={};mode=enforce;why=resized;asked=cpus:8,mem:8000;granted=cpus:2,mem:1024;model=m3"
    )
    empty = np.zeros(jobs, np.int64)
    return {
        "display_id": [
            str(value) if value % 5 else f"{value - value % 500}_{value % 500}" for value in job_id.tolist()
        ],
        "user": _repeated(USER_NAMES, family % USERS),
        "account": _repeated(("phys", "chem", "bio", "geo"), family % 4),
        "partition": _repeated(("main", "long", "gpu"), family % 3),
        "qos": _repeated(("normal", "high"), family % 2),
        "job_name": _repeated(JOB_NAMES, family),
        "comment": _repeated(("",), empty),
        "admin_comment": [word.format(value) if value else "" for value in ids],
        "decision_id": ids,
        "script_signature": _repeated(SIGNATURES, family),
        "slurm_release": _repeated(("24.11",), empty),
        "gather": _repeated(("jobacct_gather/cgroup cgroup/v2",), empty),
        "gpu_source": _repeated(("", "tres"), (family % 10 == 0).astype(np.int64)),
        "gpu_quality": _repeated(("absent", "sampled"), (family % 10 == 0).astype(np.int64)),
        "wall_quality": _repeated(("exact",), empty),
        "cores_quality": _repeated(("exact",), empty),
        "io_quality": _repeated(("sampled",), empty),
        "energy_quality": _repeated(("absent",), empty),
        # As at a site that has not enabled it.
        "input_mib": pa.nulls(jobs, pa.float64()),
        "record_digest": draw.integers(-(2**63), 2**63 - 1, jobs),
    }


def _figures(family: Array, state: Array, wall_s: Array, draw: np.random.Generator) -> dict[str, Any]:
    jobs = len(family)
    cpus = 1 << (family % 6)
    mem_mib = cpus * 2000
    gpus = np.where(family % 10 == 0, 1 + family % 4, 0)
    without = gpus == 0
    cores = cpus * draw.beta(2, 3, jobs)
    peak_mib = np.minimum(mem_mib, mem_mib * draw.beta(2, 5, jobs))
    return {
        "limit_s": 3600 * (1 + family % 48),
        "nodes": 1 + (family % 50 == 0),
        "req_cpus": cpus,
        "req_mem_mib": mem_mib,
        "req_gpus": pa.array(gpus, mask=without),
        "alloc_cpus": cpus,
        "alloc_mem_mib": mem_mib,
        "alloc_gpus": pa.array(gpus, mask=without),
        "num_tasks": 1 + family % 3,
        "asked_cpus": cpus,
        "asked_mem_mib": mem_mib,
        "asked_gpus": pa.array(gpus, mask=without),
        "outcome": _repeated(OUTCOMES, state),
        "peak_mem_mib": pa.array(peak_mib, mask=wall_s < 30),
        "peak_node_mib": pa.array(peak_mib, mask=wall_s < 30),
        "memory_quality": _repeated(MEMORY_QUALITIES, state),
        "cores": cores,
        "cores_per_task": cores / (1 + family % 3),
        "gpus": pa.array(gpus, mask=without),
        "gpu_mem_mib": pa.array(gpus * 11000.5, mask=without),
        "read_mib": draw.exponential(300.0, jobs),
        "written_mib": draw.exponential(80.0, jobs),
        "energy_j": pa.nulls(jobs, pa.float64()),
        # As of jobs none of whose steps asked for a part of its job.
        "step_cpus": pa.nulls(jobs, pa.int32()),
        "step_mem_mib": pa.nulls(jobs, pa.int64()),
    }


def _steps(attempts: pa.Table, draw: np.random.Generator) -> pa.Table:
    """Return two steps per attempt: `batch`, and `0` that it started."""
    twice = np.repeat(np.arange(attempts.num_rows), 2)
    rows = len(twice)
    first = np.arange(rows) % 2
    of = attempts.select(
        ["cluster", "job_id", "submit_s", "start_s", "end_s", "state", "num_tasks", "nodes"]
    ).take(pa.array(twice))
    memory_mib = draw.lognormal(6.0, 1.5, rows)
    cpu_s = draw.lognormal(5.0, 1.5, rows)
    unseen = draw.random(rows) < 0.05
    return pa.table(
        {
            "cluster": of["cluster"],
            "job_id": of["job_id"],
            "submit_s": of["submit_s"],
            "attempt_start_s": of["start_s"],
            "step_id": _repeated(("batch", "0"), first),
            "state": of["state"],
            "start_s": of["start_s"],
            "end_s": of["end_s"],
            "tasks": of["num_tasks"],
            "mem_max_task_mib": pa.array(memory_mib, mask=unseen),
            "mem_total_mib": pa.array(memory_mib * 1.5, mask=unseen),
            "cpu_s": cpu_s,
            "cpu_max_task_s": cpu_s / 2,
            "nodes": of["nodes"],
            "gpu_util_pct": pa.nulls(rows, pa.float64()),
            "gpu_mem_mib": pa.nulls(rows, pa.float64()),
            "read_mib": draw.exponential(300.0, rows),
            "written_mib": draw.exponential(80.0, rows),
            "energy_j": pa.nulls(rows, pa.float64()),
            "alloc_cpus": pa.nulls(rows, pa.int32()),
            "alloc_mem_mib": pa.nulls(rows, pa.int64()),
        }
    )
