"""The time windows for which sacct is asked."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.ingest.ingesting import starts_at
from accounting.ingest.run import IngestSettings
from accounting.slurm.sacct import FIGURES, ended_bytes
from accounting.slurm.windows import (
    FIRST_S,
    HOUR_S,
    MOST_BYTES,
    WINDOW_BYTES,
    Fetched,
    Pace,
    next_span_s,
    through_windows,
)
from tests.accounting.ingest.recorded import NOW_S
from tests.builders import DAY_S, printed, sacct_row


def windows_of(
    until_s: int | None, now_s: int, since_s: int | None = None, answer_bytes: int = 0
) -> list[tuple[int, int]]:
    """The windows for which a run asks, where each answer has so many bytes."""
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


def test_windows_begin_at_the_first_days_the_last_end_or_where_given() -> None:
    assert windows_of(None, NOW_S)[0][0] == NOW_S - 2 * DAY_S
    assert windows_of(NOW_S - 100, NOW_S) == [(NOW_S - 3700, NOW_S)]
    assert windows_of(NOW_S - 100, NOW_S, NOW_S - 5 * DAY_S)[0][0] == NOW_S - 5 * DAY_S


def test_a_clock_that_went_back_leaves_nothing_unread() -> None:
    assert windows_of(NOW_S + DAY_S, NOW_S) == [(NOW_S - 3600, NOW_S)]


@given(st.integers(0, 40 * DAY_S), st.none() | st.integers(1, 40 * DAY_S), st.integers(0, 2 * WINDOW_BYTES))
def test_windows_follow_each_other_up_to_now_and_are_at_most_a_day_long(
    back_s: int, since_back_s: int | None, answer_bytes: int
) -> None:
    since_s = None if since_back_s is None else NOW_S - since_back_s
    windows = windows_of(NOW_S - back_s, NOW_S, since_s, answer_bytes)
    assert all(0 < end - begin <= DAY_S for begin, end in windows)
    assert all(one[1] == next_one[0] for one, next_one in itertools.pairwise(windows))
    assert windows[-1][1] == NOW_S


def test_windows_grow_while_answers_are_small_and_shrink_where_they_are_large() -> None:
    assert next_span_s(3600, 3600, 0) == 7200
    assert next_span_s(DAY_S, DAY_S, 0) == DAY_S
    assert next_span_s(DAY_S, DAY_S, WINDOW_BYTES + 1) == DAY_S // 2
    assert next_span_s(60, 60, WINDOW_BYTES + 1) == 60


def test_a_short_question_says_little_about_a_long_window() -> None:
    # A small answer to a short question does not argue against a long window; a large answer does all the more.
    assert next_span_s(3600, 100, 0) == 3600
    assert next_span_s(3600, 100, WINDOW_BYTES) == 100
    assert next_span_s(3600, 1000, WINDOW_BYTES + 1) == 500
    assert next_span_s(3600, 1, WINDOW_BYTES) == 60


def test_later_reads_keep_the_pace_that_answers_have_set() -> None:
    pace, asked_s = Pace(), list[int]()
    answer = Fetched(size_bytes=WINDOW_BYTES + 1, records=lambda _known: ())

    def take(_answer: Fetched, begin_s: int, end_s: int) -> None:
        asked_s.append(end_s - begin_s)

    for _ in range(2):
        through_windows(lambda *_: answer, NOW_S - FIRST_S, NOW_S, take, pace=pace)
    assert asked_s[:3] == [FIRST_S, FIRST_S // 2, FIRST_S // 4]


def line(job: str, start: str, end: str) -> bytes:
    """A row of sacct's figures."""
    row = sacct_row({"JobIDRaw": job, "Start": start, "End": end}, {})
    return printed(FIGURES, [row]).split(b"\n")[1] + b"\n"


def test_jobs_that_waited_or_ran_when_a_window_ended_do_not_make_it_shorter() -> None:
    waits, runs, ended = line("1", "Unknown", "Unknown"), line("2", "17", "Unknown"), line("3", "17", "18")
    its_step, longer, step_of_longer = line("3.0", "17", "18"), line("4", "17", "90"), line("4.0", "17", "18")
    assert ended_bytes(b"", 50) == 0
    assert ended_bytes(printed(FIGURES, []), 50) == 0
    assert ended_bytes(ended * 5 + its_step, 50) == len(ended * 5 + its_step)
    assert ended_bytes(waits + runs + longer + step_of_longer, 50) == 0
    assert ended_bytes(longer + step_of_longer, 90) == len(longer + step_of_longer)


def test_too_large_an_answer_is_asked_for_in_shorter_windows_and_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A campaign of one hour with a job per second, after days of nothing."""
    campaign = [line(str(job), "17", str(NOW_S - 2 * DAY_S + job)) for job in range(HOUR_S)]
    monkeypatch.setattr("accounting.slurm.windows.WINDOW_BYTES", len(b"".join(campaign)) // 20)
    monkeypatch.setattr("accounting.slurm.windows.MOST_BYTES", len(b"".join(campaign)) // 5)
    asked, taken = list[int](), list[tuple[int, int]]()

    def source(begin_s: int, end_s: int) -> Fetched:
        ended = (max(0, one - NOW_S + 2 * DAY_S) for one in (begin_s, end_s))
        asked.append(begin_s)
        told = b"".join(campaign[slice(*ended)])
        return Fetched(size_bytes=ended_bytes(told, end_s), records=lambda _known: ())

    def take(fetched: Fetched, begin_s: int, end_s: int) -> None:
        assert fetched.size_bytes <= len(b"".join(campaign)) // 5
        taken.append((begin_s, end_s))

    through_windows(source, NOW_S - 10 * DAY_S, NOW_S, take)
    assert taken[0][0] == NOW_S - 10 * DAY_S
    assert taken[-1][1] == NOW_S
    assert all(one[1] == next_one[0] for one, next_one in itertools.pairwise(taken))
    assert len(taken) < len(asked) < 80


def test_a_minute_is_read_however_much_it_holds() -> None:
    assert windows_of(NOW_S - 100, NOW_S, NOW_S - 60, answer_bytes=10 * MOST_BYTES) == [(NOW_S - 60, NOW_S)]


def test_a_long_queue_that_has_drained_since_is_read_in_few_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its jobs is in the answer for any window between its submission and its end."""
    queue = [line(str(job), "17", str(NOW_S - 2 * DAY_S + 60 * job)) for job in range(2 * DAY_S // 60)]
    monkeypatch.setattr("accounting.slurm.windows.WINDOW_BYTES", len(b"".join(queue)) // 4)
    windows: list[tuple[int, int]] = []

    def source(begin_s: int, end_s: int) -> Fetched:
        told = b"".join(queue[max(0, begin_s - NOW_S + 2 * DAY_S) // 60 :])
        return Fetched(size_bytes=ended_bytes(told, end_s), records=lambda _known: ())

    through_windows(source, NOW_S - 2 * DAY_S, NOW_S, lambda _, *window: windows.append(window))
    assert len(windows) < 15
