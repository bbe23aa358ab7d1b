"""Records as they come back out of the store: what else comes to be known of them is labelled anew."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlalchemy import Connection, select

from accounting.frames import JOBS, STEPS, Records
from accounting.store.schema import KEYS_A_QUERY, attempts, steps

Key = tuple[str, int, int, int]


def read_records(connection: Connection, job_ids: Sequence[int]) -> Records:
    """Return the records of stored attempts of jobs, so that they can be labelled anew."""
    jobs: list[dict[str, object]] = []
    own: list[dict[str, object]] = []
    place: dict[Key, int] = {}
    for begin in range(0, len(job_ids), KEYS_A_QUERY):
        chunk = job_ids[begin : begin + KEYS_A_QUERY]
        for row in connection.execute(select(attempts).where(attempts.c.job_id.in_(chunk))).mappings():
            place[row["cluster"], row["job_id"], row["submit_s"], row["start_s"]] = len(jobs)
            jobs.append({**row, "tasks": row["num_tasks"], "digest": row["record_digest"]})
        for row in connection.execute(select(steps).where(steps.c.job_id.in_(chunk))).mappings():
            job = place[row["cluster"], row["job_id"], row["submit_s"], row["attempt_start_s"]]
            own.append({**row, "job": job})
    own.sort(key=lambda step: step["job"])  # type: ignore[arg-type, return-value]
    return Records(pa.Table.from_pylist(jobs, JOBS), pa.Table.from_pylist(own, STEPS))
