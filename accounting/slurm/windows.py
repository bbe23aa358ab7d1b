"""A stretch of time, asked of Slurm window by window, each as long as answers of the one before let it be."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from accounting.errors import LateAnswerError
from accounting.frames import Ints, Records

DAY_S, HOUR_S = 86400, 3600
# Windows are made so long that as much of sacct's answer, which is held in memory, is of what has ended: some 12,000
# jobs with their steps. What they are read into takes ten times as much.
WINDOW_BYTES = 8 * 1024**2
# More than this of one answer is not read: after quiet days a window may hold a whole campaign.
MOST_BYTES = 4 * WINDOW_BYTES
# The first is so long: nothing is known yet of how many jobs it holds.
FIRST_S, SHORTEST_S = 2 * HOUR_S, 60
# An answer that does not come in time costs minutes: after it much less is asked for.
LATE_SHARE = 24


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What a source has about a window: how much has ended, and its records but for those whose digests are known.

    The source may be asked again for each part of the records, and take minutes: outside any transaction.
    """

    size_bytes: int
    records: Callable[[Ints | None], Iterable[Records]]


# Asked for a window of unix seconds, outside any transaction: sacct may take minutes.
Source = Callable[[int, int], Fetched]
# Takes what came of a window, and the window.
Take = Callable[[Fetched, int, int], None]


class Pace(msgspec.Struct):
    """How long the next window is. Who asks again and again keeps one, and so what answers have told."""

    span_s: int = FIRST_S


def through_windows(
    source: Source,
    begin_s: int,
    until_s: int,
    take: Take,
    stopped: Callable[[], bool] = lambda: False,
    pace: Pace | None = None,
) -> None:
    """Ask about the time from `begin_s` until `until_s` (unix seconds), and hand each answer on to `take`.

    What does not come in time is asked for in shorter windows, also where `take` had begun with it, and so is what is
    too much at once; LateAnswerError where the shortest does not come either. Before each window `stopped` is asked
    whether to leave what is left.
    """
    pace, longest_s = pace or Pace(), DAY_S
    while begin_s < until_s and not stopped():
        end_s = min(begin_s + pace.span_s, until_s)
        try:
            fetched = source(begin_s, end_s)
            if fetched.size_bytes > MOST_BYTES and end_s - begin_s > SHORTEST_S:
                pace.span_s = max(SHORTEST_S, (end_s - begin_s) * WINDOW_BYTES // fetched.size_bytes)
                del fetched  # not to be held beside the next answer
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
    """Return the length of the next window after one with an answer of so many bytes: from a minute to a day.

    So long was what was asked about; `span_s`, which is longer, what was to be asked about had there been as much.
    """
    if answer_bytes > WINDOW_BYTES:
        return max(SHORTEST_S, asked_s // 2)
    return (
        min(DAY_S, max(span_s, asked_s * 2)) if answer_bytes < WINDOW_BYTES // 2 else max(SHORTEST_S, asked_s)
    )
