"""Counts of attempts by the quality of their labels, out of the store, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from sqlalchemy import ColumnElement, Engine, Select, and_, case, exists, func, or_, select

from accounting.report.quality import QUALITY_COLUMNS, Segment, segments_of
from accounting.report.reading import Progress, counted_batches, silent
from accounting.report.selection import Selection
from accounting.store.schema import attempts, steps

# A figure for memory above what was allocated by more than this is no rounding, nor steps that peaked in turn.
ABOVE_LIMIT = 1.05

_KEYS = ("cluster", "slurm_release", "gather", *sorted(set(QUALITY_COLUMNS.values())))
_FLAGS = ("above", "without", "commented")


def read_segments(engine: Engine, selection: Selection, progress: Progress = silent) -> list[Segment]:
    """Return how the selected attempts are labelled, those first that were measured last."""
    batches = counted_batches(engine, quality_query(selection), progress)
    found = segments_of(row for batch in batches for row in _added(batch))
    with engine.connect() as connection:
        for segment in found:
            segment.with_steps = connection.execute(steps_query(segment.cluster)).first() is not None
            if segment.with_steps and segment.share("gpus", "absent"):
                counted = select(func.count()).select_from(attempts).where(*added_up(segment, selection))
                segment.gpus_added_up = int(connection.execute(counted).scalar_one())
    return found


def quality_query(selection: Selection) -> Select[tuple[object, ...]]:
    """Return the query for all that quality is judged by.

    It is not added up by the database: SQLite would keep all rows in memory to sort them.
    """
    column = attempts.c
    return select(
        *(column[name] for name in _KEYS),
        column.end_s,
        _flag((column.start_s > 0) & (column.wall_quality != "absent")).label("ran"),
        _flag(func.coalesce(column.alloc_gpus, 0) > 0).label("on_gpus"),
        _flag(_above_memory()).label("above"),
        _flag(_without_memory()).label("without"),
        _flag(column.comment != "").label("commented"),
    ).where(*selection.conditions())


def _added(batch: pa.Table) -> Iterator[dict[str, object]]:
    """Yield a row for all attempts of a batch that are labelled alike."""
    keys = [*_KEYS, "ran", "on_gpus"]
    how = [("end_s", "max"), *((name, "sum") for name in _FLAGS), ([], "count_all")]
    added = (
        batch.group_by(keys)
        .aggregate(how)
        .select([*keys, "end_s_max", *(f"{name}_sum" for name in _FLAGS), "count_all"])
    )
    yield from added.rename_columns([*keys, "last_s", *_FLAGS, "attempts"]).to_pylist()


def steps_query(cluster: str) -> Select[tuple[object, ...]]:
    """Return the query for any one step of a cluster; the key begins with the cluster, so it costs nothing."""
    return select(steps.c.job_id).where(steps.c.cluster == cluster).limit(1)


def added_up(segment: Segment, selection: Selection) -> tuple[ColumnElement[bool], ...]:
    """Return what holds for the attempts of a segment whose steps have a GPU use that tells no GPU from another."""
    column = attempts.c
    recorded = exists().where(
        steps.c.cluster == column.cluster,
        steps.c.job_id == column.job_id,
        steps.c.submit_s == column.submit_s,
        steps.c.attempt_start_s == column.start_s,
        steps.c.gpu_util_pct.is_not(None),
    )
    return (
        *selection.conditions(),
        column.cluster == segment.cluster,
        column.slurm_release == segment.release,
        column.gather == segment.gather,
        column.alloc_gpus > 1,
        column.gpu_quality == "absent",
        recorded,
    )


def _flag(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return case((condition, 1), else_=0)


def _above_memory() -> ColumnElement[bool]:
    column = attempts.c
    measured = column.memory_quality.in_(("exact", "sampled"))
    return and_(measured, column.alloc_mem_mib > 0, column.peak_mem_mib > column.alloc_mem_mib * ABOVE_LIMIT)


def _without_memory() -> ColumnElement[bool]:
    column = attempts.c
    return and_(*(or_(part.is_(None), part == 0) for part in (column.asked_mem_mib, column.alloc_mem_mib)))
