"""Upserts into PostgreSQL: COPY straight into the table if none of the keys is there, else by a temporary table."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, Table

from accounting.store.columns import parts, quoted
from accounting.store.counts import Counts
from accounting.store.database import refusing
from accounting.store.postgresql_binary import HEADER, TRAILER, encode_rows

if TYPE_CHECKING:
    from psycopg import Cursor

ROWS_A_WRITE = 20_000
PROBES = 64
_STAGING = "rightsizer_staging"
_ORDINAL = "rightsizer_ordinal"


def upsert(connection: Connection, table: Table, rows: pa.Table) -> Counts:
    """Write rows whose columns are those of `table`; see bulk.upsert.

    A few keys of the batch show whether it was written before. If none of them is there, but another key is, or one
    comes twice in the batch, COPY fails as a whole, is rolled back to the savepoint, and the rows are merged instead.
    """
    import psycopg

    driver: Any = connection.connection
    cursor: Cursor[Any]
    with refusing(connection), closing(driver.cursor()) as cursor:
        if not _some_are_there(cursor, table, rows):
            cursor.execute("SAVEPOINT rightsizer_copy")
            try:
                _copy(cursor, table.name, rows)
            except psycopg.errors.UniqueViolation:
                cursor.execute("ROLLBACK TO SAVEPOINT rightsizer_copy")
            else:
                cursor.execute("RELEASE SAVEPOINT rightsizer_copy")
                return Counts(new=rows.num_rows)
        return _merge(cursor, table, rows)


def _some_are_there(cursor: Cursor[Any], table: Table, rows: pa.Table) -> bool:
    key = table.primary_key.columns.keys()
    some = np.unique(np.linspace(0, rows.num_rows - 1, PROBES).astype(np.int64))
    probes = rows.select(key).take(pa.array(some)).to_pylist()
    row = f"({', '.join(['%s'] * len(key))})"
    query = (
        f'SELECT 1 FROM "{table.name}" WHERE ({quoted(key)}) IN ({", ".join([row] * len(probes))}) LIMIT 1'  # noqa: S608
    )
    cursor.execute(query.encode(), [value for probe in probes for value in probe.values()])
    return cursor.fetchone() is not None


def _copy(cursor: Cursor[Any], name: str, rows: pa.Table) -> None:
    """COPY in binary; columns without any value are left out.

    One thread encodes the next rows while another sends the previous ones.
    """
    from psycopg.copy import QueuedLibpqWriter

    names = [one for one in rows.column_names if rows[one].null_count < rows.num_rows]
    rows = rows.select(names)
    statement = f'COPY "{name}" ({quoted(names)}) FROM STDIN (FORMAT binary)'
    with cursor.copy(statement.encode(), writer=QueuedLibpqWriter(cursor)) as copy:
        copy.write(HEADER)
        for part in parts(rows, ROWS_A_WRITE):
            copy.write(encode_rows(part))
        copy.write(TRAILER)


def _merge(cursor: Cursor[Any], table: Table, rows: pa.Table) -> Counts:
    """COPY into a temporary table, then add what is new and overwrite what differs."""
    key = table.primary_key.columns.keys()
    kept = _last_of_each(rows, key)
    cursor.execute(f'CREATE TEMPORARY TABLE {_STAGING} (LIKE "{table.name}") ON COMMIT DROP'.encode())
    _copy(cursor, _STAGING, kept)
    names = list(table.columns.keys())
    others = [name for name in names if name not in key]
    merge = (
        f'WITH written AS (INSERT INTO "{table.name}" AS mine ({quoted(names)}) '  # noqa: S608
        f"SELECT {quoted(names)} FROM {_STAGING} ON CONFLICT ({quoted(key)}) {_on_conflict(others)} "
        # xmax is 0 in a row that no transaction has replaced: it was added.
        "RETURNING (mine.xmax = 0) AS added) "
        "SELECT COUNT(*) FILTER (WHERE added), COUNT(*) FILTER (WHERE NOT added) FROM written"
    )
    cursor.execute(merge.encode())
    new, changed = cursor.fetchone() or (0, 0)
    cursor.execute(f"DROP TABLE {_STAGING}".encode())
    return Counts(new=new, changed=changed, same=rows.num_rows - new - changed)


def _on_conflict(others: list[str]) -> str:
    if not others:
        return "DO NOTHING"
    changes = ", ".join(f'"{name}" = excluded."{name}"' for name in others)
    mine, theirs = quoted(others, "mine."), quoted(others, "excluded.")
    return f"DO UPDATE SET {changes} WHERE ({mine}) IS DISTINCT FROM ({theirs})"


def _last_of_each(rows: pa.Table, key: list[str]) -> pa.Table:
    """Return the rows without those whose key recurs later: one statement cannot write a row twice."""
    numbered = rows.select(key).append_column(_ORDINAL, pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(key, use_threads=False).aggregate([(_ORDINAL, "max")])
    if last.num_rows == rows.num_rows:
        return rows
    return rows.take(pa.array(np.sort(last[f"{_ORDINAL}_max"].to_numpy())))
