"""Upserts into SQLite: the driver's executemany, with values that are the same in all rows written only once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Table
from sqlalchemy.engine.interfaces import DBAPICursor

from accounting.store.columns import quoted
from accounting.store.counts import Counts
from accounting.store.database import refusing

ROWS_A_STATEMENT = 20_000
# If there are this many times fewer distinct texts than rows, each is made only once.
REPEATED = 4


def upsert(connection: Connection, table: Table, rows: pa.Table) -> Counts:
    """Write rows whose columns are those of `table`; see bulk.upsert."""
    written = 0
    with refusing(connection), closing(connection.connection.cursor()) as cursor:
        before = _last_row(cursor, table)
        for begin in range(0, rows.num_rows, ROWS_A_STATEMENT):
            part = rows.slice(begin, ROWS_A_STATEMENT)
            constants = {
                name: said for name in part.column_names if (said := _constant(part[name])) is not None
            }
            varying = [_values(part[name]) for name in part.column_names if name not in constants]
            # The driver accepts any iterable: no row is made before its turn.
            tuples = cast("Sequence[tuple[Any, ...]]", zip(*varying, strict=True))
            cursor.executemany(_statement(table, constants), tuples)
            written += cursor.rowcount
        # Added rows have the numbers after the last one: nobody else writes meanwhile.
        new = _last_row(cursor, table) - before
    return Counts(new=new, changed=written - new, same=rows.num_rows - written)


def _last_row(cursor: DBAPICursor, table: Table) -> int:
    cursor.execute(f'SELECT COALESCE(MAX(rowid), 0) FROM "{table.name}"')  # noqa: S608
    [last] = cursor.fetchone() or (0,)
    return int(last)


def _constant(values: pa.ChunkedArray) -> str | None:
    """Return the value that all rows share as SQL, which may be in a key column; None if they differ."""
    if values.null_count == len(values):
        return "NULL"
    if not pa.types.is_string(values.type) or values.null_count or values[0] != values[-1]:
        return None
    text = values[0].as_py()
    return "'" + text.replace("'", "''") + "'" if pc.all(pc.equal(values, text)).as_py() else None


def _statement(table: Table, constants: dict[str, str]) -> str:
    """Return an INSERT with a placeholder for every non-constant column; it leaves unchanged rows alone."""
    names = list(table.columns.keys())
    key = table.primary_key.columns.keys()
    others = [name for name in names if name not in key]
    places = ", ".join(constants.get(name, "?") for name in names)
    insert = f'INSERT INTO "{table.name}" ({quoted(names)}) VALUES ({places}) ON CONFLICT ({quoted(key)})'  # noqa: S608
    if not others:
        return f"{insert} DO NOTHING"
    changes = ", ".join(f'"{name}" = excluded."{name}"' for name in others)
    mine, theirs = quoted(others, f'"{table.name}".'), quoted(others, "excluded.")
    return f"{insert} DO UPDATE SET {changes} WHERE ({mine}) IS NOT ({theirs})"


def _values(values: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_string(values.type):
        encoded = values.combine_chunks().dictionary_encode()
        if len(encoded.dictionary) * REPEATED < len(values):
            words = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
            which = pc.fill_null(encoded.indices, len(words) - 1).to_numpy()
            repeated: list[Any] = words[which].tolist()
            return repeated
    listed: list[Any] = values.to_pylist()
    return listed
