"""What the store holds already: what is read again is known by it; what else comes to be known is labelled anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, select

from accounting.frames import JOBS, STEPS, Ints, Records
from accounting.store.schema import KEYS_A_QUERY, attempts, steps

Key = tuple[str, int, int, int]


@dataclass(frozen=True)
class Known:
    """Attempts of the store: their keys (cluster, job id, submit, start), and the digests of their records."""

    keys: frozenset[Key]
    digests: Ints

    def has(self, table: pa.Table) -> int:
        """Return how many rows of a table of attempts are there under their keys already."""
        columns = (table[name].to_pylist() for name in ("cluster", "job_id", "submit_s", "start_s"))
        return sum(key in self.keys for key in zip(*columns, strict=True))


def read_known(connection: Connection, since_s: int, until_s: int) -> Known:
    """Return what is known of attempts that ended in a window of unix seconds, both ends included."""
    columns = attempts.c
    query = select(
        columns.cluster, columns.job_id, columns.submit_s, columns.start_s, columns.record_digest
    ).where(columns.end_s.between(since_s, until_s))
    rows = connection.execute(query).all()
    digests = [row[4] for row in rows if row[4] is not None]
    return Known(
        frozenset((row[0], row[1], row[2], row[3]) for row in rows), np.array(digests, dtype=np.int64)
    )


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
