"""Under which name a record of the queue is changed, so that only it is changed and nothing is split. Pure.

What `scontrol update JobId=…` does to each form (slurmctld's `update_job_str`; seen on 22.05 and 26.05):

- `N`, the id of an array: all its records, including those that run and those that were split off.
- `N_[9-200]` with exactly the tasks that wait, or more: the one record that waits, which stays one. Tasks in the list
  that have started since are changed as well, or answer that they cannot be. With fewer tasks than wait, each named
  task gets a record of its own for good: so the list is always the one that was read, and only shrinks.
- `N_[0-30:2]`, which is how Slurm prints tasks at even distances: nothing («Invalid job id specified»).
- `N_7`: the task with a record of its own.
- `N`, the id of the first component of a het job: all its components; `N+0` is that component alone.
"""

from __future__ import annotations

import re

from slurm_plugin.slurm.snapshot import QueuedJob

_STEPPED = re.compile(r"(\d{1,10})-(\d{1,10}):(\d{1,10})", re.ASCII)
# No single argument of a program has room for more tasks.
_MOST_TASKS = 1 << 16


def target_of(job: QueuedJob) -> str:
    """Return what to write after `JobId=`."""
    if job.array_job_id:
        tasks = job.array_tasks.partition("%")[0]
        return (
            f"{job.array_job_id}_{tasks}" if tasks.isdigit() else f"{job.array_job_id}_[{_one_by_one(tasks)}]"
        )
    if job.het_job_id == job.job_id:
        return f"{job.job_id}+0"
    return str(job.job_id)


def _one_by_one(tasks: str) -> str:
    """Return a list of tasks in which those at even distances are named one by one."""
    return _STEPPED.sub(_named, tasks)


def _named(found: re.Match[str]) -> str:
    low, high, step = map(int, found.groups())
    span = range(low, high + 1, max(1, step))
    return ",".join(map(str, span)) if len(span) <= _MOST_TASKS else found[0]
