"""Columns as every database accepts them: their types, and texts without what PostgreSQL or a key refuses. Pure.

The same rows have the same content in every database: NUL and half a surrogate pair become U+FFFD, figures that are
not finite become unknown, a count beyond its column's range becomes the largest in range (anybody may request
3,600,000,000 CPUs, and slurmdbd keeps that), and a key longer than an index accepts ends in a digest of itself, so
that two such keys stay distinct.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Column, Double, Integer, String, Table

from accounting.errors import StoreError
from accounting.store.batches import arrow_type
from accounting.store.schema import NAME

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_DIGEST_CHARACTERS = 32
MOST_COUNT = 2**31 - 1
PART_BYTES = 2**26


def as_stored(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows with the columns of `table`, in its order and as stored; StoreError if a value cannot be stored.

    Missing columns are null; columns that the table does not have are the caller's error.
    """
    foreign = set(rows.column_names) - set(table.columns.keys())
    if foreign:
        raise ValueError(f"{table.name} has no columns {', '.join(sorted(foreign))}")
    columns = {
        column.name: _stored(column, rows[column.name])
        if column.name in rows.column_names
        else pa.chunked_array([pa.nulls(rows.num_rows, arrow_type(column.type))])
        for column in table.columns
    }
    return pa.table(columns)


def from_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows of Python values as columns, with counts of any size."""
    listed = list(rows)
    names = [name for name in table.c.keys() if not listed or name in listed[0]]  # noqa: SIM118
    return pa.table(
        {
            name: pa.array([_encodable(row[name]) for row in listed], type=_widest_type(table.columns[name]))
            for name in names
        }
    )


def parts(rows: pa.Table, most_rows: int) -> Iterator[pa.Table]:
    """Yield rows in parts of `most_rows` at most, fewer if their texts are long."""
    fitting = PART_BYTES * rows.num_rows // max(1, rows.nbytes)
    each = max(1, min(most_rows, fitting))
    for begin in range(0, rows.num_rows, each):
        yield rows.slice(begin, each)


def quoted(names: Iterable[str], before: str = "") -> str:
    """Return the names of columns as SQL has them, each with `before` in front."""
    return ", ".join(f'{before}"{name}"' for name in names)


def _widest_type(column: Column[Any]) -> pa.DataType:
    return pa.int64() if isinstance(column.type, Integer) else arrow_type(column.type)


def _encodable(value: object) -> object:
    """Return a value with halves of surrogate pairs replaced, which are not text in any encoding."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")


def _stored(column: Column[Any], values: pa.ChunkedArray) -> pa.ChunkedArray:
    if arrow_type(column.type) == pa.int32() and pa.types.is_int64(values.type):
        values = pc.min_element_wise(values, MOST_COUNT, skip_nulls=False)
    try:
        values = values.cast(arrow_type(column.type))
    except pa.ArrowInvalid as error:
        raise StoreError(
            f"{column.table.name}.{column.name} does not accept {error}; leave that record out"
        ) from None
    if isinstance(column.type, Double):
        return _finite(values)
    if isinstance(column.type, String):
        values = _without_nul(values)
        return _indexable(values) if column.type is NAME else values
    return values


def _finite(values: pa.ChunkedArray) -> pa.ChunkedArray:
    finite = pc.is_finite(values)
    if pc.all(finite).as_py() is not False:
        return values
    return pc.if_else(finite, values, pa.scalar(None, pa.float64()))


def _without_nul(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring(values, "\0", UNKNOWN) if _has_nul(values) else values


def _has_nul(values: pa.ChunkedArray) -> bool:
    """Whether the texts' bytes hold a zero: ten times faster than searching text by text."""
    for chunk in values.chunks:
        _, offsets, text = chunk.buffers()
        if text is None:
            continue
        ends = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        used = np.frombuffer(text, np.uint8)[ends[0] : ends[-1]]
        if used.size and not used.min():
            return True
    return False


def _indexable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    most = NAME.length or 0
    if (pc.max(pc.utf8_length(values)).as_py() or 0) <= most:
        return values
    return pa.chunked_array([[_shortened(value, most) for value in values.to_pylist()]], pa.string())


def _shortened(text: str | None, most: int) -> str | None:
    if text is None or len(text) <= most:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{text[: most - len(digest) - 1]}~{digest}"
