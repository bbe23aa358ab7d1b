"""Counts attempts in the store by the quality of their labels, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
from sqlalchemy import ColumnElement, Engine, Select, and_, case, exists, func, or_, select

from accounting.report.advice import MANY
from accounting.report.quality import QUALITY_COLUMNS, Segment, segments_of
from accounting.report.reading import Progress, counted_batches, silent
from accounting.report.selection import RAN, Selection
from accounting.store.schema import attempts, steps

# slurmdbd purges by the start of steps: a long job that ended before the first job with steps may still have one.
MOSTLY = 0.95
# A memory figure this far above the allocation is neither rounding, nor the sum of steps that peaked in turn.
ABOVE_LIMIT = 1.05

_KEYS = ("cluster", "slurm_release", "gather", *sorted(set(QUALITY_COLUMNS.values())))
_FLAGS = ("above", "without", "commented")


def read_segments(engine: Engine, selection: Selection, progress: Progress = silent) -> list[Segment]:
    """Return how the selected attempts are labelled, the most recently measured segment first."""
    found = _counted(engine, selection, progress)
    for segment in found:
        if segment.share("memory", "absent") >= MANY:
            _tell_purged(engine, segment, selection)
    return found


def _counted(engine: Engine, selection: Selection, progress: Progress = silent) -> list[Segment]:
    batches = counted_batches(engine, quality_query(selection), progress)
    found = segments_of(row for batch in batches for row in _added(batch))
    with engine.connect() as connection:
        for segment in found:
            segment.with_steps = connection.execute(steps_query(segment.cluster)).first() is not None
            if segment.with_steps and segment.share("gpus", "absent"):
                counted = select(func.count()).select_from(attempts).where(*added_up(segment, selection))
                segment.gpus_added_up = int(connection.execute(counted).scalar_one())
    return found


def _tell_purged(engine: Engine, segment: Segment, selection: Selection) -> None:
    """Record in a segment how many of its attempts had lost their steps before they were read, and what remains.

    slurmdbd purges the oldest: those have no step in the store, up to a day from which on CPU time is known. Other
    figures are less reliable: the memory of killed jobs is known without steps, and GPU use from another meter.
    """
    column = attempts.c
    own = (*selection.conditions(), *_of(segment), RAN)
    with engine.connect() as connection:
        query = select(func.min(column.end_s)).where(*own, column.cores.is_not(None))
        first_s = connection.execute(query).scalar_one()
        if first_s is None:
            return
        earlier = func.coalesce(func.sum(_flag(column.end_s < first_s)), 0)
        counted = select(earlier, func.count()).where(*own, column.cores_quality == "absent", ~_has_step())
        before, whole = map(int, connection.execute(counted).one())
    if before < MANY * segment.attempts or before < MOSTLY * whole:
        return
    later = msgspec.structs.replace(selection, since_s=first_s, cluster=segment.cluster)
    left = {(one.release, one.gather): one for one in _counted(engine, later)}
    segment.purged, segment.since_s = before, first_s
    segment.since = left[segment.release, segment.gather]


def quality_query(selection: Selection) -> Select[tuple[object, ...]]:
    """Return the query for everything from which quality is judged.

    The database does not add it up: SQLite would keep all rows in memory to sort them.
    """
    column = attempts.c
    return select(
        *(column[name] for name in _KEYS),
        column.end_s,
        _flag(RAN).label("ran"),
        _flag(func.coalesce(column.alloc_gpus, 0) > 0).label("on_gpus"),
        _flag(_above_memory()).label("above"),
        _flag(_without_memory()).label("without"),
        _flag(column.comment != "").label("commented"),
    ).where(*selection.conditions())


def _added(batch: pa.Table) -> Iterator[dict[str, object]]:
    """Yield one row for all attempts of a batch that have the same labels."""
    keys = [*_KEYS, "ran", "on_gpus"]
    how = [("end_s", "max"), *((name, "sum") for name in _FLAGS), ([], "count_all")]
    added = (
        batch.group_by(keys)
        .aggregate(how)
        .select([*keys, "end_s_max", *(f"{name}_sum" for name in _FLAGS), "count_all"])
    )
    yield from added.rename_columns([*keys, "last_s", *_FLAGS, "attempts"]).to_pylist()


def steps_query(cluster: str) -> Select[tuple[object, ...]]:
    """Return the query for any one step of a cluster; the key begins with the cluster, so it is cheap."""
    return select(steps.c.job_id).where(steps.c.cluster == cluster).limit(1)


def added_up(segment: Segment, selection: Selection) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for a segment's attempts whose steps record one GPU figure for several GPUs."""
    column = attempts.c
    return (
        *selection.conditions(),
        *_of(segment),
        column.alloc_gpus > 1,
        column.gpu_quality == "absent",
        _has_step(steps.c.gpu_util_pct.is_not(None)),
    )


def _has_step(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return whether an attempt has a step that meets these conditions."""
    own = attempts.c
    return exists().where(
        steps.c.cluster == own.cluster,
        steps.c.job_id == own.job_id,
        steps.c.submit_s == own.submit_s,
        steps.c.attempt_start_s == own.start_s,
        *conditions,
    )


def _of(segment: Segment) -> tuple[ColumnElement[bool], ...]:
    column = attempts.c
    return (
        column.cluster == segment.cluster,
        column.slurm_release == segment.release,
        column.gather == segment.gather,
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
