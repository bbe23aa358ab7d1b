"""What an attempt really used, concluded from sacct's rows. Pure: no clock, no database.

Where each figure comes from, and why it is not simply MaxRSS, is written beside the function that decides it.
"""

from __future__ import annotations

from collections.abc import Sequence

from accounting.client_decisions import ClientDecision
from accounting.records import Attempt, GpuUse, JobRow, Quality, Step, Use
from accounting.states import outcome_of
from accounting.token import asked_request, find_token

# A GPU counts as used from this utilisation on. A context that was opened and never used stays below it.
BUSY_GPU_PCT = 1.0
# Elapsed time has whole seconds: below this many, CPU time over elapsed time is mostly rounding error.
MIN_SECONDS_FOR_CORES = 2


def label_attempt(
    row: JobRow,
    steps: Sequence[Step],
    gpu_use: Sequence[GpuUse] = (),
    by_client: ClientDecision | None = None,
) -> Attempt:
    """Join sacct's job row, its steps, our token and the GPU samples into one attempt.

    `by_client` is what its client asked for at first, and was given less before it submitted: slurmctld and the token
    saw only what was left.
    """
    token = find_token(row.admin_comment)
    asked = asked_request(token, row.user) if token else None
    decision_id, signature = (token.decision_id, token.signature) if token else ("", "")
    if by_client is not None:
        asked = by_client.request
        decision_id, signature = by_client.id, asked.script_signature
    started = max((step.tasks for step in steps if step.step_id.isdigit()), default=1)
    num_tasks = asked.num_tasks if asked else started
    return Attempt(
        row=row,
        num_tasks=num_tasks,
        asked_cpus=asked.cpus if asked else row.req_cpus,
        asked_mem_mib=asked.mem_mib if asked and asked.mem_mib is not None else row.req_mem_mib,
        asked_gpus=asked.gpus if asked and asked.gpus is not None else row.req_gpus,
        decision_id=decision_id,
        script_signature=signature,
        use=measure_use(row, steps, num_tasks, gpu_use),
    )


def measure_use(row: JobRow, steps: Sequence[Step], num_tasks: int, gpu_use: Sequence[GpuUse] = ()) -> Use:
    """Return what the attempt used.

    A job that was killed for memory needed at least what it had: sacct may show 0 for it, because the kill came
    between two samples. Such a label is `censored`, a lower bound.
    """
    outcome = outcome_of(row.state)
    if outcome == "cut_short" and any(outcome_of(step.state) == "out_of_memory" for step in steps):
        outcome = "out_of_memory"
    peak_mem_mib = peak_memory_mib(steps)
    quality: Quality = "absent" if peak_mem_mib is None else "sampled"
    least_mib = max(peak_mem_mib or 0.0, float(row.alloc_mem_mib or 0))
    if outcome == "out_of_memory" and least_mib:
        peak_mem_mib, quality = least_mib, "censored"
    cores = busy_cores(steps, row.elapsed_s)
    gpus, gpu_source = gpus_used(gpu_use)
    return Use(
        outcome=outcome,
        peak_mem_mib=peak_mem_mib,
        memory_quality=quality,
        cores=cores,
        cores_per_task=None if cores is None else max(cores / num_tasks, busiest_task_cores(steps)),
        wall_s=row.elapsed_s,
        gpus=gpus,
        gpu_source=gpu_source,
    )


def peak_memory_mib(steps: Sequence[Step]) -> float | None:
    """Return the highest sum of peaks over steps that ran at the same time, in MiB; None where none was sampled.

    The job row carries no memory. Steps in sequence do not add up, concurrent ones do, and within a step
    MaxRSS is one task's peak while the job's limit covers all of them.
    """
    measured = [(step, memory) for step in steps if (memory := step_memory_mib(step)) is not None]
    if not any(memory for _, memory in measured):
        return None
    return max(
        sum(other_mib for other, other_mib in measured if _runs_at(other, step.start_s))
        for step, _ in measured
    )


def _runs_at(step: Step, time_s: int) -> bool:
    """Whether a step ran at a moment; sacct knows no end (0) of one that was cut off with its node."""
    return step.start_s <= time_s and (time_s <= step.end_s or step.end_s < step.start_s)


def step_memory_mib(step: Step) -> float | None:
    """Return the memory of all tasks of a step in MiB; None where Slurm recorded none."""
    recorded = [value for value in (step.mem_total_mib, step.mem_max_task_mib) if value is not None]
    return max(recorded, default=None)


def busy_cores(steps: Sequence[Step], elapsed_s: int) -> float | None:
    """Return the mean number of busy cores: CPU time of all steps over the job's elapsed time."""
    recorded = [step.cpu_s for step in steps if step.cpu_s is not None]
    if not recorded or elapsed_s < MIN_SECONDS_FOR_CORES:
        return None
    return sum(recorded) / elapsed_s


def busiest_task_cores(steps: Sequence[Step]) -> float:
    """Return the mean number of busy cores of the busiest task that srun started; 0 where there was none.

    The batch step is left out: it is one task to Slurm, whatever an MPI launcher started inside it.
    """
    return max(
        (
            step.cpu_max_task_s / (step.end_s - step.start_s)
            for step in steps
            if step.step_id.isdigit()
            and step.cpu_max_task_s is not None
            and step.end_s - step.start_s >= MIN_SECONDS_FOR_CORES
        ),
        default=0.0,
    )


def gpus_used(gpu_use: Sequence[GpuUse]) -> tuple[int | None, str]:
    """Return how many GPUs were ever busy, over all nodes, and the source of the samples; None without samples."""
    if not gpu_use:
        return None, ""
    # A GPU comes more than once where its meter paused, or where two meters watch it.
    busy = {(use.node, use.gpu) for use in gpu_use if (use.util_max_pct or 0.0) >= BUSY_GPU_PCT}
    return len(busy), "+".join(sorted({use.source for use in gpu_use}))
