"""Sums, highest values and percentiles of attempts by family and user, in bounded memory. Pure: no clock, no database.

Percentiles come from counts in classes two per cent wide, each with the highest value that fell into it: a percentile
is a value that was really seen, at most two per cent above the exact one. Sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.report.measures import highest, measures, spreads

CLASS_WIDTH = 1.02
# Class of what is 0: below that of the smallest positive number.
ZERO_CLASS = -100_000
# Between what is counted, the parts of a key; no user or account of Slurm's has it.
SEPARATOR = "\x1f"
REST = "(all others)"
# As many families are told apart. Those that were given the least beyond them are counted under REST of their user.
MOST_FAMILIES = 200_000
# So many rows of unfinished sums at least are kept before they are added up.
PENDING_ROWS = 400_000

FamilyOf = Callable[[str, str], str]


@dataclass(frozen=True)
class Groups:
    """One row a group: `key`, the sums of `measures` by name, the highest values of `highest`.

    `classes` has a row for each key, name of `spreads` and class: `count` and the `highest` value seen in it. `folded`
    counts the families that were put under REST.
    """

    sums: pa.Table
    classes: pa.Table
    folded: int = 0


class Gathering:
    """Batch by batch into groups; `most_families` bounds the memory, whatever the store holds."""

    def __init__(self, keys: Sequence[str], family_of: FamilyOf, most_families: int = MOST_FAMILIES) -> None:
        self._keys = keys
        self._family_of = family_of
        self._most = most_families
        self._sums: list[pa.Table] = []
        self._classes: list[pa.Table] = []
        self._folded = 0
        self._pending = 0
        self._settled = 0

    def add(self, batch: pa.Table, more: Mapping[str, pa.Array] | None = None) -> None:
        """Count a batch of attempts with the columns of `usage_query`; `more` are columns that are summed too."""
        key = group_keys(batch, self._keys, self._family_of)
        sums = pa.table({"key": key, **measures(batch), **highest(batch), **(more or {})})
        self._sums.append(_added(sums))
        self._classes.append(_merged(_classes_table(batch, key)))
        self._pending += self._sums[-1].num_rows + self._classes[-1].num_rows
        if self._pending > max(PENDING_ROWS, self._settled):
            self._settle()

    def groups(self) -> Groups | None:
        """Return what was counted; None before the first batch."""
        if not self._sums:
            return None
        self._settle()
        return Groups(self._sums[0], self._classes[0], self._folded)

    def _settle(self) -> None:
        sums = _added(pa.concat_tables(self._sums))
        classes = _merged(pa.concat_tables(self._classes))
        small = small_families(sums, self._most)
        if len(small):
            self._folded += len(small)
            sums = _added(_renamed(sums, small))
            classes = _merged(_renamed(classes, small))
        self._sums, self._classes = [sums], [classes]
        self._pending, self._settled = 0, sums.num_rows + classes.num_rows


def group_keys(batch: pa.Table, keys: Sequence[str], family_of: FamilyOf) -> pa.Array:
    """Return each attempt's key: the columns named, then its family."""
    both = pc.binary_join_element_wise(batch["script_signature"], batch["job_name"], SEPARATOR)
    encoded = pc.dictionary_encode(both.combine_chunks())
    families = [
        family_of(name, signature).replace(SEPARATOR, " ")
        for signature, _, name in (text.as_py().partition(SEPARATOR) for text in encoded.dictionary)
    ]
    family = pa.array(families, pa.string()).take(encoded.indices)
    return pc.binary_join_element_wise(*(batch[name].combine_chunks() for name in keys), family, SEPARATOR)


def rolled_up(groups: Groups, parts: int) -> Groups:
    """Return the groups of the first `parts` parts of the keys."""

    def shortened(table: pa.Table) -> pa.Table:
        short = [SEPARATOR.join(key.split(SEPARATOR)[:parts]) for key in table["key"].to_pylist()]
        return table.set_column(0, "key", pa.array(short, pa.string()))

    return Groups(_added(shortened(groups.sums)), _merged(shortened(groups.classes)), groups.folded)


def sums_of(groups: Groups, rows: int = 5_000) -> Iterator[dict[str, Any]]:
    """Yield the rows of the sums, a few at a time: all of them as Python's numbers would not fit the memory."""
    for part in groups.sums.to_batches(max_chunksize=rows):
        yield from part.to_pylist()


def total(groups: Groups, name: str) -> float:
    """Return one sum over all groups."""
    return float(pc.sum(groups.sums[name]).as_py() or 0.0)


def small_families(sums: pa.Table, most: int) -> pa.Array:
    """Return the keys of all families beyond the `most` that were given most, none while there are no more."""
    if sums.num_rows <= most:
        return pa.array([], pa.string())
    given = pc.add(pc.add(sums["core_h_granted"], sums["mem_gib_h_granted"]), sums["gpu_h_granted"])
    # Half of the room is freed at once: what comes next must not fold again with every batch.
    order = pc.sort_indices(given, sort_keys=[("", "descending")])
    keys = sums["key"].take(order).slice(max(1, most // 2)).combine_chunks()
    return keys.filter(pc.invert(pc.ends_with(keys, SEPARATOR + REST)))


def percentiles(
    groups: Groups, keys: Sequence[str], shares: Sequence[float]
) -> dict[tuple[str, str], list[float]]:
    """Return for each of the keys and each name of `spreads` the values at the shares (0..1), where any was seen."""
    wanted = groups.classes.filter(pc.is_in(groups.classes["key"], value_set=pa.array(keys, pa.string())))
    seen: dict[tuple[str, str], list[tuple[float, float]]] = {}
    columns = (wanted[name].to_pylist() for name in ("key", "name", "highest", "count"))
    for key, name, value, count in zip(*columns, strict=True):
        seen.setdefault((key, name), []).append((value, count))
    return {at: [_at(sorted(values), share) for share in shares] for at, values in seen.items()}


def _at(values: Sequence[tuple[float, float]], share: float) -> float:
    """Return the smallest value that at least `share` of all do not exceed."""
    need = share * sum(count for _, count in values)
    passed = 0.0
    for value, count in values:
        passed += count
        if passed >= need - 1e-9:
            return value
    return values[-1][0]


def _classes_table(batch: pa.Table, key: pa.Array) -> pa.Table:
    parts = []
    for name, values in spreads(batch).items():
        there = pc.is_valid(values)
        amounts = values.filter(there)
        parts.append(
            pa.table(
                {
                    "key": key.filter(there),
                    "name": pa.array([name] * len(amounts), pa.string()),
                    "class": pa.array(classes_of(amounts.to_numpy())),
                    "highest": amounts,
                    "count": pa.array(np.ones(len(amounts))),
                }
            )
        )
    return pa.concat_tables(parts)


def classes_of(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return the class of each value (>= 0): those within two per cent of each other share one."""
    positive = np.maximum(values, np.finfo(np.float64).tiny)
    found = np.floor(np.log(positive) / math.log(CLASS_WIDTH))
    return np.where(values > 0, found, ZERO_CLASS).astype(np.int32)


def _added(table: pa.Table) -> pa.Table:
    """Return one row a key: sums, and the maximum of the highest values."""
    maxima = [name for name in table.column_names if name.endswith(("_most", "_at_least"))]
    how = [(name, "max" if name in maxima else "sum") for name in table.column_names if name != "key"]
    return _grouped(table, ["key"], how)


def _merged(table: pa.Table) -> pa.Table:
    return _grouped(table, ["key", "name", "class"], [("highest", "max"), ("count", "sum")])


def _grouped(table: pa.Table, keys: list[str], how: list[tuple[str, str]]) -> pa.Table:
    grouped = table.group_by(keys).aggregate(how)
    names = {f"{name}_{function}": name for name, function in how}
    named = grouped.rename_columns([names.get(name, name) for name in grouped.column_names])
    return named.select([*keys, *(name for name, _ in how)])


def _renamed(table: pa.Table, small: pa.Array) -> pa.Table:
    folded = pc.is_in(table["key"], value_set=small)
    rest = pc.replace_substring_regex(
        table["key"], pattern=f"(?s){SEPARATOR}[^{SEPARATOR}]*$", replacement=SEPARATOR + REST
    )
    return table.set_column(0, "key", pc.if_else(folded, rest, table["key"]))
