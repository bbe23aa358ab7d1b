"""Reads from the store what the advisor foresaw, and the blocks in which it acted or watched, batch by batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine, Select, and_, select

from accounting.frames import Floats, floats
from accounting.report.advisor import Blocks, Foreseen, Measure
from accounting.report.selection import Selection
from accounting.store.batches import read_batches
from accounting.store.schema import advised_jobs, advisor_cycles, attempts

# The name of Slurm's own order in plans.
AS_IT_IS = "as it is"


def read_foreseen(engine: Engine, selection: Selection) -> Foreseen:
    """Return what was foreseen for selected jobs that have started since.

    Array tasks are left out: what was foreseen is when the first of them starts.
    """
    return _foreseen_of(list(read_batches(engine, _foreseen_query().where(*selection.conditions()))))


def read_recent_foreseen(
    engine: Engine, cluster: str, now_s: float, *, back_s: float, part_s: float, most: int
) -> Foreseen:
    """Return what was foreseen on a cluster in the last `back_s` seconds; `started_s` is NaN without a known attempt.

    Of each part of that time, `part_s` long, only the `most` latest rows are read, however much a busy advisor has
    written.
    """
    told_s = advised_jobs.c.time_s
    query = (
        _foreseen_query(all_told=True)
        .where(advisor_cycles.c.cluster == cluster)
        .order_by(told_s.desc(), advised_jobs.c.job_id)
        .limit(most)
    )
    tables: list[pa.Table] = []
    for part in range(math.ceil(back_s / part_s)):
        until_s = now_s - part * part_s
        tables += read_batches(engine, query.where(told_s > until_s - part_s, told_s <= until_s))
    return _foreseen_of(tables)


def _foreseen_of(tables: Sequence[pa.Table]) -> Foreseen:
    rows = pa.concat_tables(tables) if tables else None
    if rows is None:
        none = np.empty(0)
        return Foreseen(
            job=(), order=(), acted=(), told_s=none, foreseen_s=none, low_s=none, high_s=none, started_s=none
        )
    acted = floats(rows["applied"]) > 0
    order = rows["chosen"].to_pylist()
    whose = zip(*(rows[name].to_pylist() for name in ("cluster", "job_id", "submit_s")), strict=True)
    as_planned = acted | np.array([one == AS_IT_IS for one in order])
    foreseen_s = np.where(as_planned, floats(rows["start_s"]), floats(rows["base_start_s"]))
    known = np.isfinite(foreseen_s)
    return Foreseen(
        job=[" ".join(map(str, one)) for one, is_known in zip(whose, known, strict=True) if is_known],
        order=[one for one, is_known in zip(order, known, strict=True) if is_known],
        acted=acted[known].tolist(),
        told_s=floats(rows["time_s"])[known],
        foreseen_s=foreseen_s[known],
        low_s=np.where(as_planned, floats(rows["low_s"]), np.nan)[known],
        high_s=np.where(as_planned, floats(rows["high_s"]), np.nan)[known],
        started_s=floats(rows["started_s"])[known],
    )


def _foreseen_query(*, all_told: bool = False) -> Select[tuple[object, ...]]:
    """Return the query for what was foreseen and what came of it; with `all_told`, also if nothing did."""
    job, cycle, attempt = advised_jobs.c, advisor_cycles.c, attempts.c
    return (
        select(
            cycle.chosen,
            cycle.applied,
            cycle.cluster,
            job.job_id,
            job.submit_s,
            job.time_s,
            job.base_start_s,
            job.start_s,
            job.low_s,
            job.high_s,
            attempt.start_s.label("started_s"),
        )
        .join_from(advised_jobs, advisor_cycles, job.cycle_id == cycle.id)
        .join(
            attempts,
            and_(
                attempt.cluster == cycle.cluster,
                attempt.job_id == job.job_id,
                attempt.submit_s == job.submit_s,
                # An array's record stands for its tasks.
                attempt.display_id.not_like("%\\_%", escape="\\"),
                # Slurm records whole seconds: a job that started in the same second as the plan started after it,
                # since it was pending then.
                attempt.start_s > job.time_s - 1,
            ),
            isouter=all_told,
        )
    )


class Span(NamedTuple):
    """A block of one cluster in which the advisor did one thing: whether it acted, and its first and last cycle.

    `number` tells it from all others, also from the block of another cluster at the same time. Times are unix seconds.
    """

    number: int
    acted: bool
    first_s: float
    last_s: float


Spans = Mapping[tuple[str, int], Span]


def read_blocks(engine: Engine, selection: Selection, block_s: int, slowdown: Measure) -> Blocks:
    """Return the selected jobs submitted in blocks in which the advisor acted throughout, or only watched.

    A block in which it did neither, or both, is left out.
    """
    spans = read_spans(engine, block_s)
    column = attempts.c
    query = select(column.cluster, column.submit_s, column.start_s, column.end_s).where(
        *selection.conditions(),
        column.start_s > 0,
        column.submit_s >= min((span.first_s for span in spans.values()), default=0),
        column.submit_s <= max((span.last_s for span in spans.values()), default=0),
    )
    parts = [_in_blocks(batch, spans, block_s, slowdown) for batch in read_batches(engine, query)]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.empty(0)] * 5
    block, acted, wait_s, slowdowns, begun_in = columns
    return Blocks(
        block=block.astype(np.int64),
        acted=(acted > 0).tolist(),
        wait_s=wait_s,
        slowdown=slowdowns,
        begun_in=(begun_in > 0).tolist(),
    )


def read_spans(engine: Engine, block_s: int) -> Spans:
    """Return the blocks in which the advisor only acted, or only watched, by cluster and time (in blocks)."""
    cycle = advisor_cycles.c
    query = select(cycle.cluster, cycle.time_s, cycle.applied, cycle.control)
    seen: dict[tuple[str, int], list[tuple[float, bool | None]]] = {}
    for batch in read_batches(engine, query):
        for row in batch.to_pylist():
            did = True if row["applied"] else False if row["control"] else None
            seen.setdefault((row["cluster"], int(row["time_s"] // block_s)), []).append((row["time_s"], did))
    found: dict[tuple[str, int], Span] = {}
    # In order, since which blocks are drawn for the interval depends on their numbers.
    for key, cycles in sorted(seen.items()):
        times, did_all = [time_s for time_s, _ in cycles], {did for _, did in cycles}
        for did in did_all if len(did_all) == 1 else ():
            if did is not None:
                found[key] = Span(len(found), did, min(times), max(times))
    return found


def _in_blocks(
    batch: pa.Table, spans: Spans, block_s: int, slowdown: Measure
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return block, whether the advisor acted, wait, slowdown, and whether the job started in its block."""
    submit_s, start_s, end_s = (floats(batch[name]) for name in ("submit_s", "start_s", "end_s"))
    period = submit_s // block_s
    keys = zip(batch["cluster"].to_pylist(), period.astype(int).tolist(), strict=True)
    found = [spans.get(key) for key in keys]
    which = np.array(
        [
            span is not None and span.first_s <= at_s <= span.last_s
            for span, at_s in zip(found, submit_s, strict=True)
        ],
        dtype=bool,
    )
    wait_s, run_s = np.maximum(0.0, start_s - submit_s), np.maximum(0.0, end_s - start_s)
    block = np.array([-1 if span is None else span.number for span in found], dtype=float)
    acted = np.array([span is not None and span.acted for span in found], dtype=float)
    begun_in = (start_s // block_s == period).astype(float)
    return block[which], acted[which], wait_s[which], slowdown(wait_s + run_s, run_s)[which], begun_in[which]
