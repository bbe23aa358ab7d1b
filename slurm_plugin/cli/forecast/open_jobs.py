"""The waiting and running jobs, as attempts that end now: the store has only jobs that have ended."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from accounting.errors import SlurmError
from accounting.report.selection import Selection
from models.forecast.demand import COLUMNS
from slurm_plugin.config.settings import Config
from slurm_plugin.slurm.snapshot import QueuedJob

# Such a job no longer holds its nodes, or will be in the store before the others are.
_ENDING = frozenset({"COMPLETING", "STAGE_OUT"})
_TEXTS = frozenset({"cluster", "partition", "account"})


class OpenJobs(NamedTuple):
    """Waiting and running jobs as attempts (COLUMNS of models/forecast/demand.py), and until when all is known.

    What ended in the `missed_s` seconds between that and the look at the queue is missing.
    """

    attempts: pa.Table
    known_until_s: int
    missed_s: float


def open_jobs(
    config: Config, selection: Selection, step_s: int, read_until_s: Mapping[str, int]
) -> OpenJobs | str:
    """Return the waiting and running jobs of a selection, or why they are not known ('' if they do not matter).

    `read_until_s` says, by cluster, until when its accounting was read into the store. That must be less than one step
    ago, because jobs that have ended since are neither in the store nor in the queue.
    """
    until_s = read_until_s.get(selection.cluster or "")
    # The user asked about the past, or the store was filled from dumps.
    if selection.until_s is not None or until_s is None:
        return ""
    from slurm_plugin.slurm.backends import open_queue
    from slurm_plugin.slurm.hidden_jobs import hidden_queue
    from slurm_plugin.slurm.local_cluster import local_cluster

    if time.time() - until_s > step_s:
        return "accounting was last read more than one step ago; run `rightsizer ingest`"
    if local_cluster(config) != selection.cluster:
        return f"this machine cannot read the queue of cluster {selection.cluster}"
    try:
        hidden, jobs = hidden_queue(), open_queue(config.advisor.queue).read().jobs
    except SlurmError as error:
        return str(error)
    missed_s = max(0.0, time.time() - until_s)
    return hidden or OpenJobs(attempts_of(jobs, selection, until_s), until_s, missed_s)


def attempts_of(jobs: Iterable[QueuedJob], selection: Selection, until_s: int) -> pa.Table:
    """Return the jobs of a selection as attempts that end at `until_s`, with one attempt for each array task."""
    meant = [job for job in jobs if job.state not in _ENDING and _is_meant(job, selection)]
    rows = [_attempt(job, selection.cluster, until_s) for job in meant for _ in range(job.tasks)]
    # Each gets a number of its own: two attempts with one number would count as one after the other.
    numbered = [{**row, "job_id": -number} for number, row in enumerate(rows, start=1)]
    return pa.table(
        {
            name: pa.array([row[name] for row in numbered], pa.string() if name in _TEXTS else pa.int64())
            for name in COLUMNS
        }
    )


def _is_meant(job: QueuedJob, selection: Selection) -> bool:
    return (
        selection.user in (None, job.user)
        and selection.account in (None, job.account)
        and selection.partition in (None, _partition(job))
    )


def _partition(job: QueuedJob) -> str:
    """Return the partition in which a job runs, or the first of those for which it waits."""
    return next(iter(job.partitions), "")


def _attempt(job: QueuedJob, cluster: str | None, until_s: int) -> dict[str, object]:
    amounts = {"cpus": job.cpus, "gpus": job.gpus, "mem_mib": job.mem_mib}
    return {
        "cluster": cluster,
        "submit_s": int(job.submit_s),
        "start_s": 0 if job.waits else int(job.start_s),
        "end_s": until_s,
        "partition": _partition(job),
        "account": job.account,
        **{f"req_{name}": amount for name, amount in amounts.items()},
        **{f"alloc_{name}": None if job.waits else amount for name, amount in amounts.items()},
    }
