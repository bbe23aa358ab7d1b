"""What jobs with GPUs were given, counted by how much that was: what usually comes, as Slurm has to place it."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Engine, func, select

from accounting.report.selection import RAN, Selection
from accounting.store.schema import attempts


class Given(NamedTuple):
    """So many attempts were given so many CPUs, so much memory (MiB) and so many GPUs, on so many nodes together."""

    cpus: int
    mem_mib: int
    gpus: int
    nodes: int
    attempts: int


def read_given(engine: Engine, selection: Selection) -> list[Given]:
    """Return what the selected attempts with GPUs were given; whoever never ran, or without known amounts, is none."""
    column = attempts.c
    amounts = (column.alloc_cpus, column.alloc_mem_mib, column.alloc_gpus, column.nodes)
    query = (
        select(*amounts, func.count())
        .where(*selection.conditions(), RAN, column.alloc_gpus > 0, column.nodes > 0)
        .where(column.alloc_cpus.is_not(None), column.alloc_mem_mib.is_not(None))
        .group_by(*amounts)
        .order_by(*amounts)
    )
    with engine.connect() as connection:
        return [Given(*row) for row in connection.execute(query)]
