"""Records as they come back out of the store: what else comes to be known of them is labelled anew."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlalchemy import Connection, select

from accounting.frames import JOBS, STEPS, Records
from accounting.records import Key
from accounting.store.schema import attempts, portions, steps


def read_records(connection: Connection, job_ids: Sequence[int]) -> Records:
    """Return the records of stored attempts of jobs, so that they can be labelled anew."""
    jobs: list[dict[str, object]] = []
    own: list[dict[str, object]] = []
    place: dict[Key, int] = {}
    for chunk in portions(job_ids):
        clusters = set[str]()
        for row in connection.execute(select(attempts).where(attempts.c.job_id.in_(chunk))).mappings():
            place[row["cluster"], row["job_id"], row["submit_s"], row["start_s"]] = len(jobs)
            clusters.add(row["cluster"])
            jobs.append({**row, "tasks": row["num_tasks"], "digest": row["record_digest"]})
        if not clusters:
            continue
        # The key of steps begins with the cluster: without it all of them would be read.
        of_jobs = select(steps).where(steps.c.cluster.in_(clusters), steps.c.job_id.in_(chunk))
        for row in connection.execute(of_jobs).mappings():
            job = place[row["cluster"], row["job_id"], row["submit_s"], row["attempt_start_s"]]
            own.append({**row, "job": job})
    own.sort(key=lambda step: step["job"])  # type: ignore[arg-type, return-value]
    return Records(pa.Table.from_pylist(jobs, JOBS), pa.Table.from_pylist(own, STEPS))
