"""Completes stored attempts with what a file adds, and takes nothing away. Pure.

An attempt stored from live sacct, with the digest of its record, stays as it is when a file has it too, except for
steps that it lacks: no file is a better source. For any other attempt, the file's values replace the stored ones;
columns that the file does not state, and steps that it lacks, stay as stored. So dumps may come in any order, poor
ones before or after rich ones.

Slurm forgets, too: slurmdbd purges steps long before their jobs (PurgeStepAfter), and then returns jobs without
steps. So stored steps also stay when live sacct returns their job again. And it only says what measures now, so what
measured an attempt stays as it was when the attempt was first read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.frames import Flags, Records, flagged, table_of
from accounting.records import Key, Meter

# The value other than null that means "not stated" in a column: Slurm writes 0 if nothing meters energy.
_JOBS_UNTOLD = {"nodes": 0, "energy_j": 0}
_STEPS_UNTOLD = {"start_s": 0, "end_s": 0, "tasks": 1, "nodes": 1, "energy_j": 0}


def completed(told: Records, stored: Records) -> Records:
    """Return a file's records, filled in from the stored attempts with the same keys where the file states nothing.

    `told` is what the file states; no attempt may come twice in it. Attempts stored from live sacct that already have
    all of the file's steps are left out, and counted as known.
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
    """Return Slurm's records, with stored steps of the same attempts that Slurm has forgotten since."""
    return _united(told, stored, _places(told, stored), np.zeros(len(told.jobs), bool))


def as_measured(told: Records, meters: Mapping[Key, Meter]) -> Records:
    """Return Slurm's records with the release and plugins that measured them, where the store knows these.

    Slurm may have been upgraded since, or given another plugin: its figures of earlier jobs stay what they were. A
    stored guess stands only until a run knows better.
    """
    if not meters:
        return told
    jobs, is_sure = told.jobs, pc.is_valid(told.jobs["digest"]).to_pylist()
    kept = [
        meter if meter is not None and (meter.is_known or (meter.gather != "" and not sure)) else None
        for meter, sure in zip(map(meters.get, _keys(jobs)), is_sure, strict=True)
    ]
    for name in ("slurm_release", "gather"):
        stored = pa.array([None if meter is None else getattr(meter, name) for meter in kept], pa.string())
        place = jobs.schema.get_field_index(name)
        jobs = jobs.set_column(place, jobs.schema.field(name), pc.coalesce(stored, jobs[name]))
    return replace(told, jobs=jobs)


def each_once(records: Records) -> Iterator[Records]:
    """Yield records in parts in which each attempt comes once, in their order; nearly always that is one part."""
    seen = Counter[Key]()
    turns = np.zeros(len(records.jobs), np.int64)
    for row, key in enumerate(_keys(records.jobs)):
        turns[row] = seen[key]
        seen[key] += 1
    for turn in range(int(turns.max(initial=0)) + 1):
        jobs, steps = flagged(records.jobs, records.steps, turns == turn)
        # What does not belong to a job is passed on once.
        yield Records(jobs, steps) if turn else replace(records, jobs=jobs, steps=steps)


def _places(told: Records, stored: Records) -> pa.Array:
    """Return the stored row of each attempt in `told`; null for a new attempt."""
    rows = {key: row for row, key in enumerate(_keys(stored.jobs))}
    return pa.array([rows.get(key) for key in _keys(told.jobs)], pa.int64())


def _keys(jobs: pa.Table) -> Iterator[Key]:
    return zip(
        *(jobs[name].to_pylist() for name in ("cluster", "job_id", "submit_s", "start_s")), strict=True
    )


def _with_own_names(jobs: pa.Table) -> pa.Table:
    """Return jobs without display ids that only repeat the job number: another dump knows the array of such a task."""
    is_number = pc.equal(jobs["display_id"], jobs["job_id"].cast(pa.string()))
    own = pc.if_else(is_number, pa.scalar(None, pa.string()), jobs["display_id"])
    return jobs.set_column(jobs.schema.get_field_index("display_id"), jobs.schema.field("display_id"), own)


def _filled(known: pa.Table, told: pa.Table, stored: pa.Table, untold: Mapping[str, int]) -> pa.Table:
    """Return for each row the values in `known`, else those in `stored`, else those in `told`."""
    columns = {
        name: pc.coalesce(_known(known[name], untold.get(name)), stored[name], told[name])
        for name in told.column_names
    }
    return table_of(columns, told.schema)


def _known(values: pa.ChunkedArray, untold: int | None) -> pa.ChunkedArray:
    """Return values, with null for those that state nothing."""
    nothing = "" if values.type == pa.string() else untold
    if nothing is None:
        return values
    return pc.if_else(pc.equal(values, nothing), pa.scalar(None, values.type), values)


def _united(told: Records, stored: Records, place: pa.Array, stored_first: Flags) -> Records:
    """Return both merged: values in `told` if known, else stored ones; for flagged rows, the stored columns."""
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
    """Return the steps of jobs that are not flagged, and those of jobs that are."""
    flagged_steps = flags[steps["job"].to_numpy()]
    return steps.filter(pa.array(~flagged_steps)), steps.filter(pa.array(flagged_steps))


def _moved(stored: pa.Table, place: pa.Array) -> pa.Table:
    """Return the stored steps of the jobs in `told`, numbered by these jobs; `place` is each job's stored row."""
    jobs = {row: job for job, row in enumerate(place.to_pylist()) if row is not None}
    moved = pa.array([jobs.get(row) for row in stored["job"].to_pylist()], pa.int64())
    return stored.set_column(0, stored.schema.field("job"), moved).filter(moved.is_valid())


def _joined(first: pa.Table, second: pa.Table) -> pa.Table:
    """Return the steps of `first`, filled in from `second` where they state nothing, and those only in `second`."""
    rows = {key: row for row, key in enumerate(_step_keys(second))}
    same = pa.array([rows.get(key) for key in _step_keys(first)], pa.int64())
    is_missing = np.ones(len(second), bool)
    is_missing[same.drop_null().to_numpy()] = False
    both = pa.concat_tables(
        [_filled(first, first, second.take(same), _STEPS_UNTOLD), second.filter(pa.array(is_missing))]
    )
    return both.take(pc.sort_indices(both["job"]))


def _tells_new_steps(told: pa.Table, stored: pa.Table, jobs: int) -> Flags:
    """Flag the jobs with a step in `told` that is not stored."""
    known = set(_step_keys(stored))
    flags = np.zeros(jobs, bool)
    flags[[job for job, step in _step_keys(told) if (job, step) not in known]] = True
    return flags


def _step_keys(steps: pa.Table) -> Iterator[tuple[int, str]]:
    return zip(steps["job"].to_pylist(), steps["step_id"].to_pylist(), strict=True)
