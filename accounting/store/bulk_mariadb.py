"""Upserts into MariaDB: multi-row statements, whose text is built column by column.

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
STATEMENT_BYTES = 2**20  # and at most half of what the server accepts in one packet
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
    """Return what precedes and follows the rows in an INSERT, which leaves rows that are stored unchanged alone."""
    names = list(table.columns.keys())
    key = table.primary_key.columns.keys()
    changed = [name for name in names if name not in key] or key[:1]
    changes = ", ".join(f"`{name}` = VALUES(`{name}`)" for name in changed)
    columns = ", ".join(f"`{name}`" for name in names)
    return f"INSERT INTO `{table.name}` ({columns}) VALUES (", f") ON DUPLICATE KEY UPDATE {changes}"  # noqa: S608


def _statements(rows: pa.Table, most_bytes: int) -> Iterator[list[str]]:
    """Yield rows as SQL, as many as fit into a statement."""
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
    """Return values as SQL literals; null stays null."""
    if not pa.types.is_string(values.type):
        return values.cast(pa.string())
    escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), "'", "\\'")
    return pc.binary_join_element_wise("'", escaped, "'", "")


def _counts(cursor: DBAPICursor, rows: int) -> Counts:
    """Return what a statement did: an added row counts once, a changed one twice, others not at all."""
    affected = int(cursor.rowcount)
    if rows == 1:
        changed = affected // 2
    else:
        # With several rows the server sends "Records: 3  Duplicates: 1  Warnings: 0", which the driver does not expose.
        told = _DUPLICATES.search(bytes(cursor._result.message).decode())  # noqa: SLF001
        changed = int(told[1]) if told else 0
    new = affected - 2 * changed
    return Counts(new=new, changed=changed, same=rows - new - changed)
