"""Reads rows of the store as columns, a bounded number at a time, for reports and exports."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import BigInteger, Double, Engine, Integer, Select, func, select
from sqlalchemy.types import TypeEngine

from accounting.errors import StoreError

# Some 60 columns of this many rows are 50 MB at most, as Python objects and as columns.
ROWS_A_BATCH = 20_000


def arrow_type(kind: TypeEngine[object]) -> pa.DataType:
    """Return the Arrow type for a column type of the store."""
    if isinstance(kind, Double):
        return pa.float64()
    if isinstance(kind, BigInteger):
        return pa.int64()
    return pa.int32() if isinstance(kind, Integer) else pa.string()


def arrow_schema(query: Select[tuple[object, ...]]) -> pa.Schema:
    """Return the columns of a query, by name and type."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in query.selected_columns])


def read_batches(
    engine: Engine, query: Select[tuple[object, ...]], rows: int = ROWS_A_BATCH
) -> Iterator[pa.Table]:
    """Yield a query's rows in tables of at most `rows`, as they come from the database.

    A figure that is not finite becomes null (not known). Raises StoreError if a value in the store does not fit its
    column's type. None of our programs writes either.
    """
    schema = arrow_schema(query)
    with engine.connect().execution_options(yield_per=rows) as connection:
        for part in connection.execute(query).partitions():
            columns = zip(*part, strict=True)
            try:
                arrays = [_array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            except (pa.ArrowException, OverflowError, UnicodeError) as error:
                raise StoreError(
                    f"the store has a value that does not fit its column: {error}; ingest that time "
                    "again, or correct the row"
                ) from None
            yield pa.Table.from_arrays(arrays, schema=schema)


def _array(values: tuple[object, ...], kind: pa.DataType) -> pa.Array:
    array = pa.array(values, kind)
    return pc.if_else(pc.is_finite(array), array, None) if kind == pa.float64() else array


def count_rows(engine: Engine, query: Select[tuple[object, ...]]) -> int:
    """Return how many rows a query has."""
    counted = select(func.count()).select_from(query.order_by(None).subquery())
    with engine.connect() as connection:
        return int(connection.execute(counted).scalar_one())
