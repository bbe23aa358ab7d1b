"""What became of the starts that the advisor predicted, from the store, to calibrate its intervals.

It decides how often the store is read, and how much of it; models/planning draws the conclusions.
"""

from __future__ import annotations

import math
import time

import numpy

from accounting.errors import StoreError
from models.planning.interval_calibration import LOOKED_BACK_S, UNCALIBRATED, Calibration, Outcomes, learned
from slurm_plugin.slurm.snapshot import Snapshot

# A store that does not answer is asked no more often either; one that has nothing yet is.
READ_EVERY_S, AT_FIRST_S = 600.0, 60.0
# At most this many rows for each quarter of a day: 28,000 in all.
PART_S, MOST_ROWS = 21_600.0, 250


class PastStarts:
    """Returns the calibration, moment by moment; if the store cannot be read, the last one, or raises StoreError."""

    def __init__(self, url: str, cluster: str) -> None:
        self._url = url
        self._cluster = cluster
        self._known: Calibration = UNCALIBRATED
        self._failure: StoreError | None = None
        self._due_s = 0.0

    def __call__(self, snapshot: Snapshot) -> Calibration:
        """Return how intervals are to be calibrated at the moment of a snapshot."""
        if time.monotonic() >= self._due_s:
            self._read(snapshot)
        if self._failure and not self._known:
            raise self._failure
        return self._known

    def _read(self, snapshot: Snapshot) -> None:
        pause_s = READ_EVERY_S
        try:
            found = read_outcomes(self._url, self._cluster, snapshot)
            self._known = learned(found, snapshot.time_s)
            self._failure = None
            if not len(found.told_s):
                pause_s = AT_FIRST_S
        except StoreError as error:
            self._failure = error
        self._due_s = time.monotonic() + pause_s


def read_outcomes(url: str, cluster: str, snapshot: Snapshot) -> Outcomes:
    """Return what was predicted in the last weeks, and its result; raises StoreError if the store cannot be read.

    The store only learns of a job once it has ended, so the snapshot completes it with running jobs; jobs that are in
    neither count for nothing.
    """
    from accounting.report.advisor_reading import read_recent_foreseen
    from accounting.store.database import hold_little, open_store

    engine = open_store(url)
    hold_little(engine)
    try:
        found = read_recent_foreseen(
            engine, cluster, snapshot.time_s, back_s=LOOKED_BACK_S, part_s=PART_S, most=MOST_ROWS
        )
    finally:
        engine.dispose()
    now = {
        # If nodes are powered up first, Slurm and its accounting count the start from when they are there.
        f"{cluster} {job.job_id} {int(job.submit_s)}": math.nan
        if job.waits or job.configuring
        else job.start_s
        for job in snapshot.jobs
        # An array's record stands for its tasks.
        if not job.array_job_id
    }
    came = numpy.isfinite(found.started_s)
    started_s = numpy.where(came, found.started_s, [now.get(job, math.nan) for job in found.job])
    known = came | numpy.array([job in now for job in found.job], dtype=bool)
    return Outcomes(
        told_s=found.told_s[known],
        foreseen_s=found.foreseen_s[known],
        low_s=found.low_s[known],
        high_s=found.high_s[known],
        started_s=started_s[known],
    )
