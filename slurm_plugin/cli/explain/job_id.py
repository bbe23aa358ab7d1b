"""Job ids as people write them: 4711, 4711_3 (a task of an array), 4711+1 (a component of a het job). Pure."""

from __future__ import annotations

import re

import click
import msgspec

from slurm_plugin.slurm.array_tasks import task_within
from slurm_plugin.slurm.snapshot import QueuedJob

_WRITTEN = re.compile(r"(\d{1,10})(?:_(\d{1,10})|\+(\d{1,10}))?", re.ASCII)


class JobId(msgspec.Struct, frozen=True):
    """A job, or one task of an array, or one component of a het job."""

    number: int
    task: int | None = None
    component: int | None = None

    @property
    def is_part(self) -> bool:
        """Whether this is a task or a component; Slurm's own number for it differs from `number`."""
        return self.task is not None or self.component is not None

    def __str__(self) -> str:
        """Return the id as squeue and sacct show it."""
        if self.task is not None:
            return f"{self.number}_{self.task}"
        return str(self.number) if self.component is None else f"{self.number}+{self.component}"


def parse_job_id(text: str) -> JobId | None:
    """Return the job id that a text names; None if it is not one."""
    found = _WRITTEN.fullmatch(text)
    # By 0, scontrol means all jobs.
    if found is None or int(found[1]) == 0:
        return None
    number, task, component = (None if part is None else int(part) for part in found.groups())
    return JobId(number or 0, task, component)


def job_id(text: str) -> JobId:
    """Parse a job id for click, whose own integer type reads 4711_3 as 47113, as Python does."""
    found = parse_job_id(text)
    if found is None:
        raise click.BadParameter(
            f"{text!r} is not a job id; write 4711, 4711_3 for a task of an array, or 4711+1 for a "
            "component of a het job"
        )
    return found


def queued_records(wanted: JobId, jobs: tuple[QueuedJob, ...]) -> tuple[QueuedJob, ...]:
    """Return the queue's records of a job: all of an array or a het job, unless `wanted` is one part."""
    number = wanted.number
    if wanted.task is not None:
        return tuple(
            job for job in jobs if job.array_job_id == number and task_within(wanted.task, job.array_tasks)
        )
    if wanted.component is not None:
        # Slurm numbers the components of a het job consecutively.
        own = number + wanted.component
        return tuple(job for job in jobs if job.het_job_id == number and job.job_id == own)
    return tuple(job for job in jobs if number in (job.job_id, job.array_job_id, job.het_job_id))
