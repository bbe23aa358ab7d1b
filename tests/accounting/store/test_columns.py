"""Columns as they are stored, whatever the database."""

import hashlib
from typing import Any

import pyarrow as pa
import pytest

from accounting.store import columns, schema
from accounting.store.columns import as_stored, from_rows, parts


def stored(values: list[Any], name: str, kind: pa.DataType) -> list[Any]:
    """Return the column `name` of attempts as it is stored, with all other columns missing."""
    table = as_stored(schema.attempts, pa.table({name: pa.array(values, kind)}))
    assert table.column_names == [column.name for column in schema.attempts.columns]
    assert table["comment" if name != "comment" else "user"].null_count == len(values)
    return list(table[name].to_pylist())


def test_a_count_is_cut_to_the_most_its_column_holds_and_an_unknown_one_stays_unknown() -> None:
    given = [None, 7, 2**31 - 1, 2**31, 2**62]
    assert stored(given, "alloc_cpus", pa.int64()) == [None, 7, 2**31 - 1, 2**31 - 1, 2**31 - 1]
    assert stored(given, "req_mem_mib", pa.int64()) == given
    assert stored([None, 7], "alloc_cpus", pa.int32()) == [None, 7]


def test_a_figure_that_is_not_finite_leaves_the_others_as_they_are() -> None:
    given = [float("nan"), 1.5, None, float("-inf")]
    assert stored(given, "cores", pa.float64()) == [None, 1.5, None, None]
    assert stored([None, None], "cores", pa.float64()) == [None, None]


@pytest.mark.parametrize("cut", [slice(None), slice(1, 2), slice(1, 3), slice(2, None)])
def test_texts_lose_their_nul_and_nothing_else(cut: slice) -> None:
    given = ["plain", "\0", "a\0b\0", None, ""]
    table = pa.table({"comment": pa.array(given)})[cut]
    kept = [
        "plain",
        "\N{REPLACEMENT CHARACTER}",
        "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}",
        None,
        "",
    ]
    assert as_stored(schema.attempts, table)["comment"].to_pylist() == kept[cut]


def test_a_column_of_unknown_texts_stays_unknown() -> None:
    assert stored([None, None], "comment", pa.string()) == [None, None]
    assert stored([None, None], "comment", pa.null()) == [None, None]
    assert stored([], "decision_id", pa.string()) == []


def test_a_key_that_is_too_long_ends_in_its_digest_the_same_in_every_release() -> None:
    long = "ü" * 190 + "ab"
    digest = hashlib.sha256(long.encode()).hexdigest()[:32]
    given = ["n" * 191, long, None, ""]
    kept = ["n" * 191, "ü" * 158 + "~" + digest, None, ""]
    assert stored(given, "decision_id", pa.string()) == kept
    assert len(kept[1] or "") == 191
    # A column that is no key keeps its length.
    assert stored(given, "comment", pa.string()) == given


def test_python_rows_become_columns_of_the_tables_types() -> None:
    rows: list[dict[str, Any]] = [
        {"job_id": 1, "user": None, "cores": 1},
        {"job_id": 2, "user": "a\ud800", "cores": None},
    ]
    table = from_rows(schema.attempts, rows)
    assert table.to_pydict() == {
        "job_id": [1, 2],
        "user": [None, "a\N{REPLACEMENT CHARACTER}"],
        "cores": [1.0, None],
    }
    assert from_rows(schema.windows, []).column_names == [column.name for column in schema.windows.columns]


@pytest.mark.parametrize(
    ("part_bytes", "sizes"), [(2**26, [10, 10, 5]), (4000, [4] * 6 + [1]), (1000, [1] * 25), (1, [1] * 25)]
)
def test_rows_are_written_in_parts_of_fewer_rows_where_texts_are_long(
    part_bytes: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "PART_BYTES", part_bytes)
    rows = pa.table({"comment": [f"{number:996}" for number in range(25)]})
    found = list(parts(rows, 10))
    assert [part.num_rows for part in found] == sizes
    assert pa.concat_tables(found).equals(rows)
    assert list(parts(rows.slice(0, 0), 10)) == []
