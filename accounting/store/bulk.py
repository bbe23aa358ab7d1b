"""Writes rows to the store by the hundred thousand, with each database's fastest method. Idempotent by primary key.

Rows that are stored unchanged are not written again, so that reading a day once more costs no log and no vacuum.
Everything happens in the caller's transaction; see `writing` in database.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import Connection, Table, select

from accounting.store import bulk_mariadb, bulk_postgresql, bulk_sqlite, schema
from accounting.store.columns import as_stored
from accounting.store.counts import Counts

# How many rows are held twice at any moment, the second time in the driver's form.
ROWS_AT_ONCE = 250_000

_UPSERTS: dict[str, Callable[[Connection, Table, pa.Table], Counts]] = {
    "sqlite": bulk_sqlite.upsert,
    "postgresql": bulk_postgresql.upsert,
    "mariadb": bulk_mariadb.upsert,
}


def upsert(connection: Connection, table: Table, rows: pa.Table) -> Counts:
    """Add rows with a new key, overwrite those that differ, leave the rest; of rows with the same key the last wins.

    `rows` has columns of `table`; missing ones are null. Of several rows with the same key, the counts may call the
    first new and the others changed or same.
    """
    counts = Counts()
    stored = as_stored(table, rows)
    for begin in range(0, stored.num_rows, ROWS_AT_ONCE):
        part = stored.slice(begin, ROWS_AT_ONCE)
        counts += _UPSERTS[connection.dialect.name](connection, table, part)
    return counts


def upsert_attempts(connection: Connection, attempts: pa.Table, steps: pa.Table) -> tuple[Counts, Counts]:
    """Write attempts and some of their steps; other stored steps of theirs stay.

    Returns the counts of attempts and of steps. Every step's attempt must be among `attempts`.
    """
    return upsert(connection, schema.attempts, attempts), upsert(connection, schema.steps, steps)


def known_digests(connection: Connection, begin_s: int, end_s: int) -> npt.NDArray[np.int64]:
    """Return the digests of stored records whose attempts ended in a window, both ends included."""
    table = schema.attempts.c
    query = select(table.record_digest).where(
        table.end_s.between(begin_s, end_s), table.record_digest.is_not(None)
    )
    found = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(query)
    return np.fromiter(found.scalars(), np.int64)
