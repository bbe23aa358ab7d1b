"""Selects the attempts for a report, and the columns that it reads."""

from __future__ import annotations

import msgspec
from sqlalchemy import ColumnElement, Select, and_, select

from accounting.store.schema import attempts

# The columns for reports on use. The store is read once, in the order in which it lies there.
USAGE_COLUMNS = (
    "user", "account", "job_name", "script_signature", "outcome", "state",
    "start_s", "wall_s", "wall_quality", "limit_s",
    "num_tasks", "asked_cpus", "alloc_cpus", "cores", "cores_quality",
    "asked_mem_mib", "alloc_mem_mib", "peak_mem_mib", "memory_quality",
    "asked_gpus", "alloc_gpus", "gpus", "gpu_quality", "step_cpus", "step_mem_mib",
)  # fmt: skip

# Additional columns for energy and carbon.
ENERGY_COLUMNS = ("cluster", "job_id", "end_s", "nodes", "energy_j")
# Attempts that ever ran; `started` in measures.py is the same for rows already read.
RAN = and_(attempts.c.start_s > 0, attempts.c.wall_quality != "absent")


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts that ended from `since_s` on and before `until_s` (unix seconds), with the given names; None is any."""

    since_s: int | None = None
    until_s: int | None = None
    cluster: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return the conditions for the selected attempts."""
        column = attempts.c
        named = {
            column.cluster: self.cluster,
            column.user: self.user,
            column.account: self.account,
            column.partition: self.partition,
        }
        found = [part == value for part, value in named.items() if value is not None]
        if self.since_s is not None:
            found.append(column.end_s >= self.since_s)
        if self.until_s is not None:
            found.append(column.end_s < self.until_s)
        return found


def usage_query(selection: Selection, *, energy: bool = False) -> Select[tuple[object, ...]]:
    """Return the query for what reports on use need of each attempt."""
    names = (*USAGE_COLUMNS, *(ENERGY_COLUMNS if energy else ()))
    return select(*(attempts.c[name] for name in names)).where(*selection.conditions())
