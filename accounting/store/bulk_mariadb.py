"""Upserts into MariaDB: statements of many rows, whose text is made a column at a time.

LOAD DATA LOCAL would let any server that a client talks to read the client's files; it stays switched off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Table
from sqlalchemy.engine.interfaces import DBAPICursor

from accounting.store.columns import parts
from accounting.store.counts import Counts
from accounting.store.database import refusing

ROWS_AT_ONCE = 20_000
STATEMENT_BYTES = 2**20  # and half of what the server takes in one packet, at most
_DUPLICATES = re.compile(r"Duplicates: (\d+)")


def upsert(connection: Connection, table: Table, rows: pa.Table) -> Counts:
    """Write rows whose columns are those of `table`; see bulk.upsert."""
    head, tail = _statement(table)
    counts = Counts()
    with refusing(connection), closing(connection.connection.cursor()) as cursor:
        cursor.execute("SELECT @@max_allowed_packet")
        [packet_bytes] = cursor.fetchone() or (STATEMENT_BYTES,)
        most_bytes = min(STATEMENT_BYTES, int(packet_bytes) // 2)
        for part in parts(rows, ROWS_AT_ONCE):
            for written in _statements(part, most_bytes):
                cursor.execute(head + "),(".join(written) + tail)
                counts += _counts(cursor, len(written))
    return counts


def _statement(table: Table) -> tuple[str, str]:
    """Return what stands before and after the rows of an INSERT; it writes no row that is there as it is."""
    names = list(table.columns.keys())
    key = table.primary_key.columns.keys()
    changed = [name for name in names if name not in key] or key[:1]
    changes = ", ".join(f"`{name}` = VALUES(`{name}`)" for name in changed)
    columns = ", ".join(f"`{name}`" for name in names)
    return f"INSERT INTO `{table.name}` ({columns}) VALUES (", f") ON DUPLICATE KEY UPDATE {changes}"  # noqa: S608


def _statements(rows: pa.Table, most_bytes: int) -> Iterator[list[str]]:
    """Yield rows as SQL, as many as a statement may hold."""
    columns = [_literals(rows[name].combine_chunks()) for name in rows.column_names]
    # The separator is the last argument.
    texts = pc.binary_join_element_wise(*columns, ",", null_handling="replace", null_replacement="NULL")
    ends = np.cumsum(pc.binary_length(texts).to_numpy() + len("),("))
    begin = 0
    while begin < len(texts):
        used = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, used + most_bytes, side="right")))
        yield texts.slice(begin, end - begin).to_pylist()
        begin = end


def _literals(values: pa.Array) -> pa.Array:
    """Return values as SQL's literals; null stays null."""
    if not pa.types.is_string(values.type):
        return values.cast(pa.string())
    escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), "'", "\\'")
    return pc.binary_join_element_wise("'", escaped, "'", "")


def _counts(cursor: DBAPICursor, rows: int) -> Counts:
    """Read what a statement did: rows that are added count once, rows that are changed twice, others not at all."""
    affected = int(cursor.rowcount)
    if rows == 1:
        changed = affected // 2
    else:
        # «Records: 3  Duplicates: 1  Warnings: 0» comes with several rows; the driver has no name for it.
        told = _DUPLICATES.search(bytes(cursor._result.message).decode())  # noqa: SLF001
        changed = int(told[1]) if told else 0
    new = affected - 2 * changed
    return Counts(new=new, changed=changed, same=rows - new - changed)
