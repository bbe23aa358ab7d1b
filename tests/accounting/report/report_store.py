"""A store of attempts with exactly the figures that a test is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import Engine

from accounting.records import Attempt
from accounting.report.usage import RightSize
from models.past.families import is_alike
from tests.builders import T0, attempt, step
from tests.stores import write_attempts, write_steps

RULE = RightSize(
    memory_margin=0.15,
    memory_floor_mib=128,
    memory_step_mib=32,
    cores_margin=0.25,
    least_jobs=3,
    alike=is_alike,
)


def measured(number: int, *, start_s: int = 0, **changes: Any) -> Attempt:
    """An attempt of one hour that requested and held 8 CPUs and 8 GiB, and used 2 cores and 1 GiB, all trusted.

    `changes` are to its use, its row or the attempt itself, by the names of their fields; with `start_s=-1` it never
    started.
    """
    begin_s = T0 + 10_000 * number if start_s == 0 else max(0, start_s)
    row: dict[str, Any] = {
        "job_id": number,
        "display_id": str(number),
        "submit_s": T0,
        "start_s": begin_s,
        "elapsed_s": 3600,
    }
    plain = attempt(token=False, **row)
    fields: dict[str, Any] = {
        "peak_mem_mib": 1024.0, "memory_quality": "sampled", "cores": 2.0, "cores_quality": "exact", "wall_s": 3600,
        "alloc_mem_mib": 8192, "req_mem_mib": 8192, "asked_mem_mib": 8192, "io_quality": "sampled",
        "energy_quality": "exact", "energy_j": 3.6e6, "slurm_release": "24.11", "gather": "jobacct_gather/cgroup",
        **changes,
    }  # fmt: skip

    def part(of: Any) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name in type(of).__struct_fields__}

    return msgspec.structs.replace(
        plain,
        **part(plain),
        row=msgspec.structs.replace(plain.row, **part(plain.row)),
        use=msgspec.structs.replace(plain.use, **part(plain.use)),
    )


def fill(store: Engine, attempts: Iterable[Attempt], *, with_steps: bool = True) -> None:
    """Write attempts in one transaction, each with a batch step."""
    listed = list(attempts)
    with store.begin() as connection:
        write_attempts(connection, listed)
        if with_steps:
            write_steps(connection, [(one.row, step()) for one in listed])
