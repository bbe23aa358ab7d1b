"""Carbon intensity: hours of the local day, and series of a grid."""

import datetime as dt
import zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ConfigError
from accounting.labels.carbon import CarbonIntensity, CarbonSeries, parse_carbon_series

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def hours(zone: dt.tzinfo | None = BERLIN) -> CarbonIntensity:
    """An intensity in which each hour costs its own number."""
    return CarbonIntensity(tuple(float(hour) for hour in range(24)), zone)


def at(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


def test_where_clocks_are_put_forward_the_skipped_hour_costs_nothing() -> None:
    begin_s, end_s = at("2026-03-29T01:00:00+01:00"), at("2026-03-29T04:00:00+02:00")
    assert end_s - begin_s == 2 * 3600
    assert hours().mean(begin_s, end_s) == pytest.approx((1 + 3) / 2)


def test_where_clocks_are_put_back_the_repeated_hour_counts_twice() -> None:
    begin_s, end_s = at("2026-10-25T01:00:00+02:00"), at("2026-10-25T04:00:00+01:00")
    assert end_s - begin_s == 4 * 3600
    assert hours().mean(begin_s, end_s) == pytest.approx((1 + 2 + 2 + 3) / 4)


@pytest.mark.parametrize(
    "zone", ["Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Berlin", "America/St_Johns"]
)
@given(begin_s=st.integers(1_700_000_000, 1_800_000_000), seconds=st.integers(1, 3 * 86400))
def test_the_mean_is_that_of_every_single_minute(zone: str, begin_s: int, seconds: int) -> None:
    carbon = hours(zoneinfo.ZoneInfo(zone))
    begin_s -= begin_s % 60
    minutes = range(begin_s, begin_s + 60 * (seconds // 60 + 1), 60)
    expected = sum(carbon.at(moment) for moment in minutes) / len(minutes)
    assert carbon.mean(begin_s, begin_s + 60 * len(minutes)) == pytest.approx(expected)


def test_a_moment_has_the_figure_of_its_hour_and_a_long_run_the_mean() -> None:
    noon_s = at("2026-06-01T12:10:00+02:00")
    assert hours().mean(noon_s, noon_s) == 12.0
    half_a_minute_before_s = at("2026-06-01T12:59:30+02:00")
    assert hours().mean(half_a_minute_before_s, half_a_minute_before_s + 60) == 12.5
    assert hours().mean(1.0, noon_s) == pytest.approx(sum(range(24)) / 24)
    assert hours(None).at(noon_s) in range(24)


SERIES = """time,gCO2_per_kWh
2026-01-01T00:00:00Z,100
2026-01-01T02:00:00+01:00,200.5
1767238200,300
"""


def test_a_series_counts_where_it_has_a_row_and_the_hours_of_the_day_elsewhere() -> None:
    series = parse_carbon_series(SERIES, "grid.csv")
    midnight = 1_767_225_600
    assert series == CarbonSeries((midnight, midnight + 3600, midnight + 12600), (100.0, 200.5, 300.0))
    carbon = CarbonIntensity((50.0,), None, series)
    # 100 for an hour, 200.5 for an hour and no longer, half an hour without a row, 300 for an hour, then no row again.
    assert [
        carbon.at(midnight + minutes * 60) for minutes in (-1, 0, 59, 60, 119, 120, 209, 210, 269, 270)
    ] == [
        *(50.0, 100.0, 100.0, 200.5, 200.5, 50.0),
        *(50.0, 300.0, 300.0, 50.0),
    ]
    mean = carbon.mean(midnight - 1800, midnight + 5 * 3600)
    assert mean == pytest.approx((50 * (0.5 + 1.5 + 0.5) + 100 + 200.5 + 300) / 5.5)
    # The series resumes, and ends, within an hour.
    assert carbon.mean(midnight + 3 * 3600, midnight + 4 * 3600) == pytest.approx((50 + 300) / 2)
    assert carbon.mean(midnight + 4 * 3600, midnight + 5 * 3600) == pytest.approx((300 + 50) / 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the first line must be `time,gCO2_per_kWh`"),
        ("when,what\n", "the first line must be"),
        ("time,gCO2_per_kWh\n2026-01-01T00:00:00,100\n", "line 2: `2026-01-01T00:00:00` is not a time"),
        ("time,gCO2_per_kWh\nsoon,100\n", "line 2: `soon` is not a time"),
        ("time,gCO2_per_kWh\n²,100\n", "line 2: `²` is not a time"),
        # In milliseconds.
        ("time,gCO2_per_kWh\n1767225600000,100\n", "line 2: `1767225600000` is not a time"),
        ("time,gCO2_per_kWh\n1767225600,-1\n", "`-1` is not a number of gCO2 per kWh"),
        ("time,gCO2_per_kWh\n1767225600,nan\n", "`nan` is not a number of gCO2 per kWh"),
        ("time,gCO2_per_kWh\n1767225600,n/a\n", "line 2: `n/a` is not a number of gCO2 per kWh"),
        ("time,gCO2_per_kWh\n1767225600\n", "line 2: 1 columns"),
        ("time,gCO2_per_kWh\n1767225600,1\n1767225600,2\n", "times must increase"),
        ("time,gCO2_per_kWh\n0001-01-01T00:00:00+23:59,1\n0001-01-01T00:00:00+23:59,1\n", "is not a time"),
        pytest.param("{" + "1" * 140_000, "is not a CSV file", id="no CSV"),
    ],
)
def test_the_error_for_an_unreadable_series_names_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("`", ".")) as caught:
        parse_carbon_series(text, "grid.csv")
    assert str(caught.value).startswith("grid.csv")


def test_an_hour_may_cost_nothing_and_a_line_may_be_empty() -> None:
    series = parse_carbon_series("time,gCO2_per_kWh\n0,0\n\n3600,7\n\n", "grid.csv")
    assert series == CarbonSeries((0, 3600), (0.0, 7.0))
