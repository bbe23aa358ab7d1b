"""Rows by the hundred thousand into the store, by the fastest way that each database has. Idempotent by primary key.

Rows that are there as they are given are not written again, so that reading a day once more costs no log and no
vacuum. All happens in the caller's transaction; see `writing` in database.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, bindparam, delete, select, text

from accounting.store import bulk_mariadb, bulk_postgresql, bulk_sqlite, schema
from accounting.store.columns import as_stored
from accounting.store.counts import Counts
from accounting.store.schema import COLLATION, NAME

# As many as are held a second time, in the form that the driver takes, at any moment.
ROWS_AT_ONCE = 250_000

_UPSERTS: dict[str, Callable[[Connection, Table, pa.Table], Counts]] = {
    "sqlite": bulk_sqlite.upsert,
    "postgresql": bulk_postgresql.upsert,
    "mariadb": bulk_mariadb.upsert,
}
# What was written in this transaction, to find what must go: the keys of attempts, and of their steps.
_temporary = MetaData()
_ATTEMPT_KEY = ("cluster", "job_id", "submit_s", "attempt_start_s")
_STEP_KEY = (*_ATTEMPT_KEY, "step_id")


def upsert(connection: Connection, table: Table, rows: pa.Table) -> Counts:
    """Add the rows whose key is new, overwrite those that differ, leave the rest; the last of one key wins.

    `rows` has the columns of `table`; those that are missing are null. Of rows of one key, the counts may call the
    first new and the others changed or same.
    """
    counts = Counts()
    stored = as_stored(table, rows)
    for begin in range(0, stored.num_rows, ROWS_AT_ONCE):
        part = stored.slice(begin, ROWS_AT_ONCE)
        counts += _UPSERTS[connection.dialect.name](connection, table, part)
    return counts


def upsert_attempts(connection: Connection, attempts: pa.Table, steps: pa.Table) -> tuple[Counts, Counts]:
    """Write attempts with all of their steps; steps that an attempt had before and has no more are deleted.

    Returns the counts of attempts and of steps. Every step's attempt must be among `attempts`.
    """
    of_attempts = upsert(connection, schema.attempts, attempts)
    if of_attempts.new < attempts.num_rows:
        _delete_old_steps(connection, attempts, steps)
    return of_attempts, upsert(connection, schema.steps, steps)


def known_digests(connection: Connection, begin_s: int, end_s: int) -> npt.NDArray[np.int64]:
    """Return the digests of the records in the store whose attempts ended in a window, both ends included."""
    table = schema.attempts.c
    query = select(table.record_digest).where(
        table.end_s.between(begin_s, end_s), table.record_digest.is_not(None)
    )
    found = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(query)
    return np.fromiter(found.scalars(), np.int64)


def _key_table(name: str, names: tuple[str, ...]) -> Table:
    return Table(
        name,
        _temporary,
        *(
            Column(
                one,
                NAME if one in ("cluster", "step_id") else BigInteger,
                primary_key=True,
                autoincrement=False,
            )
            for one in names
        ),
        prefixes=["TEMPORARY"],
        mariadb_charset="utf8mb4",
        mariadb_collate=COLLATION,
    )


_WRITTEN_ATTEMPTS = _key_table("written_attempts", _ATTEMPT_KEY)
_WRITTEN_STEPS = _key_table("written_steps", _STEP_KEY)


def _delete_old_steps(connection: Connection, attempts: pa.Table, steps: pa.Table) -> None:
    """Delete steps of these attempts that are not among these steps."""
    keys = attempts.select(["cluster", "job_id", "submit_s", "start_s"]).rename_columns(_ATTEMPT_KEY)
    for table, rows in ((_WRITTEN_ATTEMPTS, keys), (_WRITTEN_STEPS, steps.select(_STEP_KEY))):
        table.create(connection)
        upsert(connection, table, rows)
    old = [dict(row) for row in connection.execute(_OLD_STEPS).mappings()]
    if old:
        steps_c = schema.steps.c
        connection.execute(
            delete(schema.steps).where(*(steps_c[name] == bindparam(name) for name in _STEP_KEY)), old
        )
    for table in (_WRITTEN_ATTEMPTS, _WRITTEN_STEPS):
        connection.execute(
            text(f"DROP {'TEMPORARY ' * (connection.dialect.name == 'mariadb')}TABLE {table.name}")
        )


def _same(one: str, other: str, names: tuple[str, ...]) -> str:
    return " AND ".join(f"{one}.{name} = {other}.{name}" for name in names)


# SQLite takes the tables of a CROSS JOIN in the order in which they stand: few attempts, then their steps by the key.
_OLD_STEPS = text(
    f"SELECT {', '.join(f's.{name}' for name in _STEP_KEY)} "  # noqa: S608
    "FROM written_attempts a CROSS JOIN steps s "
    f"LEFT JOIN written_steps w ON {_same('w', 's', _STEP_KEY)} "
    f"WHERE {_same('s', 'a', _ATTEMPT_KEY)} AND w.step_id IS NULL"
)
