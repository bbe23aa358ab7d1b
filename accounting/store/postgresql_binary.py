"""Encodes rows for PostgreSQL's binary COPY, column by column. Pure.

Neither side formats or parses digits, which costs the server two thirds of what CSV does, and us half. A field is
its length in four bytes and its value, both big-endian; a length of -1 is null.
https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format"
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_NUMBERS = {pa.int64(): ">i8", pa.int32(): ">i4", pa.float64(): ">f8"}
# If there are this many times fewer distinct texts than rows, each is made only once.
_REPEATED = 4


def encode_rows(rows: pa.Table) -> memoryview:
    """Return rows as tuples; between HEADER and TRAILER, parts may follow each other."""
    fields = [_fields(rows[name].combine_chunks()) for name in rows.column_names]
    count = pa.scalar(len(fields).to_bytes(2, "big"), pa.binary())
    # The separator is the last argument.
    tuples = pc.binary_join_element_wise(count, *fields, b"", null_handling="replace", null_replacement=_NULL)
    _, offsets, content = tuples.buffers()
    ends = np.frombuffer(offsets, np.int32)[tuples.offset : tuples.offset + len(tuples) + 1]
    return memoryview(content)[ends[0] : ends[-1]]


def _fields(values: pa.Array) -> pa.Array:
    if not pa.types.is_string(values.type):
        return _numbers(values)
    encoded = values.dictionary_encode()
    if len(encoded.dictionary) * _REPEATED < len(values):
        return _texts(encoded.dictionary).take(encoded.indices)
    return _texts(values)


def _texts(values: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(">i4")
    return pc.binary_join_element_wise(_fixed(lengths), values.cast(pa.binary()), b"")


def _numbers(values: pa.Array) -> pa.Array:
    """Return numbers as fields; null stays null."""
    raw = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(_NUMBERS[values.type])
    fields = np.empty((len(raw), 4 + raw.itemsize), np.uint8)
    fields[:, :4] = (0, 0, 0, raw.itemsize)
    fields[:, 4:] = raw.view(np.uint8).reshape(len(raw), raw.itemsize)
    made = _fixed(fields)
    return pc.if_else(values.is_valid(), made, pa.scalar(None, pa.binary())) if values.null_count else made


def _fixed(values: npt.NDArray[Any]) -> pa.Array:
    """Return each row's bytes as one value."""
    count, width = len(values), values.nbytes // max(1, len(values))
    offsets = np.arange(count + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(values)]
    )
