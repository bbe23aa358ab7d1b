"""What a file tells of attempts that are stored: it completes them, and takes nothing away. Pure.

An attempt that is stored as live sacct had it, with the digest of its record, stays as it is: no file knows it better.
Of any other, what the file tells replaces what is stored; columns that it does not tell, and steps that it lacks, stay
as they are stored. So dumps may come in any order, the poor before or after the rich.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.frames import Records, flagged, table_of
from accounting.records import Key

# What stands in a column whose number is not told, where that is not null: nothing meters energy where Slurm writes 0.
_JOBS_UNTOLD = {"nodes": 0, "energy_j": 0}
_STEPS_UNTOLD = {"start_s": 0, "end_s": 0, "tasks": 1, "nodes": 1, "energy_j": 0}


def completed(told: Records, stored: Records) -> Records:
    """Return what a file told, with what is stored of the same attempts where it tells nothing.

    No attempt comes twice in `told`. Those that live sacct told of before are left out, and counted as known.
    """
    rows = {key: row for row, key in enumerate(_keys(stored.jobs))}
    place = pa.array([rows.get(key) for key in _keys(told.jobs)], pa.int64())
    if place.null_count == len(place):
        return told
    is_live = stored.jobs["digest"].take(place).is_valid().to_numpy()
    jobs, steps = flagged(told.jobs, told.steps, ~is_live)
    place = place.filter(pa.array(~is_live))
    return replace(
        told,
        jobs=_filled(_with_own_names(jobs), jobs, stored.jobs.take(place), _JOBS_UNTOLD),
        steps=_with_stored(steps, stored.steps, place),
        known=told.known + int(is_live.sum()),
    )


def each_once(records: Records) -> Iterator[Records]:
    """Yield records in parts in which each attempt comes once, in their order; nearly always that is one part."""
    seen = Counter[Key]()
    turns = np.zeros(len(records.jobs), np.int64)
    for row, key in enumerate(_keys(records.jobs)):
        turns[row] = seen[key]
        seen[key] += 1
    last = int(turns.max(initial=0))
    if not last:
        yield records
        return
    for turn in range(last + 1):
        jobs, steps = flagged(records.jobs, records.steps, turns == turn)
        # What is not of jobs is told once.
        yield Records(jobs, steps) if turn else replace(records, jobs=jobs, steps=steps)


def _keys(jobs: pa.Table) -> Iterator[Key]:
    return zip(
        *(jobs[name].to_pylist() for name in ("cluster", "job_id", "submit_s", "start_s")), strict=True
    )


def _with_own_names(jobs: pa.Table) -> pa.Table:
    """Return jobs without shown ids that are no more than their numbers: another dump knows of which array they are."""
    is_number = pc.equal(jobs["display_id"], jobs["job_id"].cast(pa.string()))
    own = pc.if_else(is_number, pa.scalar(None, pa.string()), jobs["display_id"])
    return jobs.set_column(jobs.schema.get_field_index("display_id"), jobs.schema.field("display_id"), own)


def _filled(known: pa.Table, told: pa.Table, stored: pa.Table, untold: Mapping[str, int]) -> pa.Table:
    """Return what is known of each row, else what is stored of it, else what was told."""
    columns = {
        name: pc.coalesce(_known(known[name], untold.get(name)), stored[name], told[name])
        for name in told.column_names
    }
    return table_of(columns, told.schema)


def _known(values: pa.ChunkedArray, untold: int | None) -> pa.ChunkedArray:
    """Return values with null where they tell nothing."""
    nothing = "" if values.type == pa.string() else untold
    if nothing is None:
        return values
    return pc.if_else(pc.equal(values, nothing), pa.scalar(None, values.type), values)


def _with_stored(told: pa.Table, stored: pa.Table, place: pa.Array) -> pa.Table:
    """Return steps with what is stored of them, and those that are only stored; `place` is each job's row there."""
    jobs = {row: job for job, row in enumerate(place.to_pylist()) if row is not None}
    moved = pa.array([jobs.get(row) for row in stored["job"].to_pylist()], pa.int64())
    own = stored.set_column(0, stored.schema.field("job"), moved).filter(moved.is_valid())
    rows = {key: row for row, key in enumerate(_step_keys(own))}
    same = pa.array([rows.get(key) for key in _step_keys(told)], pa.int64())
    is_missing = np.ones(len(own), bool)
    is_missing[same.drop_null().to_numpy()] = False
    both = pa.concat_tables(
        [_filled(told, told, own.take(same), _STEPS_UNTOLD), own.filter(pa.array(is_missing))]
    )
    return both.take(pc.sort_indices(both["job"]))


def _step_keys(steps: pa.Table) -> Iterator[tuple[int, str]]:
    return zip(steps["job"].to_pylist(), steps["step_id"].to_pylist(), strict=True)
