"""Turns rows into records: a job is either taken with all its steps, or set aside with all its lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting import columns, frames
from accounting.dumps.jobs import DumpSettings, read_jobs
from accounting.dumps.rows import NOTHING, Rows
from accounting.dumps.steps import read_steps
from accounting.frames import Records
from accounting.records import Quarantined
from accounting.slurm.sacct_records import went_on
from accounting.states import WENT_ON


def records_of(rows: Rows, settings: DumpSettings, cluster: str, source: str) -> Records:
    """Return ended, plausible jobs with their steps, and the implausible ones as their original lines.

    `cluster` is used if the rows name none; `source` says where the rows come from.
    """
    jobs = read_jobs(rows, settings, cluster)
    leader = np.flatnonzero(rows.is_job)
    of_job = pa.array(np.where(rows.group >= 0, np.append(leader, 0)[rows.group], 0))
    steps = read_steps(rows, settings, jobs["elapsed_s"].combine_chunks().take(of_job))
    finished = np.asarray(pc.not_equal(columns.outcomes(jobs["state"]), "unfinished"))[leader]
    rest = went_on(jobs.take(pa.array(leader)), steps.filter(pa.array(~rows.is_job & (rows.group >= 0))))
    rows.mark(np.isin(np.arange(len(rows.lines)), leader[rest & finished]), WENT_ON)
    doubted = np.zeros(len(leader), bool)
    doubted[rows.group[(rows.reasons != "") & (rows.group >= 0)]] = True
    taken = ~doubted & finished
    is_taken_step = ~rows.is_job & (rows.group >= 0) & np.append(taken, False)[rows.group]
    number = np.cumsum(taken) - 1
    kept = steps.filter(pa.array(is_taken_step))
    position = pa.array(number[np.asarray(kept["job"])], pa.int64())
    return Records(
        jobs=jobs.filter(pa.array(rows.is_job & np.append(taken, False)[rows.group])),
        steps=kept.set_column(0, frames.STEPS.field("job"), position),
        quarantined=tuple(_quarantined(rows, doubted, source)),
        unfinished=int(np.count_nonzero(~doubted & ~finished)),
    )


def _quarantined(rows: Rows, doubted: np.ndarray, source: str) -> Iterator[Quarantined]:
    """Yield the jobs in doubt, with all their lines, and the rejected lines that belong to no job."""
    order = np.argsort(rows.group, kind="stable")
    sorted_groups = rows.group[order]
    alone = [np.array([place]) for place in np.flatnonzero((rows.group < 0) & (rows.reasons != ""))]
    groups = np.flatnonzero(doubted)
    begins, ends = np.searchsorted(sorted_groups, groups), np.searchsorted(sorted_groups, groups, "right")
    jobs = [order[begin:end] for begin, end in zip(begins, ends, strict=True)]
    for places in sorted(chain(alone, jobs), key=lambda places: int(places[0])):
        why = next(place for place in places if rows.reasons[place])
        if rows.reasons[why] != NOTHING:
            yield Quarantined(
                line=f"line {rows.first + why}: " + "\n".join(rows.lines[place] for place in places),
                reason=rows.reasons[why],
                source=source,
            )
