"""A stretch of time, asked of Slurm window by window, each as long as answers of the one before let it be."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from accounting.errors import LateAnswerError
from accounting.frames import Ints, Records

DAY_S, HOUR_S = 86400, 3600
# Windows are made so long that sacct's answer, which is held in memory, has some such size: 100,000 jobs.
WINDOW_BYTES = 64 * 1024**2
SHORTEST_S = 60
# An answer that does not come in time costs minutes: after it much less is asked for.
LATE_SHARE = 24


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What a source has about a window: its size, and its records but for those whose digests are known.

    The source may be asked again for each part of the records, and take minutes: outside any transaction.
    """

    size_bytes: int
    records: Callable[[Ints | None], Iterable[Records]]


# Asked for a window of unix seconds, outside any transaction: sacct may take minutes.
Source = Callable[[int, int], Fetched]
# Takes what came of a window, and the window.
Take = Callable[[Fetched, int, int], None]


def through_windows(
    source: Source, begin_s: int, until_s: int, take: Take, stopped: Callable[[], bool] = lambda: False
) -> None:
    """Ask about the time from `begin_s` until `until_s` (unix seconds), and hand each answer on to `take`.

    What does not come in time is asked for in shorter windows, also where `take` had begun with it; LateAnswerError
    where the shortest does not come either. Before each window `stopped` is asked whether to leave what is left.
    """
    span_s, longest_s = first_span_s(until_s - begin_s), DAY_S
    while begin_s < until_s and not stopped():
        end_s = min(begin_s + span_s, until_s)
        try:
            fetched = source(begin_s, end_s)
            take(fetched, begin_s, end_s)
        except LateAnswerError:
            if end_s - begin_s <= SHORTEST_S:
                raise
            longest_s = (end_s - begin_s) // 2
            span_s = max(SHORTEST_S, (end_s - begin_s) // LATE_SHARE)
            continue
        begin_s, span_s = end_s, min(next_span_s(span_s, fetched.size_bytes), longest_s)


def first_span_s(ahead_s: int) -> int:
    """Return the length of the first window: nothing is known yet of how many jobs a long way back holds."""
    return HOUR_S if ahead_s > DAY_S else DAY_S


def next_span_s(span_s: int, answer_bytes: int) -> int:
    """Return the length of the next window after one with an answer of so many bytes: from a minute to a day."""
    if answer_bytes > WINDOW_BYTES:
        return max(SHORTEST_S, span_s // 2)
    return min(DAY_S, span_s * 2) if answer_bytes < WINDOW_BYTES // 2 else span_s
