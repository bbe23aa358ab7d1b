"""Rows of columns as jobs and requests, for code that needs them one by one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from accounting.frames import Floats, Ints
from accounting.request import JobRequest
from models.past.columns import PastColumns
from models.past.jobs import PastJob

# Python objects exist for this many attempts at a time, where they are needed one by one.
OBJECTS_AT_ONCE = 10_000


def requests_in(past: PastColumns, rows: Ints) -> Iterator[JobRequest]:
    """Yield `request_of` of some attempts; objects exist for OBJECTS_AT_ONCE of them at a time."""
    for begin in range(0, len(rows), OBJECTS_AT_ONCE):
        yield from _requests(past, rows[begin : begin + OBJECTS_AT_ONCE])


def _requests(past: PastColumns, rows: Ints) -> Iterator[JobRequest]:
    columns: dict[str, Sequence[Any]] = {
        "user": past.user.at(rows),
        "account": past.account.at(rows),
        "partition": past.partition.at(rows),
        "qos": past.qos.at(rows),
        "job_name": past.job_name.at(rows),
        "script_signature": past.script.at(rows),
        "num_tasks": past.num_tasks[rows].tolist(),
        "cpus_per_task": _whole(past.cpus_per_task[rows]),
        "mem_per_node_mib": _whole(past.asked_mem_mib[rows]),
        "gpus_per_node": _whole(past.asked_gpus[rows]),
        "wall_s": _whole(past.limit_s[rows]),
        "input_mib": _known(past.input_mib[rows]),
    }
    return (
        JobRequest(**dict(zip(columns, values, strict=True)))
        for values in zip(*columns.values(), strict=True)
    )


def _known(values: NDArray[Any]) -> list[Any]:
    return [None if value != value else value for value in values.tolist()]


def _whole(values: Floats) -> list[int | None]:
    return [None if value is None else int(value) for value in _known(values)]


def past_jobs(past: PastColumns, rows: Ints) -> Iterator[PastJob]:
    """Yield `past_job` of some attempts; objects exist for OBJECTS_AT_ONCE of them at a time."""
    for begin in range(0, len(rows), OBJECTS_AT_ONCE):
        yield from _past_jobs(past, rows[begin : begin + OBJECTS_AT_ONCE])


def _past_jobs(past: PastColumns, rows: Ints) -> Iterator[PastJob]:
    def each(values: NDArray[Any]) -> list[Any]:
        return _known(values[rows])

    def whole(values: Floats) -> list[int | None]:
        return _whole(values[rows])

    columns = {
        "end_s": each(past.end_s),
        "num_tasks": each(past.num_tasks),
        "asked_cpus": whole(past.asked_cpus),
        "asked_mem_mib": whole(past.asked_mem_mib),
        "asked_gpus": whole(past.asked_gpus),
        "complete": each(past.complete),
        "mem_mib": each(past.mem_mib),
        "mem_at_least": each(past.mem_at_least),
        "mem_short": each(past.mem_short),
        "cores_per_task": each(past.cores_per_task),
        "wall_s": each(past.wall_s),
        "wall_at_least": each(past.wall_at_least),
        "gpus": whole(past.gpus),
        "gpu_source": past.gpu_source.at(rows),
        "script": past.script.at(rows),
        "job_id": each(past.job_id),
        "given_cpus": whole(past.given_cpus),
        "given_gpus": whole(past.given_gpus),
        "given_mem_mib": whole(past.given_mem_mib),
        "gpu_mem_mib": each(past.gpu_mem_mib),
        "gpu_short": each(past.gpu_short),
        "input_mib": each(past.input_mib),
        "step_cpus": whole(past.step_cpus),
        "step_mem_mib": whole(past.step_mem_mib),
        "failed": each(past.failed),
    }
    return (
        PastJob(**dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)
    )
