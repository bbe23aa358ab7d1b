"""Labels attempts, many at once: what they really used and what was requested, from their records. Pure: no clock.

records     → what Slurm recorded of each attempt and its steps (accounting/frames.py)
the request → as the user made it: from our token or a client's decision; else Slurm's own, which is after any rewrite
the use     → summed up from the steps (accounting/labels/usage.py), and GPUs from whatever metered them
quality     → how far each figure can be trusted (accounting/labels/quality.py)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.decisions.by_clients import ClientDecision
from accounting.decisions.originals import asked_first
from accounting.frames import (
    ATTEMPTS,
    JOBS,
    Flags,
    Floats,
    Ints,
    Records,
    Texts,
    by_value,
    floats,
    ints,
    table_of,
)
from accounting.labels import quality, shared_out, usage
from accounting.labels.gpus import SLURM, metered_gpus, recorded_gpus
from accounting.records import GpuUse
from accounting.states import is_failed_node, outcome_of

Columns = dict[str, Any]


def label(
    records: Records,
    gpu_use: Mapping[int, Sequence[GpuUse]] | None = None,
    by_client: Mapping[int, ClientDecision] | None = None,
    sampled_every_s: int = quality.SAMPLED_EVERY_S,
) -> pa.Table:
    """Return attempts (schema ATTEMPTS), one per row of the records' jobs.

    `gpu_use` is by job id, which recurs after a requeue and in other clusters: each attempt gets the use that falls
    into its time, on its cluster. `by_client` is by row: what the client first requested before it lowered the request
    itself, so that slurmctld and the token saw only the rest. `sampled_every_s` is Slurm's JobAcctGatherFrequency.
    """
    jobs, elapsed_s, count = records.jobs, ints(records.jobs["elapsed_s"]), len(records.jobs)
    steps = _steps(records.steps, elapsed_s)
    outcome = _outcomes(jobs, steps, count)
    asked = asked_first(jobs, _tasks(jobs, steps), by_client or {})
    killed = _with_step(steps, steps["outcome"] == "out_of_memory", count)
    # MaxRSS is one task's peak; the sum over tasks is at least that.
    memory_mib = np.fmax(steps["mem_total_mib"], steps["mem_max_task_mib"])
    peak_mib = usage.peak_at_once(steps["job"], steps["start_s"], steps["end_s"], memory_mib, count)
    over = _killed_over(jobs, peak_mib)
    outcome[over & (outcome == "cut_short")] = "out_of_memory"
    went_on = np.isin(outcome, ("completed", "timeout"))
    outcome[(killed | over) & _cut(jobs, asked) & went_on] = "out_of_memory"
    started = _started(jobs, steps) & ~_only_closed(jobs, steps, memory_mib)
    lost = _lost_use(steps, memory_mib, sampled_every_s, count)
    use: Columns = {
        "outcome": outcome,
        **_memory(jobs, steps, memory_mib, peak_mib, outcome, killed | over, lost, sampled_every_s),
        **_cores(jobs, steps, memory_mib, asked["num_tasks"], lost),
        "wall_s": elapsed_s,
        "wall_quality": quality.wall_quality(outcome, started),
        **_gpus(jobs, steps, gpu_use or {}, lost),
        **_input_output(steps, elapsed_s, count, sampled_every_s),
        **_energy(jobs, steps, elapsed_s, count),
        **_shared_out(jobs, steps, asked),
    }
    for name in ("memory_quality", "cores_quality", "io_quality"):
        use[name][~started] = "absent"  # nothing ran that could have been too short
    kept = {name: jobs[name] for name in ATTEMPTS.names if name in JOBS.names}
    # The store, which ingest asks, has the input size that the job's decision saw.
    later = {"record_digest": jobs["digest"], "input_mib": pa.nulls(len(jobs), pa.float64())}
    return table_of({**kept, **asked, **use, **later}, ATTEMPTS)


def _started(jobs: pa.Table, steps: Columns) -> Flags:
    """Return which attempts ever ran: Slurm shows a job cancelled while pending as started at that moment.

    If the node failed during the run, a step is left. Without a step, the job had waited for a node that was
    powered up for it and did not come up; Slurm counts that time as elapsed (seen on 22.05 and 24.11).
    """
    with_steps = np.zeros(len(jobs), dtype=bool)
    with_steps[steps["job"]] = True
    elapsed = (ints(jobs["elapsed_s"]) > 0) & ~_failed_node(jobs)
    ran: Flags = (ints(jobs["start_s"]) > 0) & (with_steps | elapsed)
    return ran


def _only_closed(jobs: pa.Table, steps: Columns, memory_mib: Floats) -> Flags:
    """Flag records that were only closed by hand: COMPLETED after 0 s, which their steps do not bear out.

    `sacctmgr show runawayjobs` closes jobs whose end never reached slurmdbd: their end is their start then, however
    long they ran (22.05; 24.11 and 26.05 hold the same statement). Their steps have no figure, as any has of a job
    that did end within a second, or one that had ended before shows that it ran for longer.
    """
    count = len(jobs)
    ended_at_once = (ints(jobs["elapsed_s"]) == 0) & (by_value(jobs["state"], str) == "COMPLETED")
    measured = by_value(jobs["gather"], lambda gather: "jobacct_gather/none" not in gather).astype(bool)
    known = _with_step(steps, (steps["cpu_s"] > 0) | ~np.isnan(memory_mib), count)
    nothing = measured & _with_step(steps, steps["cpu_s"] == 0, count) & ~known
    ran_on = _with_step(steps, steps["end_s"] - steps["start_s"] > usage.LATE_STEP_S, count)
    flags: Flags = ended_at_once & (nothing | ran_on)
    return flags


def _failed_node(jobs: pa.Table) -> Flags:
    failed: Flags = by_value(jobs["state"], is_failed_node).astype(bool)
    return failed


def _tasks(jobs: pa.Table, steps: Columns) -> Ints:
    """Return the number of tasks: that of the largest step, else the number requested, else one."""
    started = usage.maxima(steps["job"], np.where(steps["by_srun"], steps["tasks"], np.nan), len(jobs))
    told = np.nan_to_num(np.fmax(floats(jobs["tasks"]), 1), nan=1)
    return np.where(np.isnan(started), told, started).astype(np.int64)


def _outcomes(jobs: pa.Table, steps: Columns, count: int) -> Texts:
    """Return how attempts ended. A failed attempt with a step killed for memory counts as killed for memory."""
    outcome = by_value(jobs["state"], outcome_of)
    outcome[_with_step(steps, steps["outcome"] == "out_of_memory", count) & (outcome == "cut_short")] = (
        "out_of_memory"
    )
    return outcome


def _cut(jobs: pa.Table, asked: Columns) -> Flags:
    """Return which attempts had less memory than their user requested, according to a decision of ours.

    A script that continues after its srun was killed counts as COMPLETED in Slurm (`srun work; echo done`), and one
    that waits for a killed process until its time is over as TIMEOUT (Python's multiprocessing.Pool), but it was our
    limit that killed. If a job had all that it requested, its script may have given the killed step less.
    """
    had_mib = floats(jobs["alloc_mem_mib"])
    flags: Flags = (asked["decision_id"] != "") & (had_mib > 0) & (had_mib < asked["asked_mem_mib"])
    return flags


def _with_step(steps: Columns, flagged: Flags, count: int) -> Flags:
    """Flag the attempts that have a flagged step."""
    flags = np.zeros(count, dtype=bool)
    flags[steps["job"][flagged]] = True
    return flags


def _lost_use(steps: Columns, memory_mib: Floats, sampled_every_s: int, count: int) -> Flags:
    """Flag measured attempts with a step that ran for longer than one interval, and of which there is no figure.

    Its slurmstepd was killed, or what it reported never reached slurmdbd. Seen on 22.05 and 26.05: a step's slurmstepd
    was killed, as the kernel does if memory is short; the job waited for its time limit, and the 4 MiB of its batch
    script were the only figure.
    """
    ran_on = (steps["ran_s"] < 0) | (steps["ran_s"] > sampled_every_s)
    unknown = np.isnan(memory_mib) & ~(steps["cpu_s"] > 0)
    flags: Flags = _with_step(steps, unknown & ran_on & ~steps["extern"], count)
    return flags & _with_step(steps, ~np.isnan(memory_mib), count)


def _killed_over(jobs: pa.Table, peak_mib: Floats) -> Flags:
    """Flag attempts with a step that slurmd killed for its measured memory: their state is then FAILED or COMPLETED."""
    kills = by_value(jobs["gather"], quality.kills_over_memory).astype(bool)
    limit_mib = floats(jobs["alloc_mem_mib"])
    flags: Flags = kills & (limit_mib > 0) & (peak_mib > limit_mib)
    return flags


def _memory(
    jobs: pa.Table,
    steps: Columns,
    memory_mib: Floats,
    peak_mib: Floats,
    outcome: Texts,
    with_kill: Flags,
    lost: Flags,
    sampled_every_s: int,
) -> Columns:
    """Return memory peaks. A job that was killed for memory needed at least what it had.

    `with_kill` flags attempts with a step that was killed for memory: the attempt may survive, and the step needed more
    than its limit, which is unknown. Slurm may record 0 for a killed job, because the kill came between two samples.
    `lost` flags attempts with a step of which there is no figure: those of the others are no more than a bound.
    """
    count, nodes = len(jobs), np.maximum(ints(jobs["nodes"]), 1)
    node_mib = usage.step_node_mib(memory_mib, steps["mem_max_task_mib"], steps["tasks"], steps["nodes"])
    when = (steps["job"], steps["start_s"], steps["end_s"])
    peak_node_mib = usage.peak_at_once(*when, node_mib, count)
    killed, limit_mib = outcome == "out_of_memory", floats(jobs["alloc_mem_mib"])
    peak_mib = _at_least(peak_mib, limit_mib, killed)
    meters = _meters(jobs)
    brief_share = usage.brief_share(steps["job"], steps["ran_s"], steps["cpu_s"], sampled_every_s, count)
    return {
        "peak_mem_mib": peak_mib,
        "peak_node_mib": _at_least(np.fmin(peak_node_mib, peak_mib), limit_mib / nodes, killed),
        "memory_quality": quality.memory_quality(
            peak_mib,
            limit_mib,
            killed | with_kill | _loses_tasks(jobs, steps, meters),
            by_value(meters, lambda meter: quality.counts_cache(*meter.split("\n"))).astype(bool),
            by_value(meters, lambda meter: quality.knows_peak(*meter.split("\n"))).astype(bool) & ~lost,
            quality.seen_once(ints(jobs["elapsed_s"]), brief_share, sampled_every_s)
            | (lost & ~np.isnan(peak_mib)),
        ),
    }


def _loses_tasks(jobs: pa.Table, steps: Columns, meters: pa.ChunkedArray) -> Flags:
    """Flag attempts whose memory Slurm counted only in part: of tasks on several nodes, or of a later component."""
    loses = by_value(meters, lambda meter: quality.loses_tasks(*meter.split("\n"))).astype(bool)
    later = pc.match_substring_regex(jobs["display_id"], r"\+[1-9]").to_numpy().astype(bool)
    parted = _with_step(steps, (steps["nodes"] > 1) | steps["later"], len(jobs)) | later
    flags: Flags = loses & parted
    return flags


def _at_least(peak_mib: Floats, limit_mib: Floats, killed: Flags) -> Floats:
    """Raise the peaks of killed jobs to their limits; without a limit, the peak stays as it is."""
    return np.where(killed & (limit_mib > 0), np.fmax(peak_mib, limit_mib), peak_mib)


def _meters(jobs: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(jobs["slurm_release"], jobs["gather"], "\n")


def _cores(jobs: pa.Table, steps: Columns, memory_mib: Floats, num_tasks: Ints, lost: Flags) -> Columns:
    """Return busy cores. If nothing was gathered, sacct shows a CPU time of 0: that means not known.

    A job that only slept still shows its memory, and a millisecond or two. Seen on 22.05, with jobacct_gather/none.
    `lost` flags attempts with a step of which there is no figure.
    """
    count, elapsed_s = len(jobs), ints(jobs["elapsed_s"])
    gathered = _with_step(steps, (steps["cpu_s"] > 0) | ~np.isnan(memory_mib), count)
    cpu_s = np.where(gathered & ~lost, usage.sums(steps["job"], steps["cpu_s"], count), np.nan)
    cores = usage.busy_cores(cpu_s, elapsed_s)
    busiest = usage.busiest_task_cores(
        steps["job"], steps["cpu_max_task_s"], steps["ran_s"], steps["by_srun"], count
    )
    return {
        "cores": cores,
        "cores_per_task": np.where(np.isnan(cores), np.nan, np.maximum(cores / num_tasks, busiest)),
        "cores_quality": quality.cores_quality(
            cores, elapsed_s, _failed_node(jobs), usage.MIN_SECONDS_FOR_CORES
        ),
    }


def _gpus(jobs: pa.Table, steps: Columns, gpu_use: Mapping[int, Sequence[GpuUse]], lost: Flags) -> Columns:
    """Return the GPUs that were busy, from whatever metered them (accounting/labels/gpus.py).

    Slurm's own figures say nothing of attempts with a step of which there are none (`lost`).
    """
    count = len(jobs)
    recorded = recorded_gpus(
        floats(jobs["alloc_gpus"]),
        np.where(lost, np.nan, usage.maxima(steps["job"], steps["gpu_util_pct"], count)),
        usage.maxima(steps["job"], steps["gpu_mem_mib"], count),
    )
    known = ~np.isnan(recorded.gpus) | ~np.isnan(recorded.gpu_mem_mib)
    columns: Columns = {
        "gpus": recorded.gpus,
        "gpu_mem_mib": recorded.gpu_mem_mib,
        "gpu_source": np.where(known, SLURM, "").astype(object),
        "gpu_quality": quality.sampled_quality(known, ints(jobs["elapsed_s"])),
    }
    for row in _rows_of(jobs["job_id"], gpu_use):
        metered = _during(jobs, row, gpu_use)
        if metered:
            label = metered_gpus(
                metered, *(jobs[name][row].as_py() for name in ("nodes", "start_s", "end_s"))
            )
            columns["gpus"][row], columns["gpu_mem_mib"][row] = label.gpus, label.gpu_mem_mib
            columns["gpu_quality"][row], columns["gpu_source"][row] = label.quality, label.source
    return columns


def _rows_of(job_ids: pa.ChunkedArray, wanted: Mapping[int, object]) -> Iterable[int]:
    if not wanted:
        return ()
    found = pc.is_in(job_ids, value_set=pa.array(list(wanted), pa.int64()))
    return (int(row) for row in np.flatnonzero(found.to_numpy(zero_copy_only=False)))


def _during(jobs: pa.Table, row: int, gpu_use: Mapping[int, Sequence[GpuUse]]) -> list[GpuUse]:
    """Return the GPU use that falls into an attempt."""
    start_s, end_s, cluster = (jobs[name][row].as_py() for name in ("start_s", "end_s", "cluster"))
    uses = gpu_use[jobs["job_id"][row].as_py()]
    during = (use for use in uses if use.first_s <= end_s and use.last_s >= start_s)
    return [use for use in during if use.may_be_of(cluster)]


def _input_output(steps: Columns, elapsed_s: Ints, count: int, sampled_every_s: int) -> Columns:
    read_mib = usage.sums(steps["job"], steps["read_mib"], count)
    written_mib = usage.sums(steps["job"], steps["written_mib"], count)
    known = ~np.isnan(read_mib) | ~np.isnan(written_mib)
    return {
        "read_mib": read_mib,
        "written_mib": written_mib,
        "io_quality": quality.sampled_quality(known, elapsed_s, sampled_every_s),
    }


def _energy(jobs: pa.Table, steps: Columns, elapsed_s: Ints, count: int) -> Columns:
    """Return joules: Slurm's figure for the job, else that of its steps. Slurm writes 0 if nothing meters energy.

    Each step's figure is that of its whole nodes during the step. If there is an extern step, which lasts as long as
    the job, Slurm counts only that one (_internal_step_complete in slurmctld's step_mgr.c), and so does this function.
    """
    extern = steps["extern"]
    told = (
        floats(jobs["energy_j"]),
        usage.sums(steps["job"][extern], steps["energy_j"][extern], count),
        usage.sums(steps["job"], steps["energy_j"], count),
    )
    energy_j = np.select([one > 0 for one in told], told, np.nan)
    # The counters are those of whole nodes, read from time to time.
    return {
        "energy_j": energy_j,
        "energy_quality": quality.sampled_quality(~np.isnan(energy_j), elapsed_s),
    }


def _shared_out(jobs: pa.Table, steps: Columns, asked: Columns) -> Columns:
    """Return the most that steps which asked for a part of their job held at one time; NaN if none did."""
    of, nodes = steps["job"], np.maximum(ints(jobs["nodes"]), 1)
    job = shared_out.Shares(
        tasks=np.maximum(asked["num_tasks"], nodes)[of],
        nodes=nodes[of],
        cpus=floats(jobs["alloc_cpus"])[of],
        mem_mib=floats(jobs["alloc_mem_mib"])[of],
        gpus=floats(jobs["alloc_gpus"])[of],
    )
    step = shared_out.Shares(
        tasks=steps["tasks"],
        nodes=np.maximum(steps["nodes"], 1),
        cpus=steps["alloc_cpus"],
        mem_mib=steps["alloc_mem_mib"],
    )
    flags = {
        "cpus": shared_out.asked_for_cpus(step, job, floats(jobs["req_cpus"])[of]),
        "mem_mib": shared_out.asked_for_memory(step, job, asked["mem_per_node"][of]),
    }
    # Times are whole seconds: of shorter steps it is unknown which ran at the same time.
    lasted = steps["by_srun"] & ((steps["end_s"] > steps["start_s"]) | (steps["end_s"] == 0))
    found: Columns = {}
    for name, flagged in flags.items():
        held = np.where(lasted & flagged, steps[f"alloc_{name}"], np.nan)
        peak = usage.peak_at_once(of, steps["start_s"], steps["end_s"], held, len(jobs))
        # Overlapping steps may hold more than there is.
        found[f"step_{name}"] = np.minimum(peak, floats(jobs[f"alloc_{name}"]))
    return found


def _steps(steps: pa.Table, elapsed_s: Ints) -> Columns:
    """Return the steps' columns as arrays, with what follows from their names and states.

    The time from a step's start to its end includes suspensions of its job, which Slurm leaves out of the job's
    elapsed time: no step ran for longer than that. Steps are sorted, whatever their source's order, because the
    last bit of a sum depends on it.
    """
    steps = steps.sort_by([("job", "ascending"), ("step_id", "ascending")])
    whole = {name: ints(steps[name]) for name in ("job", "start_s", "end_s", "tasks", "nodes")}
    amounts = {
        name: floats(steps[name])
        for name in (
            "mem_max_task_mib", "mem_total_mib", "cpu_s", "cpu_max_task_s", "gpu_util_pct", "gpu_mem_mib",
            "read_mib", "written_mib", "energy_j", "alloc_cpus", "alloc_mem_mib",
        )
    }  # fmt: skip
    extern = pc.equal(steps["step_id"], "extern").to_numpy(zero_copy_only=False).astype(bool)
    # Of `srun a : b`, each component has a row of its own: 0+0 and 0+1.
    by_srun, later = (
        pc.match_substring_regex(steps["step_id"], form).to_numpy(zero_copy_only=False).astype(bool)
        for form in (r"^[0-9]+(\+[0-9]+)?$", r"\+[1-9]")
    )
    return {
        **whole,
        **amounts,
        "ran_s": np.minimum(whole["end_s"] - whole["start_s"], elapsed_s[whole["job"]]),
        "by_srun": by_srun,
        "later": later,
        "extern": extern,
        "outcome": by_value(steps["state"], outcome_of),
    }
