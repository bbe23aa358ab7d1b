"""Sums up the steps of attempts, many attempts at once. Pure: arrays in, arrays out, no clock, no database.

Every function takes columns of steps, where `job` is the row of the step's attempt (rising), and `jobs`, the number
of attempts; it returns one figure per attempt, NaN if no step has one. The function that decides on a figure
documents its source, and why it is not simply MaxRSS.
"""

from __future__ import annotations

import numpy as np

from accounting.frames import Flags, Floats, Ints

# Elapsed time is in whole seconds: below this many, CPU time over elapsed time is mostly rounding error.
MIN_SECONDS_FOR_CORES = 2
# The last steps of an attempt may end after it does: by seconds, and once by 42 (seen on 26.05).
LATE_STEP_S = 60
# Sums of peaks are exact in whole bytes; in MiB they would depend on the order of the steps.
BYTES_IN_MIB = 1024.0**2


def sums(job: Ints, values: Floats, jobs: int) -> Floats:
    """Return the sum of the known values of each attempt's steps."""
    known = ~np.isnan(values)
    total = np.bincount(job[known], weights=values[known], minlength=jobs)
    seen = np.bincount(job[known], minlength=jobs)
    return np.where(seen > 0, total, np.nan)


def maxima(job: Ints, values: Floats, jobs: int) -> Floats:
    """Return the highest known value of each attempt's steps."""
    highest = np.full(jobs, -np.inf)
    known = ~np.isnan(values)
    np.maximum.at(highest, job[known], values[known])
    return np.where(np.isneginf(highest), np.nan, highest)


def step_node_mib(memory_mib: Floats, max_task_mib: Floats, tasks: Ints, nodes: Ints) -> Floats:
    """Return the most that any one node of a step can have held, in MiB.

    Slurm records the largest task and the sum. The node with the most tasks, each as large as the largest, holds no
    more than these together, nor more than the step. By default Slurm fills one node after the other: of 8 tasks on
    2 nodes, 7 are on the first (seen on 22.05).
    """
    tasks_a_node = np.maximum(tasks - nodes + 1, 1)
    return np.where(nodes > 1, np.fmin(memory_mib, max_task_mib * tasks_a_node), memory_mib)


def peak_at_once(job: Ints, start_s: Ints, end_s: Ints, amount: Floats, jobs: int) -> Floats:
    """Return the highest sum of amounts over steps that ran at the same time; NaN if no amount is known.

    Amounts are MiB, or CPUs. Sequential steps do not add up, concurrent ones do. Times are whole seconds: a step that
    starts in the second in which another one ends counts as following it; steps that begin and end within one second
    count as sharing it. Slurm has no end (0) for a step that was lost with its node: it counts until the job's end.
    """
    known = ~np.isnan(amount)
    job, start_s, end_s = job[known], start_s[known], end_s[known]
    # CPUs are small whole numbers: the same resolution holds them exactly.
    fixed = np.rint(amount[known] * BYTES_IN_MIB).astype(np.int64)
    ended = end_s >= start_s
    # In half seconds: a step lasts at least one, and of events in the same half second, ends come first.
    owner = np.concatenate([job, job[ended]])
    moment = np.concatenate([2 * start_s, np.maximum(2 * end_s[ended], 2 * start_s[ended] + 1)])
    change = np.concatenate([fixed, -fixed[ended]])
    order = np.lexsort((change > 0, moment, owner))
    running = np.cumsum(change[order])
    owner = owner[order]
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    before = np.where(begins > 0, running[begins - 1], 0)
    highest = np.maximum.reduceat(running, begins) - before
    peak = np.full(jobs, np.nan)
    peak[owner[begins]] = np.where(highest > 0, highest / BYTES_IN_MIB, np.nan)
    return peak


def busy_cores(cpu_s: Floats, elapsed_s: Ints) -> Floats:
    """Return the mean number of busy cores of attempts: their steps' CPU time divided by elapsed time."""
    long_enough = elapsed_s >= MIN_SECONDS_FOR_CORES
    return np.where(long_enough, cpu_s / np.maximum(elapsed_s, 1), np.nan)


def brief_share(job: Ints, seconds: Ints, cpu_s: Floats, most_s: int, jobs: int) -> Floats:
    """Return the share of attempts' CPU time in steps of `most_s` seconds at most; NaN if no CPU time is known.

    Slurm has no end for a step that was lost with its node: its duration is negative, and it counts as long.
    """
    brief = (seconds >= 0) & (seconds <= most_s)
    total_s = sums(job, cpu_s, jobs)
    brief_s = sums(job, np.where(brief, cpu_s, 0.0), jobs)
    return np.where(total_s > 0, brief_s / np.fmax(total_s, np.finfo(float).tiny), np.nan)


def busiest_task_cores(job: Ints, cpu_max_task_s: Floats, seconds: Ints, by_srun: Flags, jobs: int) -> Floats:
    """Return the mean number of busy cores of the busiest task that srun started; 0 if there was none.

    The batch step is left out: to Slurm it is one task, whatever an MPI launcher started inside it.
    """
    counted = by_srun & (seconds >= MIN_SECONDS_FOR_CORES)
    cores = np.where(counted, cpu_max_task_s / np.maximum(seconds, 1), np.nan)
    return np.nan_to_num(maxima(job, cores, jobs), nan=0.0)
