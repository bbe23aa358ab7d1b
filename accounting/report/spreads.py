"""Medians and percentiles of chosen groups, in bounded memory. Pure: no clock, no database.

They come from counts in classes two per cent wide, each with the highest value that fell into it: a percentile is a
value that really occurred, at most two per cent above the exact one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from accounting.report.groups import PENDING_ROWS
from accounting.report.measures import spreads

CLASS_WIDTH = 1.02
# The class of 0: below that of the smallest positive number.
ZERO_CLASS = -100_000

# By key and name of `spreads`: the values at the requested shares.
Percentiles = Mapping[tuple[str, str], Sequence[float]]


class Spreading:
    """Adds up batches into classes, for only the groups with these `keys`."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = pa.array(keys, pa.string())
        self._classes: list[pa.Table] = []
        self._names: list[str] = []

    def add(self, batch: pa.Table, key: pa.Array) -> None:
        """Count a batch of attempts, given each one's key."""
        place = pc.index_in(key, value_set=self._keys)
        wanted = pc.is_valid(place)
        place, columns = place.filter(wanted), spreads(batch.filter(wanted))
        self._names = list(columns)
        parts = [_classified(place, number, values) for number, values in enumerate(columns.values())]
        self._classes.append(_merged(pa.concat_tables(parts)))
        settled, *pending = (table.num_rows for table in self._classes)
        if sum(pending) > max(PENDING_ROWS, settled):
            self._classes = [_merged(pa.concat_tables(self._classes))]

    def percentiles(self, shares: Sequence[float]) -> Percentiles:
        """Return the values at the shares (0..1), for everything that occurred."""
        seen: dict[tuple[str, str], list[tuple[float, int]]] = {}
        if self._classes:
            merged = _merged(pa.concat_tables(self._classes))
            columns = (merged[name].to_pylist() for name in ("key", "name", "highest", "count"))
            for key, name, value, count in zip(*columns, strict=True):
                seen.setdefault((self._keys[key].as_py(), self._names[name]), []).append((value, count))
        return {at: [_at(sorted(values), share) for share in shares] for at, values in seen.items()}


def classes_of(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """Return the class of each value (>= 0): values in one class lie within two per cent of each other."""
    positive = np.maximum(values, np.finfo(np.float64).tiny)
    found = np.floor(np.log(positive) / math.log(CLASS_WIDTH))
    return np.where(values > 0, found, ZERO_CLASS).astype(np.int32)


def _classified(place: pa.Array, name: int, values: pa.Array) -> pa.Table:
    there = pc.is_valid(values)
    amounts = values.filter(there)
    return pa.table(
        {
            "key": place.filter(there),
            "name": pa.array(np.full(len(amounts), name, np.int32)),
            "class": pa.array(classes_of(amounts.to_numpy())),
            "highest": amounts,
            "count": pa.array(np.ones(len(amounts), np.int64)),
        }
    )


def _merged(table: pa.Table) -> pa.Table:
    grouped = table.group_by(["key", "name", "class"]).aggregate([("highest", "max"), ("count", "sum")])
    named = grouped.rename_columns(
        [name.removesuffix("_max").removesuffix("_sum") for name in grouped.column_names]
    )
    return named.select(["key", "name", "class", "highest", "count"])


def _at(values: Sequence[tuple[float, int]], share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed."""
    need = share * sum(count for _, count in values)
    passed = 0
    for value, count in values:
        passed += count
        if passed >= need - 1e-9:
            return value
    return values[-1][0]
