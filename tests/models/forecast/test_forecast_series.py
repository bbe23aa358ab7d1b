"""Panels from a table of times, valid and invalid."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import SeriesError
from models.forecast.series import MOST_GAP, panel_of, read_table

T0 = 1_699_920_000


def csv(*rows: str, header: str = "time,gpus") -> io.StringIO:
    return io.StringIO("\n".join([header, *rows]) + "\n")


def hourly(*values: str) -> io.StringIO:
    return csv(*(f"{T0 + 3600 * hour},{value}" for hour, value in enumerate(values)))


def test_samples_within_a_step_are_averaged() -> None:
    read = panel_of(
        read_table(
            csv(
                "2023-11-14T00:00:00Z,1,10",
                "2023-11-14T01:30:00+01:00,3,",
                "2023-11-14 01:30,5,30",
                header="t,a,b",
            )
        ),
        3600,
    )
    assert read.panel.names == ("a", "b")
    assert read.panel.start_s == T0
    assert read.panel.values.tolist() == [[2, 10], [5, 30]]
    assert read.notes == ()


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=30), st.integers(0, 10**6))
def test_samples_on_the_grid_stay_as_they_are(values: list[float], hour: int) -> None:
    lines = csv(*(f"{3600 * (hour + number)},{value!r}" for number, value in enumerate(values)))
    read = panel_of(read_table(lines), 3600)
    assert read.panel.values[:, 0].tolist() == values
    assert read.panel.start_s == 3600 * hour


def test_columns_are_chosen_by_name() -> None:
    assert read_table(csv("0,1,2", header="t,a,b"), ("b",)).values.tolist() == [[2]]
    with pytest.raises(SeriesError, match="no column c; it has a, b"):
        read_table(csv("0,1,2", header="t,a,b"), ("c",))


def test_a_short_gap_is_filled_with_the_value_before_it_never_with_the_one_after() -> None:
    read = panel_of(read_table(hourly("4", "", "nan", "NA", "8")), 3600)
    assert read.panel.values[:, 0].tolist() == [4, 4, 4, 4, 8]
    assert read.notes == ("3 steps without a value filled with the last value before",)


def test_the_past_before_a_long_gap_is_left_out() -> None:
    read = panel_of(read_table(hourly("4", "4", *[""] * (MOST_GAP + 1), "8", "9")), 3600)
    assert read.panel.values[:, 0].tolist() == [8, 9]
    assert read.panel.start_s == T0 + 3600 * (2 + MOST_GAP + 1)
    assert "left out: the first 6 of 8 steps" in read.notes[-1]


def test_a_last_step_that_is_not_over_is_left_out() -> None:
    read = panel_of(read_table(csv(*(f"{T0 + 600 * sample},{sample}" for sample in range(15)))), 3600)
    assert read.panel.values[:, 0].tolist() == [2.5, 8.5]
    assert read.notes == ("the last step is left out, because the last row comes before its end",)
    whole = panel_of(read_table(csv(*(f"{T0 + 600 * sample},{sample}" for sample in range(18)))), 3600)
    assert whole.panel.values[:, 0].tolist() == [2.5, 8.5, 14.5]


def test_missing_rows_are_a_gap_too() -> None:
    read = panel_of(read_table(csv(f"{T0},1", f"{T0 + 7200},3")), 3600)
    assert read.panel.values[:, 0].tolist() == [1, 1, 3]


def test_a_series_that_begins_later_shortens_all() -> None:
    rows = [f"{T0 + 3600 * hour},{hour},{'' if hour < 2 else 5}" for hour in range(4)]
    read = panel_of(read_table(csv(*rows, header="t,a,b")), 3600)
    assert read.panel.values.tolist() == [[2, 5], [3, 5]]


def test_nothing_but_gaps_leaves_nothing() -> None:
    read = panel_of(read_table(hourly("", "", "")), 3600)
    assert read.panel.values.shape == (0, 1)
    assert read.notes == (
        "no step is left: gpus has no value at the end; leave out that series, or the rows after its last value",
    )


@pytest.mark.parametrize("until", [0, 2])
def test_a_column_that_ends_before_the_others_is_named(until: int) -> None:
    rows = [f"{T0 + 3600 * hour},{hour},{5 if hour < until else ''}" for hour in range(8)]
    read = panel_of(read_table(csv(*rows, header="t,a,b")), 3600)
    assert read.panel.values.shape == (0, 2)
    assert read.notes[-1].startswith("no step is left: b has no value at the end;")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (io.StringIO(""), "needs a header"),
        (csv(header="time"), "needs a header"),
        (csv("0,1,2", header="t,a,a"), "same name"),
        (csv("0,1,2"), "line 2 of the CSV has 3 fields, but its header has 2"),
        (csv("yesterday,1"), "'yesterday' is not a time"),
        (csv("0,many"), "line 2 .* 'many' is not a number"),
        (csv("0,-1"), "-1 is not a valid demand"),
        (csv("0,inf"), "inf is not a valid demand"),
        (csv("0,1e31"), r"1e31 is not a valid demand; it must be 0 to 1e\+30"),
        (
            csv("1699920000,1", "1699920005000,2"),
            "line 3 .* not a time in unix seconds; divide milliseconds by 1000",
        ),
        (csv(f"{10**30},1"), "line 2 .* not a time in unix seconds"),
        (csv("-1699920000000,1"), "line 2 .* not a time in unix seconds"),
        (csv("9999-12-31T23:59:59Z,1"), "line 2 .* not a time in unix seconds"),
        (csv("3600,1", "3600,2"), "line 3 .* not later .* UTC"),
        (csv("2023-10-29T02:30,1", "2023-10-29T02:00,2"), "line 3 .* clocks are set back"),
    ],
)
def test_unreadable_input_is_reported_with_its_line(lines: io.StringIO, said: str) -> None:
    with pytest.raises(SeriesError, match=said):
        read_table(lines)


def test_times_too_far_apart_and_missing_rows_are_refused() -> None:
    with pytest.raises(SeriesError, match="too far apart"):
        panel_of(read_table(csv("0,1", "1699920000,2")), 3600)
    with pytest.raises(SeriesError, match="no rows"):
        panel_of(read_table(csv()), 3600)


def test_clocks_put_forward_leave_a_gap_of_one_step() -> None:
    rows = [f"2023-03-26T0{hour}:00,{hour}" for hour in (0, 1, 3, 4)]
    read = panel_of(read_table(csv(*rows)), 3600)
    assert np.array_equal(read.panel.values[:, 0], [0, 1, 1, 3, 4])
