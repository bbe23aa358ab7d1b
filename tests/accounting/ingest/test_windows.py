"""Which windows of time sacct is asked about."""

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from accounting.ingest import IngestSettings, starts_at
from accounting.windows import WINDOW_BYTES, Fetched, next_span_s, through_windows
from tests.accounting.ingest.recorded import NOW_S
from tests.builders import DAY_S


def windows_of(
    until_s: int | None, now_s: int, since_s: int | None = None, answer_bytes: int = 0
) -> list[tuple[int, int]]:
    """The windows that a run asks for, where each answer has so many bytes."""
    settings = IngestSettings(sacct="", overlap_s=3600, first_days=2, gpu_spool=Path(), journal=Path())
    windows: list[tuple[int, int]] = []
    answer = Fetched(size_bytes=answer_bytes, records=lambda _known: ())
    through_windows(
        lambda *_: answer,
        starts_at(until_s, now_s, settings, since_s),
        now_s,
        lambda _, begin_s, end_s: windows.append((begin_s, end_s)),
    )
    return windows


def test_windows_begin_at_the_first_days_the_last_end_or_where_told() -> None:
    assert windows_of(None, NOW_S)[0][0] == NOW_S - 2 * DAY_S
    assert windows_of(NOW_S - 100, NOW_S) == [(NOW_S - 3700, NOW_S)]
    assert windows_of(NOW_S - 100, NOW_S, NOW_S - 5 * DAY_S)[0][0] == NOW_S - 5 * DAY_S


def test_a_clock_that_went_back_leaves_nothing_unread() -> None:
    assert windows_of(NOW_S + DAY_S, NOW_S) == [(NOW_S - 3600, NOW_S)]


@given(st.integers(0, 40 * DAY_S), st.none() | st.integers(1, 40 * DAY_S), st.integers(0, 2 * WINDOW_BYTES))
def test_windows_follow_each_other_up_to_now_and_are_a_day_at_most(
    back_s: int, since_back_s: int | None, answer_bytes: int
) -> None:
    since_s = None if since_back_s is None else NOW_S - since_back_s
    windows = windows_of(NOW_S - back_s, NOW_S, since_s, answer_bytes)
    assert all(0 < end - begin <= DAY_S for begin, end in windows)
    assert all(one[1] == next_one[0] for one, next_one in itertools.pairwise(windows))
    assert windows[-1][1] == NOW_S


def test_windows_grow_while_answers_are_small_and_shrink_where_they_are_large() -> None:
    assert next_span_s(3600, 0) == 7200
    assert next_span_s(DAY_S, 0) == DAY_S
    assert next_span_s(DAY_S, WINDOW_BYTES + 1) == DAY_S // 2
    assert next_span_s(60, WINDOW_BYTES + 1) == 60
