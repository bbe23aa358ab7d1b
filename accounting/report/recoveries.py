"""Hours that runs held in vain because we had cut them, by user or account."""

from __future__ import annotations

from typing import Literal

import msgspec
from sqlalchemy import Connection, case, func, select

from accounting.store import schema


class Credit(msgspec.Struct, frozen=True, kw_only=True):
    """What one user, or account, lost: runs that were requeued, runs that were not, and the hours of both."""

    name: str
    requeued: int
    lost: int
    cpu_hours: float
    mem_gib_hours: float


def hours_owed(connection: Connection, by: Literal["user", "account"], since_s: float = 0.0) -> list[Credit]:
    """Return what each lost in runs handled from a time on (unix seconds), the largest loss first.

    A run that is still being requeued counts as requeued.
    """
    of = schema.recoveries.c
    lost = func.sum(case((of.what == "lost", 1), else_=0))
    hours = (func.sum(of.cpu_hours), func.sum(of.mem_gib_hours))
    query = select(of[by], func.count() - lost, lost, *hours).where(of.time_s >= since_s).group_by(of[by])
    found = [
        Credit(
            name=str(name),
            requeued=int(requeued),
            lost=int(gone),
            cpu_hours=round(float(cpu_h), 3),
            mem_gib_hours=round(float(mem_gib_h), 3),
        )
        for name, requeued, gone, cpu_h, mem_gib_h in connection.execute(query)
    ]
    return sorted(found, key=lambda one: (-one.cpu_hours, -one.mem_gib_hours, one.name))
