"""Sums and maxima of attempts by family and user, in bounded memory. Pure: no clock, no database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from accounting.report.measures import highest, measures

# Separates the parts of a key. No user or account in Slurm contains it; in a family it is replaced.
SEPARATOR = "\x1f"
REST = "(all others)"
# How many families are distinguished. Beyond that, those that were given the least are counted under REST of their
# user.
MOST_FAMILIES = 100_000
# At least this many rows of unfinished sums are kept before they are added up.
PENDING_ROWS = 50_000

FamilyOf = Callable[[str, str], str]


@dataclass(frozen=True)
class Groups:
    """One row per group: `key`, the sums of `measures` by name, the maxima of `highest`.

    `folded` counts the families that were put under REST.
    """

    sums: pa.Table
    folded: int = 0


class Gathering:
    """Adds up batches into groups; `most_families` bounds the memory, whatever the store holds."""

    def __init__(self, keys: Sequence[str], family_of: FamilyOf, most_families: int = MOST_FAMILIES) -> None:
        self._keys = keys
        self._family_of = family_of
        self._most = most_families
        self._sums: list[pa.Table] = []
        self._folded = 0

    def add(self, batch: pa.Table, more: Mapping[str, pa.Array] | None = None) -> None:
        """Count a batch of attempts with the columns of `usage_query`; the columns in `more` are summed, too."""
        key = group_keys(batch, self._keys, self._family_of)
        sums = pa.table({"key": key, **measures(batch), **highest(batch), **(more or {})})
        self._sums.append(_added(sums))
        settled, *pending = (table.num_rows for table in self._sums)
        if sum(pending) > max(PENDING_ROWS, settled // 2):
            self._settle()

    def groups(self) -> Groups | None:
        """Return the groups so far; None before the first batch."""
        if not self._sums:
            return None
        self._settle()
        return Groups(self._sums[0], self._folded)

    def _settle(self) -> None:
        sums = _added(pa.concat_tables(self._sums))
        small = small_families(sums, self._most)
        if len(small):
            self._folded += len(small)
            sums = _added(_renamed(sums, small))
        self._sums = [sums]


def group_keys(batch: pa.Table, keys: Sequence[str], family_of: FamilyOf | None) -> pa.Array:
    """Return each attempt's key: the named columns, then its family if `family_of` is given."""
    parts = [batch[name].combine_chunks() for name in keys]
    if family_of is not None:
        parts.append(_families(batch, family_of))
    return pc.binary_join_element_wise(*parts, SEPARATOR)


def _families(batch: pa.Table, family_of: FamilyOf) -> pa.Array:
    both = pc.binary_join_element_wise(batch["script_signature"], batch["job_name"], SEPARATOR)
    encoded = pc.dictionary_encode(both.combine_chunks())
    families = [
        family_of(name, signature).replace(SEPARATOR, " ")
        for signature, _, name in (text.partition(SEPARATOR) for text in encoded.dictionary.to_pylist())
    ]
    return pa.array(families, pa.string()).take(encoded.indices)


def rolled_up(groups: Groups) -> Groups:
    """Return groups by only the first part of the keys."""
    short = [key.split(SEPARATOR, 1)[0] for key in groups.sums["key"].to_pylist()]
    sums = groups.sums.set_column(0, "key", pa.array(short, pa.string()))
    return Groups(_added(sums), groups.folded)


def sums_of(groups: Groups) -> Iterator[dict[str, Any]]:
    """Yield the rows of the sums, a few at a time: all of them as Python numbers would not fit into memory."""
    for part in groups.sums.to_batches(max_chunksize=5_000):
        yield from part.to_pylist()


def total(groups: Groups, name: str) -> float:
    """Return one sum over all groups."""
    return float(pc.sum(groups.sums[name]).as_py() or 0.0)


def small_families(sums: pa.Table, most: int) -> pa.Array:
    """Return the keys of the families to fold, those that were given least; none for up to `most` rows."""
    if sums.num_rows <= most:
        return pa.array([], pa.string())
    given = pc.add(pc.add(sums["core_h_granted"], sums["mem_gib_h_granted"]), sums["gpu_h_granted"])
    # Frees half of the room at once, so that not every further batch must fold again.
    order = pc.sort_indices(given, sort_keys=[("", "descending")])
    keys = sums["key"].take(order).slice(max(1, most // 2)).combine_chunks()
    return keys.filter(pc.invert(pc.ends_with(keys, SEPARATOR + REST)))


def _added(table: pa.Table) -> pa.Table:
    """Return one row per key: sums, and the maxima of the highest values."""
    names = [name for name in table.column_names if name != "key"]
    how = [(name, "max" if name.endswith(("_most", "_at_least", "_shared")) else "sum") for name in names]
    added = table.group_by("key").aggregate(how).select(["key", *("_".join(each) for each in how)])
    return added.rename_columns(["key", *names])


def _renamed(table: pa.Table, small: pa.Array) -> pa.Table:
    folded = pc.is_in(table["key"], value_set=small)
    rest = pc.replace_substring_regex(
        table["key"], pattern=f"(?s){SEPARATOR}[^{SEPARATOR}]*$", replacement=SEPARATOR + REST
    )
    return table.set_column(0, "key", pc.if_else(folded, rest, table["key"]))
