"""Parsing and formatting of memory and time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.units import (
    counted,
    format_mib,
    parse_duration_s,
    parse_memory_mib,
    parse_time_limit_min,
    round_up,
    whole,
)

SUFFIX_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("3000M", 3000),
        ("2G", 2048),
        ("204800K", 200),
        ("1.5G", 1536),
        ("1T", 1024**2),
        ("1P", 1024**3),
        ("0", 0),
        ("4000", 4000),
        ("4000m", 4000),
        ("2GB", 2048),
        ("2GiB", 2048),
        (" 5M ", 5),
    ],
)
def test_memory_is_read_in_slurms_forms(text: str, mib: float) -> None:
    assert parse_memory_mib(text) == mib


@pytest.mark.parametrize(
    "text",
    ["", "16?", "M", "-5M", "1e3", "3000Mn", "2 G", "12MM", "1.", ".5G", "٣M", "9" * 400, "nan", "inf"],
)
def test_a_text_that_is_no_amount_of_memory_is_read_as_none(text: str) -> None:
    assert parse_memory_mib(text) is None


def test_usage_without_a_suffix_is_bytes() -> None:
    assert parse_memory_mib("209715200", bare_unit="B") == 200
    assert parse_memory_mib("204800K", bare_unit="B") == 200


@given(st.integers(0, 10**9), st.sampled_from(sorted(SUFFIX_MIB)))
def test_memory_of_any_size_is_read_back(number: int, suffix: str) -> None:
    assert parse_memory_mib(f"{number}{suffix}") == pytest.approx(number * SUFFIX_MIB[suffix])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04.567", 93784.567),
        ("1-02:03:04", 93784),
        ("02:03:04", 7384),
        ("03:04", 184),
        ("00.123", 0.123),
        ("00:00.123", 0.123),
        ("00:00:00", 0),
        ("45", 45),
        ("100:00:00", 360000),
    ],
)
def test_durations_are_read_in_slurms_forms(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", ":", "1-", "-5", "1:2:3:4", "1-2-3", "INVALID", "1:x", "9" * 400, "1." + "0" * 99]
)
def test_a_text_that_is_no_duration_is_read_as_none(text: str) -> None:
    assert parse_duration_s(text) is None


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_durations_of_any_length_are_read_back(
    days: int, hours: int, minutes: int, seconds: int, millis: int
) -> None:
    text = f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}.{millis:03d}"
    whole_s = days * 86400 + hours * 3600 + minutes * 60 + seconds
    assert parse_duration_s(text) == pytest.approx(whole_s + millis / 1000)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("90", 90),
        ("90:30", 91),
        ("01:30:00", 90),
        ("1:30:01", 91),
        ("2-12", 3600),
        ("2-12:30", 3630),
        ("2-12:30:30", 3631),
        ("0:30", 1),
        ("0", None),
        ("UNLIMITED", None),
        ("INFINITE", None),
        ("", None),
        ("-5", None),
        ("1-", None),
        ("1:2:3:4", None),
        ("4x", None),
        ("²", None),
        ("9" * 5000, None),
    ],
)
def test_time_limits_are_read_as_sbatch_reads_them(text: str, minutes: int | None) -> None:
    assert parse_time_limit_min(text) == minutes


@given(st.integers(0, 30), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_time_limits_are_read_no_shorter_and_less_than_a_minute_longer(
    days: int, hours: int, minutes: int, seconds: int
) -> None:
    asked_s = days * 86400 + hours * 3600 + minutes * 60 + seconds
    read = parse_time_limit_min(f"{days}-{hours}:{minutes}:{seconds}")
    assert asked_s <= (read or 0) * 60 < asked_s + 60


@given(st.text(max_size=30))
def test_any_text_is_read_as_a_finite_figure_or_as_none(text: str) -> None:
    for value in (parse_memory_mib(text), parse_duration_s(text), parse_time_limit_min(text), whole(text)):
        assert value is None or (math.isfinite(value) and value >= 0)


@given(st.floats(0, 1e9), st.integers(1, 4096))
def test_rounding_up_gives_the_next_multiple(value: float, step: int) -> None:
    rounded = round_up(value, step)
    assert rounded % step == 0
    assert value - 1e-5 * step <= rounded < value + step


@pytest.mark.parametrize(
    ("value", "rounded"), [(512, 512), (512.0000001, 512), (512.1, 544), (1, 32), (0, 0)]
)
def test_rounding_up_ignores_the_rounding_errors_of_a_logarithm(value: float, rounded: int) -> None:
    assert round_up(value, 32) == rounded


@pytest.mark.parametrize(
    ("mib", "text"), [(0, "0 MiB"), (640, "640 MiB"), (1024, "1 GiB"), (8000, "7.8 GiB"), (204800, "200 GiB")]
)
def test_memory_is_written_for_people(mib: float, text: str) -> None:
    assert format_mib(mib) == text


@pytest.mark.parametrize("text", [None, "", "-1", "+1", "1.0", "1 ", "1\n", "x", "٣", "1" * 19])
def test_a_text_that_is_no_whole_number_is_read_as_none(text: str | None) -> None:
    assert whole(text) is None


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "job", "1 job"),
        (0, "job", "0 jobs"),
        (2500, "later one", "2,500 later ones"),
        (2, "entry", "2 entries"),
    ],
)
def test_a_number_has_its_noun_in_the_right_form(number: int, noun: str, said: str) -> None:
    assert counted(number, noun) == said
