"""What each of many submissions can look back on: the last jobs of a group that had ended before it. Pure.

The jobs of all groups lie one after the other, by group and end; a submission's past is then a window that ends where
`searchsorted` says. Windows are handled some thousands at a time, which bounds memory. A column is a submission and a
row is a past job, the oldest first, so that every step is one NumPy call over whole rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accounting.frames import Flags, Floats, Ints
from models.past.columns import Kind, PastColumns
from models.past.evidence import COMPARABLE_INPUT, SURPRISE_LOG
from models.past.likeness import COMPARABLE_REQUEST, ENOUGH_NEAR

# 100 past jobs of this many submissions are 1.6 MB, which a core's own cache holds.
SUBMISSIONS_A_PART = 2_048


class Ended:
    """The jobs of one kind of group that ever started, by group and end, and which a submission may look back on."""

    def __init__(self, past: PastColumns, kind: Kind, recent_jobs: int) -> None:
        by_end = past.by_end()
        by_end = by_end[kind.codes[by_end] >= 0]
        self.rows = by_end[np.argsort(kind.codes[by_end], kind="stable")]
        codes, ends_s = kind.codes[self.rows], past.end_s[self.rows]
        first_s = int(ends_s.min()) if len(ends_s) else 0
        span = int(ends_s.max()) - first_s + 2 if len(ends_s) else 1
        # One number for group and end; submissions are moved to between the first end of all and just after the last.
        keys = codes * span + (ends_s - first_s)
        moments = kind.codes * span + np.clip(past.submit_s - first_s, 0, span - 1)
        # A job that ends in the very second of a submission is not known to it yet.
        self.end = np.searchsorted(keys, moments, side="left")
        self.first = np.maximum(np.searchsorted(codes, kind.codes, side="left"), self.end - recent_jobs)
        self.first[kind.codes < 0] = self.end[kind.codes < 0] = 0

    def count(self) -> Ints:
        """Return how many jobs each submission looks back on."""
        return self.end - self.first


@dataclass(frozen=True)
class Part:
    """The windows of some submissions: `places` in Ended (past jobs × submissions), and which of them are `there`."""

    submissions: Ints
    places: Ints
    there: Flags


def parts(ended: Ended, submissions: Ints) -> Iterator[Part]:
    """Yield the windows of those submissions that look back on any job, some thousands at a time."""
    count = ended.count()[submissions]
    # Windows of one length, and near each other, come into one part.
    order = np.lexsort((ended.end[submissions], count))
    submissions = submissions[order[count[order] > 0]]
    for begin in range(0, len(submissions), SUBMISSIONS_A_PART):
        some = submissions[begin : begin + SUBMISSIONS_A_PART]
        width = int(ended.count()[some[-1]])
        places = ended.end[some] - np.arange(width, 0, -1)[:, None]
        yield Part(some, np.maximum(places, 0), places >= ended.first[some])


class Comparable:
    """Which jobs of a window count for a submission (`comparable` in models/past/likeness.py)."""

    def __init__(self, past: PastColumns, ended: Ended) -> None:
        # A job that did not ask counts for any request, and any job counts for a request that does not ask.
        self._asked = [
            (np.nan_to_num(asked[ended.rows], nan=np.inf), _least_asked(np.nan_to_num(wants, nan=0.0)))
            for asked, wants in (
                (past.asked_mem_mib, past.asked_mem_mib),
                (past.asked_cpus, past.cpus),
                (past.asked_gpus, past.asked_gpus),
            )
        ]
        self._tasks, self._wants_tasks = past.num_tasks[ended.rows], past.num_tasks
        self._inputs = None if np.isnan(past.input_mib).all() else InputLike(past, ended)

    def of(self, part: Part) -> Flags:
        """Return which jobs of the windows are comparable."""
        tells: Flags = part.there & (self._tasks[part.places] == self._wants_tasks[part.submissions])
        for asked, wants in self._asked:
            tells &= asked[part.places] >= wants[part.submissions]
        return tells if self._inputs is None else self._inputs.of(part, tells)


def _least_asked(amounts: Floats) -> Floats:
    """Return `least_asked` (models/past/likeness.py) of many amounts, 0 if nothing was asked."""
    least: Floats = np.where(amounts > 0, amounts // COMPARABLE_REQUEST + 1, 0.0)
    return least


class InputLike:
    """Which jobs of a window had an input like a submission's (`with_input_like` in models/past/likeness.py)."""

    def __init__(self, past: PastColumns, ended: Ended) -> None:
        had = past.input_mib[ended.rows]
        # A job whose input is not known counts for any request, and any job for a request whose input is not known.
        self._at_most, self._at_least = np.nan_to_num(had, nan=-np.inf), np.nan_to_num(had, nan=np.inf)
        self._wants_least = np.nan_to_num(past.input_mib, nan=-np.inf) / COMPARABLE_INPUT
        self._wants_most = np.nan_to_num(past.input_mib, nan=np.inf) * COMPARABLE_INPUT
        self._shows = past.complete[ended.rows] & ~np.isnan(had)

    def of(self, part: Part, tells: Flags) -> Flags:
        """Return which of the comparable jobs had such an input."""
        not_smaller = tells & (self._at_least[part.places] >= self._wants_least[part.submissions])
        near = not_smaller & (self._at_most[part.places] <= self._wants_most[part.submissions])
        enough = (near & self._shows[part.places]).sum(axis=0) >= ENOUGH_NEAR
        like: Flags = np.where(enough, near, not_smaller)
        return like


@dataclass(frozen=True)
class Uses:
    """`PastUse` of many submissions, in columns; where `count` is 0, the other columns say nothing."""

    count: Ints
    streak: Ints
    highest_log: Floats
    mean_log: Floats
    last_log: Floats
    spread_log: Floats
    above_median: Floats


def uses_in(logs: Floats, tells: Flags, beyond: Flags | None) -> Uses:
    """Return what windows show of a dimension; `logs` are logarithms of need, -inf if not known or not to count.

    A job that does not show its whole need counts only if it shows more than all before it. A job that went `beyond`
    what is asked for is a surprise, and shows nothing else.
    """
    if beyond is not None:
        logs = np.where(beyond, -np.inf, logs)
    so_far = np.maximum.accumulate(logs, axis=0)
    before = np.empty_like(so_far)
    before[0], before[1:] = -np.inf, so_far[:-1]
    counted = (tells & (logs > -np.inf)) | (logs > before)
    number = counted.cumsum(axis=0, dtype=np.int16)
    count = number[-1].astype(np.int64)
    surprise = counted & (logs > before + SURPRISE_LOG)
    surprised = np.where(surprise if beyond is None else surprise | beyond, number, 0).max(axis=0)
    divisor = np.maximum(count, 1)
    mean = np.where(counted, logs, 0.0).sum(axis=0) / divisor
    apart = np.where(counted, logs - mean, 0.0)
    above = np.maximum(np.where(counted, logs, -np.inf) - _medians(logs, counted, divisor), 0.0)
    return Uses(
        count=count,
        streak=count - surprised + 1,
        highest_log=so_far[-1],
        mean_log=mean,
        last_log=logs[number.argmax(axis=0), np.arange(logs.shape[1])],
        spread_log=np.sqrt(np.einsum("ij,ij->j", apart, apart) / divisor),
        above_median=np.einsum("ij,ij->j", above, above),
    )


def _medians(logs: Floats, counted: Flags, count: Ints) -> Floats:
    ordered = np.sort(np.where(counted, logs, np.inf).T, axis=1)
    each = np.arange(len(ordered))
    medians: Floats = (ordered[each, (count - 1) // 2] + ordered[each, count // 2]) / 2
    return medians
