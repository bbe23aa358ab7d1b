"""Counts of attempts by the quality of their labels, out of the store: one query, added up by the database."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Engine, Select, and_, case, func, or_, select

from accounting.report.quality import QUALITY_COLUMNS, Segment, segments_of
from accounting.report.selection import Selection
from accounting.store.schema import attempts, steps

# A figure for memory above what was allocated by more than this is no rounding, nor steps that peaked in turn.
ABOVE_LIMIT = 1.05


def read_segments(engine: Engine, selection: Selection) -> list[Segment]:
    """Return how the selected attempts are labelled, those first that were measured last."""
    with engine.connect() as connection:
        found = segments_of(dict(row) for row in connection.execute(quality_query(selection)).mappings())
        for segment in found:
            segment.with_steps = connection.execute(steps_query(segment.cluster)).first() is not None
    return found


def quality_query(selection: Selection) -> Select[tuple[object, ...]]:
    """Return the query that counts attempts by all that their quality depends on: some hundreds of rows."""
    column = attempts.c
    keys = [column.cluster, column.slurm_release, column.gather]
    keys += [column[name] for name in sorted(set(QUALITY_COLUMNS.values()))]
    ran, on_gpus = _flag(column.start_s > 0), _flag(func.coalesce(column.alloc_gpus, 0) > 0)
    # Grouped outside: databases differ in what an expression of their own is to be called in GROUP BY.
    inner = select(
        *keys,
        ran.label("ran"),
        on_gpus.label("on_gpus"),
        column.end_s,
        _flag(_above_memory()).label("above"),
        _flag(_without_memory()).label("without"),
        _flag(column.comment != "").label("commented"),
    ).where(*selection.conditions())
    found = inner.subquery().c
    grouped = [found[key.name] for key in keys] + [found.ran, found.on_gpus]
    return select(
        *grouped,
        func.count().label("attempts"),
        func.max(found.end_s).label("last_s"),
        *(func.sum(found[name]).label(name) for name in ("above", "without", "commented")),
    ).group_by(*grouped)


def steps_query(cluster: str) -> Select[tuple[object, ...]]:
    """Return the query for any one step of a cluster; the key begins with the cluster, so it costs nothing."""
    return select(steps.c.job_id).where(steps.c.cluster == cluster).limit(1)


def _flag(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return case((condition, 1), else_=0)


def _above_memory() -> ColumnElement[bool]:
    column = attempts.c
    measured = column.memory_quality.in_(("exact", "sampled"))
    return and_(measured, column.alloc_mem_mib > 0, column.peak_mem_mib > column.alloc_mem_mib * ABOVE_LIMIT)


def _without_memory() -> ColumnElement[bool]:
    column = attempts.c
    return and_(*(or_(part.is_(None), part == 0) for part in (column.asked_mem_mib, column.alloc_mem_mib)))
