"""The forms in which Slurm writes ids of jobs, array tasks, het components and steps."""

from __future__ import annotations

import re

import msgspec

_ID = re.compile(
    r"^([0-9]{1,10})(?:_([0-9]{1,9}|\[[-0-9,%:]*(?:\.\.\.)?\])|\+([0-9]{1,9}))?(?:\.([a-z0-9+]{1,32}))?\Z"
)
_STEP = re.compile(r"^([0-9]{1,10}|batch|extern|interactive)(?:\+[0-9]{1,9})?\Z")


class JobId(msgspec.Struct, frozen=True, kw_only=True):
    """An id as sacct prints it, split into parts: `668_1.batch` is task 1 of array 668, step `batch`.

    `number` is the job's number if the text holds it, else that of its array or of its het job's leader.
    `pending` marks an array's record of tasks that have not become jobs yet (`12_[1-5%2]`). A part that does
    not apply is None.
    """

    number: int
    display_id: str
    task: int | None = None
    component: int | None = None
    pending: bool = False
    step_id: str | None = None


def parse_job_id(text: str) -> JobId | None:
    """Parse JobID or JobIDRaw; None if it is not the id of a job or a step."""
    match = _ID.match(text)
    if match is None or (match[4] is not None and not _STEP.match(match[4])):
        return None
    number, task, component, step_id = match.groups()
    pending = task is not None and task.startswith("[")
    return JobId(
        number=int(number),
        display_id=text.partition(".")[0],
        task=int(task) if task is not None and not pending else None,
        component=None if component is None else int(component),
        pending=pending,
        step_id=step_id,
    )
