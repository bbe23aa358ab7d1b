"""Bulk parsing of columns gives the same results as the functions for a single text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accounting import columns
from accounting.ids import parse_job_id
from accounting.states import outcome_of
from accounting.tres import parse_tres, parse_usage
from accounting.units import (
    parse_duration_s,
    parse_memory_mib,
    parse_requested_mib,
    parse_time_s,
    whole,
)

BERLIN = ZoneInfo("Europe/Berlin")
HOSTILE = [
    None, "", " ", "0", "-0", "00", "1", "1 ", " 1", "1\n", "\n1", "1\x00", "\x1c5\x1c", "\u00a05", "٣", "²",
    "+1", "-1", "1.", ".5", "1.5", "1e5", "nan", "inf", "9" * 18, "9" * 19, "9" * 400, "1" * 10,
    "4294967295", "18446744073709551615", "5M", "5m", "5MB", "5MiB", "5Mc", "5Mn", "0n", "16?",
    "2147486648Mn", "2147483648M", "2147483647Mc", "1.50G", "5KK", "7E", "99:99:99", "1-", "-5", "1-2",
    "1-2:3", "1-02:03:04.567", "0:0", "999999999-0:0:0", "1:2:3:4", "INVALID", "UNLIMITED", "Unknown",
    "None", "2024-06-24T12:33:26", "2024-06-24 12:33:26", "2024-02-30T00:00:00", "2024-02-29T01:00:00",
    "2024-03-31T02:30:00", "2024-10-27T02:30:00", "1969-12-31T23:59:59", "1970-01-01T00:30:00",
    "0000-00-00T00:00:00", "9999-12-31T23:59:59", "2024-06-24T24:00:00", "2024-06-24T12:33:60",
    "2024-06-24T12:33:26\n", "668_1", "669+0", "12_[1-5%2]", "12_[1-5,7...]", "123.batch", "123.extern",
    "123.0", "669+0.0", "668_1.batch", "123.", "123.x", "1.2.3", "_1", "1_", "1+", "123.0+1", "123_1+2",
    "123.4294967291", "1234567890123", "cpu=1,mem=2G", "mem=2G,mem=3G",
    "cpu=00:00:10,energy=5,fs/disk=5,mem=104857600,pages=0,vmem=7", "cpu=1,", ",cpu=1", "cpu = 1 , mem= 5M",
    "cpu==1", "cpu", "=", "xcpu=5", "mem=5M,cpu=1", "cpu=1,gres/gpu=2,gres/gpu:a100=2,mem=1,node=1",
    "cpu=00:00:01,gres/gpumem=5M,gres/gpuutil=97,mem=1", "gres/gpuutil=97", "gres/gpumem=5,gres/gpuutil=",
    "energy=1.50K", "mem=-5", "mem=1?", "vmem=5", "pages=1,mem=5", "CANCELLED by 0", "COMPLETED+",
    "OUT_OF_MEMORY", "OUT_OF_ME+", "RUNNING", "cpu=00:00:10;mem=5", "cpu=1\n,mem=2", "cpu=1,mem=2\n",
    "mem=5 M", "mem=99999999999999999999",
]  # fmt: skip

digits = st.integers(0, 10**12).map(str)
clock = st.builds("{:02}:{:02}:{:02}".format, *[st.integers(0, 99)] * 3)
memory = st.builds(
    "{}{}".format,
    st.one_of(digits, st.decimals(0, 10**9, places=2).map(str)),
    st.sampled_from(["", *"KMGTPEB?cn"]),
)
names = st.sampled_from(
    [
        "cpu",
        "mem",
        "energy",
        "fs/disk",
        "node",
        "gres/gpu",
        "gres/gpumem",
        "gres/gpuutil",
        "pages",
        "vmem",
        " mem",
    ]
)
amounts = st.one_of(digits, clock, memory, st.text(max_size=3))
lists = st.lists(st.builds("{}={}".format, names, amounts), max_size=8).map(",".join)
times = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat(sep="T", timespec="seconds")),
    st.integers(0, 2**33).map(str),
)
ids = st.from_regex(
    r"[0-9]{1,11}(_[0-9]{1,3}|_\[[0-9]-[0-9]\]|\+[0-9])?(\.(batch|extern|[0-9]{1,3}(\+[0-9])?))?\n?",
    fullmatch=True,
)
any_text = st.one_of(
    st.none(), st.sampled_from(HOSTILE), st.text(max_size=12), digits, clock, memory, lists, times, ids,
    st.builds("{}-{}.{}".format, st.integers(0, 400), clock, digits),
)  # fmt: skip
columns_of_text = st.lists(any_text, max_size=40)
# Whatever else is drawn, each of these is read: every unit, and every form of a time.
EVERY = [
    *HOSTILE, *(f"{number}{unit}" for number in ("3", "1.5") for unit in "KMGTPE"), "1-02:03:04", "02:03:04.5",
    "03:04", "cpu=1-02:03:04,energy=3M,fs/disk=3G,gres/gpumem=3G,gres/gpuutil=97,mem=3T",
]  # fmt: skip
LONGER = [str(number) for number in range(columns.FEW + 1)]


def scalar(parse: Callable[[str], Any], texts: list[str | None]) -> list[Any]:
    return [None if text is None else parse(text) for text in texts]


def both_ways(texts: list[str | None]) -> list[list[str | None]]:
    """Return a short column, which is read text by text, and a long one of the same texts, which is read in bulk."""
    return [texts, texts + LONGER]


def check(bulk: Callable[[pa.Array], pa.Array], parse: Callable[[str], Any], texts: list[str | None]) -> None:
    for column in both_ways(texts):
        read = bulk(pa.array(column, pa.string()))
        assert read.to_pylist() == scalar(parse, column)
        assert bulk(pa.chunked_array([pa.array(column, pa.string())])).equals(read)


@given(columns_of_text)
@example(EVERY)
def test_whole_numbers_in_bulk_equal_those_read_one_by_one(texts: list[str | None]) -> None:
    check(columns.whole, whole, texts)


@given(columns_of_text, st.sampled_from("MB"))
@example(EVERY, "M")
@example(EVERY, "B")
def test_memory_in_bulk_equals_that_read_one_by_one(texts: list[str | None], bare_unit: str) -> None:
    check(
        lambda text: columns.memory_mib(text, bare_unit),
        lambda one: parse_memory_mib(one, bare_unit=bare_unit),
        texts,
    )


@given(columns_of_text)
@example(EVERY)
def test_durations_in_bulk_equal_those_read_one_by_one(texts: list[str | None]) -> None:
    check(columns.duration_s, parse_duration_s, texts)


@given(columns_of_text, st.sampled_from([BERLIN, ZoneInfo("UTC"), ZoneInfo("America/St_Johns")]))
@example(EVERY, BERLIN)
def test_times_in_bulk_equal_those_read_one_by_one(texts: list[str | None], zone: ZoneInfo) -> None:
    check(lambda text: columns.time_s(text, zone), lambda one: parse_time_s(one, zone), texts)


ZONES = st.sampled_from(
    [BERLIN, ZoneInfo("UTC"), ZoneInfo("America/St_Johns"), ZoneInfo("Australia/Lord_Howe")]
)
# Near the moment at which clocks are put back there.
autumns = st.builds(
    lambda day, minutes: datetime.fromisoformat(day) + timedelta(minutes=minutes),
    st.sampled_from(["2025-10-26", "2025-11-02", "2025-04-06"]),
    st.integers(-60, 240),
)
known_years = st.datetimes(datetime.fromisoformat("1971-01-01"), datetime.fromisoformat("2036-12-31"))


@given(st.lists(st.one_of(autumns, known_years), max_size=20), ZONES)
def test_second_times_are_those_of_the_calendar(moments: list[datetime], zone: ZoneInfo) -> None:
    local = [moment.replace(microsecond=0).isoformat() for moment in moments]
    texts = pa.array([*local, "1761438000", "Unknown", None, ""])
    first_s = columns.time_s(texts, zone)
    second_s = columns.second_time_s(texts, first_s, zone).to_pylist()
    by_calendar = [
        int(datetime.fromisoformat(text).replace(tzinfo=zone, fold=1).timestamp()) for text in local
    ]
    # For a time that is skipped in spring, the later of its two moments is the second.
    both = zip(first_s.to_pylist(), by_calendar, strict=False)
    assert second_s == [*(max(pair) for pair in both), 1761438000, None, None, None]


@given(columns_of_text, ZONES)
def test_second_times_of_any_text_are_times(texts: list[str | None], zone: ZoneInfo) -> None:
    first_s = columns.time_s(pa.array(texts, pa.string()), zone)
    second_s = columns.second_time_s(pa.array(texts, pa.string()), first_s, zone)
    assert second_s.is_valid().equals(first_s.is_valid())
    pairs = zip(first_s.to_pylist(), second_s.to_pylist(), strict=True)
    assert all(first is None or second - first in (0, 1800, 3600) for first, second in pairs)


@given(columns_of_text)
def test_resources_in_bulk_equal_those_read_one_by_one(texts: list[str | None]) -> None:
    read = columns.tres_amounts(pa.array(texts, pa.string()))
    for name, column in vars(read).items():
        assert column.to_pylist() == [getattr(parse_tres(text or ""), name) for text in texts]


@given(columns_of_text)
@example(EVERY)
def test_usage_in_bulk_equals_that_read_one_by_one(texts: list[str | None]) -> None:
    for column in both_ways(texts):
        read = columns.usage(pa.array(column, pa.string()))
        for name, amounts in vars(read).items():
            assert amounts.to_pylist() == [getattr(parse_usage(text or ""), name) for text in column]


@given(columns_of_text)
def test_outcomes_in_bulk_equal_those_read_one_by_one(texts: list[str | None]) -> None:
    assert columns.outcomes(pa.array(texts, pa.string())).to_pylist() == [
        outcome_of(text or "") for text in texts
    ]


@given(columns_of_text)
@example(EVERY)
def test_ids_in_bulk_equal_those_read_one_by_one(texts: list[str | None]) -> None:
    for column in both_ways(texts):
        read = columns.job_ids(pa.array(column, pa.string()))
        taken_apart = [parse_job_id(text or "") for text in column]
        for name, parts in vars(read).items():
            missing = False if name == "pending" else None
            assert parts.to_pylist() == [
                missing if one is None else getattr(one, name) for one in taken_apart
            ]


@given(st.lists(st.tuples(any_text, st.integers(0, 99), st.integers(0, 9)), max_size=40))
def test_requested_memory_is_that_of_the_whole_job(rows: list[tuple[str | None, int, int]]) -> None:
    texts = pa.array([row[0] for row in rows], pa.string())
    cpus, nodes = (
        pa.array([row[1] for row in rows], pa.int64()),
        pa.array([row[2] for row in rows], pa.int64()),
    )
    read = columns.requested_memory_mib(texts, cpus, nodes)
    for mem_mib, (text, of_cpus, of_nodes) in zip(read.to_pylist(), rows, strict=True):
        request = parse_requested_mib(text or "")
        times = {"c": of_cpus, "n": of_nodes, "": 1}
        assert mem_mib == (None if request is None else round(request[0] * times[request[1]]))


def test_the_usual_texts_are_read_as_they_are_meant() -> None:
    text = pa.array(
        ["cpu=00:00:10,energy=1.50K,fs/disk=1048576,gres/gpumem=2G,gres/gpuutil=97,mem=104857600,pages=0"]
    )
    read = columns.usage(text)
    assert {name: column.to_pylist() for name, column in vars(read).items()} == {
        "cpu_s": [10.0],
        "mem_mib": [100.0],
        "gpu_util_pct": [97.0],
        "gpu_mem_mib": [2048.0],
        "moved_mib": [1.0],
        "energy_j": [1536.0],
    }


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("100Mc", 800),
        ("2000Mn", 4000),
        ("4G", 4096),
        ("2147486648Mn", None),
        ("0n", None),
        ("16?", None),
        ("", None),
    ],
)
def test_old_and_new_forms_of_requested_memory_are_read(text: str, mib: int | None) -> None:
    read = columns.requested_memory_mib(pa.array([text]), pa.array([8]), pa.array([2]))
    assert read.to_pylist() == [mib]


@pytest.mark.parametrize(
    ("text", "unix_s"),
    [
        ("2024-06-24T12:33:26", 1719225206),
        ("2024-10-27T02:30:00", 1729989000),
        ("2024-03-31T02:30:00", 1711848600),
        ("1719225206", 1719225206),
        ("Unknown", None),
    ],
)
def test_local_times_around_the_clock_changes_are_read(text: str, unix_s: int | None) -> None:
    assert (
        columns.time_s(pa.array([text, *LONGER]), BERLIN)[0].as_py() == parse_time_s(text, BERLIN) == unix_s
    )
