"""Local times that come twice, in the hour after summer time ends: which of both moments a line means. Pure."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.labels.usage import Flags

# The first moments of local times (unix seconds), and the second ones: the same where a time comes once.
Moments: TypeAlias = tuple[pa.Array, pa.Array]


def fitting(
    submit_s: pa.Array, starts: Moments, ends: Moments, elapsed_s: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Return when attempts started and ended: the second moment where the first cannot be, else the first.

    It cannot be where they would start before they were submitted, or run for longer than from start to end. Null is
    not told; where nothing fits, all stays as it was read.
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
