"""What is told of attempts that are stored: it completes them, and takes nothing away. Pure.

An attempt that is stored as live sacct had it, with the digest of its record, stays as it is when a file tells of it,
but for steps that it lacks: no file knows it better. Of any other, what the file tells replaces what is stored; columns
that it does not tell, and steps that it lacks, stay as they are stored. So dumps may come in any order, the poor before
or after the rich.

Slurm forgets, too: slurmdbd purges steps long before their jobs (PurgeStepAfter), and then tells jobs without any. So
steps that are stored stay as well when live sacct tells of their job again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.frames import Records, flagged, table_of
from accounting.labels.usage import Flags
from accounting.records import Key

# What stands in a column whose number is not told, where that is not null: nothing meters energy where Slurm writes 0.
_JOBS_UNTOLD = {"nodes": 0, "energy_j": 0}
_STEPS_UNTOLD = {"start_s": 0, "end_s": 0, "tasks": 1, "nodes": 1, "energy_j": 0}


def completed(told: Records, stored: Records) -> Records:
    """Return what a file told, with what is stored of the same attempts where it tells nothing.

    No attempt comes twice in `told`. Those that live sacct told of before, with all steps that the file tells, are left
    out, and counted as known.
    """
    place = _places(told, stored)
    if place.null_count == len(place):
        return told
    is_live: Flags = pc.is_valid(stored.jobs["digest"].take(place)).to_numpy()
    stays = is_live & ~_tells_new_steps(told.steps, _moved(stored.steps, place), len(place))
    united = _united(told, stored, place, is_live)
    jobs, steps = flagged(united.jobs, united.steps, ~stays)
    return replace(told, jobs=jobs, steps=steps, known=told.known + int(stays.sum()))


def remembered(told: Records, stored: Records) -> Records:
    """Return what Slurm told, with those stored steps of the same attempts that it has forgotten since."""
    return _united(told, stored, _places(told, stored), np.zeros(len(told.jobs), bool))


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


def _places(told: Records, stored: Records) -> pa.Array:
    """Return the row of each told attempt among the stored ones; null where it is new."""
    rows = {key: row for row, key in enumerate(_keys(stored.jobs))}
    return pa.array([rows.get(key) for key in _keys(told.jobs)], pa.int64())


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


def _united(told: Records, stored: Records, place: pa.Array, stored_first: Flags) -> Records:
    """Return both: what is told where that is known, else what is stored; columns of those flagged are the stored."""
    old = stored.jobs.take(place)
    filled = _filled(_with_own_names(told.jobs), told.jobs, old, _JOBS_UNTOLD)
    chosen = {
        name: pc.if_else(pa.array(stored_first), old[name], filled[name]) for name in filled.column_names
    }
    later, ahead = _parted(_moved(stored.steps, place), stored_first)
    told_ahead, told_later = _parted(told.steps, stored_first)
    steps = _joined(pa.concat_tables([told_ahead, ahead]), pa.concat_tables([told_later, later]))
    return replace(told, jobs=table_of(chosen, told.jobs.schema), steps=steps)


def _parted(steps: pa.Table, flags: Flags) -> tuple[pa.Table, pa.Table]:
    """Return the steps of jobs that are not flagged, and of those that are."""
    flagged_steps = flags[steps["job"].to_numpy()]
    return steps.filter(pa.array(~flagged_steps)), steps.filter(pa.array(flagged_steps))


def _moved(stored: pa.Table, place: pa.Array) -> pa.Table:
    """Return stored steps of told jobs, by the rows of the latter; `place` is each one's row among the stored."""
    jobs = {row: job for job, row in enumerate(place.to_pylist()) if row is not None}
    moved = pa.array([jobs.get(row) for row in stored["job"].to_pylist()], pa.int64())
    return stored.set_column(0, stored.schema.field("job"), moved).filter(moved.is_valid())


def _joined(first: pa.Table, second: pa.Table) -> pa.Table:
    """Return the steps of `first`, with what `second` has of them where they tell nothing, and those of it alone."""
    rows = {key: row for row, key in enumerate(_step_keys(second))}
    same = pa.array([rows.get(key) for key in _step_keys(first)], pa.int64())
    is_missing = np.ones(len(second), bool)
    is_missing[same.drop_null().to_numpy()] = False
    both = pa.concat_tables(
        [_filled(first, first, second.take(same), _STEPS_UNTOLD), second.filter(pa.array(is_missing))]
    )
    return both.take(pc.sort_indices(both["job"]))


def _tells_new_steps(told: pa.Table, stored: pa.Table, jobs: int) -> Flags:
    """Flag those jobs of which a step is told that is not stored."""
    known = set(_step_keys(stored))
    flags = np.zeros(jobs, bool)
    flags[[job for job, step in _step_keys(told) if (job, step) not in known]] = True
    return flags


def _step_keys(steps: pa.Table) -> Iterator[tuple[int, str]]:
    return zip(steps["job"].to_pylist(), steps["step_id"].to_pylist(), strict=True)
