"""Resolves local times that occur twice, when summer time ends. Pure."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.frames import Flags

# The first and second moments of local times (unix seconds), equal if a time occurs only once.
Moments: TypeAlias = tuple[pa.Array, pa.Array]


def fitting(
    submit_s: pa.Array, starts: Moments, ends: Moments, elapsed_s: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Return the start and end times of attempts, taking the second moment if the first is impossible.

    Impossible means that the attempt would start before it was submitted, or run for longer than from start to end.
    Null means not recorded; if neither moment fits, the times stay as read.
    """
    (start_s, later_start_s), (end_s, later_end_s) = starts, ends
    if later_start_s.equals(start_s) and later_end_s.equals(end_s):
        return start_s, end_s
    fits = _fits(submit_s, start_s, end_s, elapsed_s)
    for begun_s, over_s in ((starts[0], later_end_s), (later_start_s, later_end_s)):
        better = ~fits & _fits(submit_s, begun_s, over_s, elapsed_s)
        start_s, end_s = (
            pc.if_else(pa.array(better), begun_s, start_s),
            pc.if_else(pa.array(better), over_s, end_s),
        )
        fits |= better
    return start_s, end_s


def _fits(submit_s: pa.Array, start_s: pa.Array, end_s: pa.Array, elapsed_s: pa.Array) -> Flags:
    submit, start, end, elapsed = (
        np.asarray(pc.fill_null(column, 0)) for column in (submit_s, start_s, end_s, elapsed_s)
    )
    started = start > 0
    room_s = np.where(started, end - start + 1, 0)
    flags: Flags = (
        (~started | (start >= submit)) & (end >= np.where(started, start, submit)) & (elapsed <= room_s)
    )
    return flags
