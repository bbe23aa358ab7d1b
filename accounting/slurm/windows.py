"""Asks Slurm about a stretch of time, window by window; the length of each depends on the answers before."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from accounting.errors import LateAnswerError
from accounting.frames import Ints, Records

DAY_S, HOUR_S = 86400, 3600
# Windows are made so long that this much of sacct's answer, which is held in memory, is about ended jobs: some
# 12,000 jobs with their steps. What they are parsed into takes ten times as much.
WINDOW_BYTES = 8 * 1024**2
# A larger answer is not parsed: after quiet days a window may hold a whole campaign.
MOST_BYTES = 4 * WINDOW_BYTES
# The length of the first window, when it is not known yet how many jobs it holds.
FIRST_S, SHORTEST_S = 2 * HOUR_S, 60
# An answer that does not come in time costs minutes: much less is asked for next.
LATE_SHARE = 24


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What a source has about a window: how much has ended, and its records except those with known digests.

    The source may be asked again for each part of the records, and take minutes: use it outside any transaction.
    """

    size_bytes: int
    records: Callable[[Ints | None], Iterable[Records]]


# Called for a window (unix seconds), outside any transaction: sacct may take minutes.
Source = Callable[[int, int], Fetched]
# Called with what came of a window, and the window.
Take = Callable[[Fetched, int, int], None]


class Pace(msgspec.Struct):
    """The length of the next window. A caller that asks repeatedly keeps one, and with it what answers have shown."""

    span_s: int = FIRST_S


def through_windows(
    source: Source,
    begin_s: int,
    until_s: int,
    take: Take,
    stopped: Callable[[], bool] = lambda: False,
    pace: Pace | None = None,
) -> None:
    """Ask about the time from `begin_s` until `until_s` (unix seconds), and pass each answer to `take`.

    An answer that is late, even if `take` had begun with it, or too large, is asked for again in shorter windows;
    LateAnswerError if the shortest is late too. Before each window, `stopped` is asked whether to leave the rest.
    """
    pace, longest_s = pace or Pace(), DAY_S
    while begin_s < until_s and not stopped():
        end_s = min(begin_s + pace.span_s, until_s)
        try:
            fetched = source(begin_s, end_s)
            if fetched.size_bytes > MOST_BYTES and end_s - begin_s > SHORTEST_S:
                pace.span_s = max(SHORTEST_S, (end_s - begin_s) * WINDOW_BYTES // fetched.size_bytes)
                del fetched  # not to be held next to the next answer
                continue
            take(fetched, begin_s, end_s)
        except LateAnswerError:
            if end_s - begin_s <= SHORTEST_S:
                raise
            longest_s = (end_s - begin_s) // 2
            pace.span_s = max(SHORTEST_S, (end_s - begin_s) // LATE_SHARE)
            continue
        pace.span_s = min(next_span_s(pace.span_s, end_s - begin_s, fetched.size_bytes), longest_s)
        begin_s = end_s


def next_span_s(span_s: int, asked_s: int, answer_bytes: int) -> int:
    """Return the length (s) of the next window after an answer of this size: from a minute to a day.

    `asked_s` is the length that was asked about; `span_s`, which may be longer, is what would have been asked about
    if that much time had been left.
    """
    if answer_bytes > WINDOW_BYTES:
        return max(SHORTEST_S, asked_s // 2)
    return (
        min(DAY_S, max(span_s, asked_s * 2)) if answer_bytes < WINDOW_BYTES // 2 else max(SHORTEST_S, asked_s)
    )
