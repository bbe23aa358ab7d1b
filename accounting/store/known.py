"""What the store holds of a stretch of time already: so that what is read again is known, and counted as such."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, select

from accounting.frames import Ints
from accounting.store.schema import attempts

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
