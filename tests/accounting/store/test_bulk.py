"""Bulk writes: what is new, changed or unchanged, whatever the texts, on every database."""

import random
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import Engine, func, select

from accounting.errors import StoreError
from accounting.store import schema
from accounting.store.bulk import known_digests, upsert, upsert_attempts
from accounting.store.columns import from_rows
from accounting.store.database import writing
from accounting.store.records import Counts, read_attempts, write_rows
from bench import site_rows
from tests.builders import attempt
from tests.stores import write_attempts

Row = dict[str, Any]
HOSTILE = (
    "",
    "|||COMPLETED|0:0",
    "a\nb|c|d",
    "a\n\\.\nb",
    "\\N",
    "\\",
    "tab\there\r\n",
    "'; DROP TABLE attempts; --",
    '"quoted","twice"',
    "it''s \\' odd %s %(x)s :y ?",
    "𝔘𝔫𝔦 🚀 ﷽",
    "NULL",
    "x" * 1000,
    "long " * 40_000,
)


def use(node: str, samples: int = 1, mean_pct: float | None = None) -> Row:
    return {
        "cluster": "",
        "job_id": 1,
        "node": node,
        "gpu": 0,
        "instance": -1,
        "source": "nvml",
        "first_s": 0,
        "last_s": 9,
        "samples": samples,
        "util_max_pct": None,
        "util_mean_pct": mean_pct,
        "mem_max_mib": 0.1,
        "power_mean_w": None,
    }


def written(store: Engine, rows: list[Row]) -> Counts:
    with writing(store) as connection:
        return upsert(connection, schema.gpu_use, from_rows(schema.gpu_use, rows))


def held(store: Engine) -> list[Row]:
    with store.connect() as connection:
        return [dict(row) for row in connection.execute(select(schema.gpu_use)).mappings()]


def by_key(rows: list[Row]) -> dict[tuple[Any, ...], Row]:
    key = [column.name for column in schema.gpu_use.primary_key.columns]
    return {tuple(row[name] for name in key): row for row in rows}


def test_random_batches_leave_the_last_row_of_each_key(store: Engine) -> None:
    draw, model = random.Random(5), dict[tuple[Any, ...], Row]()
    for size in (1, 3, 200, 1, 500, 40):
        before = dict(model)
        rows = [
            use(f"n{draw.randrange(300)}", draw.randrange(3), draw.choice([None, 0.1, 1e300]))
            for _ in range(size)
        ]
        counts = written(store, rows)
        model.update(by_key(rows))
        assert by_key(held(store)) == model
        assert counts.new == len(model) - len(before)
        assert counts.new + counts.changed + counts.same == size


def test_the_counts_are_those_of_what_was_done(store: Engine) -> None:
    rows = [use(f"n{number}") for number in range(1000)]
    assert written(store, rows) == Counts(new=1000)
    assert written(store, rows) == Counts(same=1000)
    rows[500]["samples"], rows[501]["util_mean_pct"] = 2, 0.5
    assert written(store, [*rows, use("other")]) == Counts(new=1, changed=2, same=998)
    assert written(store, [use("other")]) == Counts(same=1)
    assert written(store, [use("other", 7)]) == Counts(changed=1)
    assert written(store, [use("another")]) == Counts(new=1)
    assert written(store, []) == Counts()


def test_a_count_beyond_its_column_becomes_the_most_that_it_holds(store: Engine) -> None:
    counts = (0, 7, 2**31 - 1, 2**31, 3_600_000_000)
    many = [use(f"n{number}", samples) for number, samples in enumerate(counts)]
    assert written(store, many) == Counts(new=5)
    assert written(store, many) == Counts(same=5)
    assert [row["samples"] for row in held(store)] == [0, 7, 2**31 - 1, 2**31 - 1, 2**31 - 1]


def test_one_old_row_among_many_new_ones_is_overwritten(store: Engine) -> None:
    written(store, [use("n3001", samples=1)])
    counts = written(store, [use(f"n{number}", samples=2) for number in range(7000)])
    assert counts == Counts(new=6999, changed=1)
    assert {row["samples"] for row in held(store)} == {2}


def test_the_last_row_of_a_key_wins_among_new_rows(store: Engine) -> None:
    written(store, [use(f"n{number % 5}", samples=number) for number in range(50)])
    assert {row["node"]: row["samples"] for row in held(store)} == {f"n{n}": 45 + n for n in range(5)}


def test_texts_come_back_as_they_were(store: Engine) -> None:
    attempts = [
        attempt(job_id=number, job_name=text, comment=text, token=False)
        for number, text in enumerate(HOSTILE, start=1)
    ]
    for expected in (Counts(new=len(HOSTILE)), Counts(same=len(HOSTILE))):
        with writing(store) as connection:
            assert write_attempts(connection, attempts) == expected
    assert read_attempts(store) == attempts


def test_a_text_that_all_rows_share_comes_back_as_it_was(store: Engine) -> None:
    for text in HOSTILE:
        line = {"seen_s": 1, "reason": text, "source": "", "line": text}
        with writing(store) as connection:
            write_rows(connection, schema.quarantine, [{**line, "digest": name} for name in ("a", "b")])
            kept = connection.execute(select(schema.quarantine.c.reason, schema.quarantine.c.line)).all()
        assert kept == [(text, text)] * 2


def test_null_and_the_empty_text_are_different(store: Engine) -> None:
    line = {"digest": "d", "seen_s": 1, "reason": "", "source": "", "line": ""}
    with writing(store) as connection:
        write_rows(connection, schema.quarantine, [line])
        assert dict(connection.execute(select(schema.quarantine)).mappings().one()) == line
    with pytest.raises(StoreError), writing(store) as connection:
        write_rows(connection, schema.quarantine, [{**line, "line": None}])


@pytest.mark.parametrize(
    ("given", "kept"), [("a\0b", "a�b"), ("a\ud800b", "a�b"), ("\udcff", "�"), ("\0", "�")]
)
def test_invalid_characters_are_replaced_on_every_database(given: str, kept: str, store: Engine) -> None:
    for expected in (Counts(new=1), Counts(same=1)):
        assert written(store, [use(given)]) == expected
    assert [row["node"] for row in held(store)] == [kept]


def test_names_that_differ_in_case_accent_or_trailing_space_are_different(store: Engine) -> None:
    names = ["A", "a", "a ", "á", "a\t", "ss", "ß"]
    for expected in (Counts(new=len(names)), Counts(same=len(names))):
        assert written(store, [use(name) for name in names]) == expected
    assert sorted(row["node"] for row in held(store)) == sorted(names)


def test_keys_too_long_for_an_index_stay_different(store: Engine) -> None:
    names = ["n" * 191, "n" * 192, "n" * 300 + "a", "n" * 300 + "b"]
    for expected in (Counts(new=4), Counts(same=4)):
        assert written(store, [use(name) for name in names]) == expected
    assert max(len(row["node"]) for row in held(store)) == 191


def test_figures_keep_all_their_digits(store: Engine) -> None:
    figures = [0.1 + 0.2, 1 / 3, 1e300, 5e-324, -0.0, sys.float_info.max, 123456789.123456789, 2.0**53 + 2]
    written(store, [use(f"n{number}", mean_pct=figure) for number, figure in enumerate(figures)])
    assert sorted(row["util_mean_pct"] for row in held(store)) == sorted(figures)


def test_figures_that_are_not_finite_are_stored_as_unknown(store: Engine) -> None:
    figures = [float(word) for word in ("nan", "inf", "-inf")]
    written(store, [use(f"n{number}", mean_pct=figure) for number, figure in enumerate(figures)])
    assert [row["util_mean_pct"] for row in held(store)] == [None] * 3


def test_digests_of_64_bits_are_kept_and_found_by_the_end_of_their_attempt(store: Engine) -> None:
    attempts, steps = site_rows.chunk(0, 2000)
    digests = attempts["record_digest"].to_numpy().copy()
    digests[:2] = (-(2**63), 2**63 - 1)
    place = attempts.schema.get_field_index("record_digest")
    attempts = attempts.set_column(place, "record_digest", pa.array(digests, mask=np.arange(2000) == 7))
    with writing(store) as connection:
        upsert_attempts(connection, attempts, steps)
        ends_s = attempts["end_s"].to_numpy()
        begin_s, end_s = np.sort(ends_s)[[100, 1900]].tolist()
        wanted = digests[(ends_s >= begin_s) & (ends_s <= end_s) & (np.arange(2000) != 7)]
        found = known_digests(connection, begin_s, end_s)
        assert found.dtype == np.int64
        assert np.array_equal(np.sort(found), np.sort(wanted))
        everything = known_digests(connection, 0, 2**62)
        assert {-(2**63), 2**63 - 1} <= set(everything.tolist())


def test_steps_that_are_not_written_again_stay(store: Engine) -> None:
    attempts, steps = site_rows.chunk(0, 300)
    with writing(store) as connection:
        assert upsert_attempts(connection, attempts, steps) == (Counts(new=300), Counts(new=600))
    with writing(store) as connection:
        assert upsert_attempts(connection, attempts, steps.slice(0, 599)) == (
            Counts(same=300),
            Counts(same=599),
        )
        assert connection.execute(select(func.count()).select_from(schema.steps)).scalar() == 600


def test_a_number_that_no_column_can_hold_is_an_error_of_one_line(store: Engine) -> None:
    attempts, _ = site_rows.chunk(0, 10)
    place = attempts.schema.get_field_index("nodes")
    forged = attempts.set_column(place, "nodes", pa.array([-(2**40)] * 10))
    with pytest.raises(StoreError, match=r"attempts\.nodes"), writing(store) as connection:
        upsert(connection, schema.attempts, forged)
    assert read_attempts(store) == []


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_columns_that_a_table_does_not_have_are_a_programming_error(store: Engine) -> None:
    with pytest.raises(ValueError, match="has no columns speed"), writing(store) as connection:
        upsert(connection, schema.windows, pa.table({"source": ["a"], "cluster": [""], "speed": [1]}))
