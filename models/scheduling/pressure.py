"""How large a job may be that is promised its deadline, by what came lately. Pure state, without a clock of its own.

If more comes than can be done, no order saves all jobs: each large one keeps many small ones waiting. If the jobs of
the last hour had been served smallest first, those done in an hour would have reached up to some size. Larger jobs
are promised nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque

WINDOW_S = 3600.0
# At the start, few jobs have come yet.
LEAST_WINDOW_S = 600.0


class Pressure:
    """Jobs that came lately, and how long each would keep the whole cluster busy (seconds).

    `promised_share` is how much of the cluster is promised to what comes; less than all, as a job with a deadline
    cannot wait for its turn.
    """

    def __init__(self, promised_share: float) -> None:
        self._promised_share = promised_share
        self._came: deque[tuple[float, float]] = deque()
        self._sorted_s: list[float] = []
        self._begun_s = math.inf

    def came(self, at_s: float, work_s: float) -> None:
        """Learn of a job that came; call in order of time."""
        self._begun_s = min(self._begun_s, at_s)
        self._came.append((at_s, work_s))
        insort(self._sorted_s, work_s)

    @property
    def came_lately(self) -> bool:
        """Whether any job came in the last hour, as of the last call of `most_s`."""
        return bool(self._came)

    def most_s(self, now_s: float) -> float:
        """Return the work below which all jobs of the last hour can be done; infinite: all of them can."""
        while self._came and self._came[0][0] < now_s - WINDOW_S:
            del self._sorted_s[bisect_left(self._sorted_s, self._came.popleft()[1])]
        left_s = self._promised_share * min(WINDOW_S, max(LEAST_WINDOW_S, now_s - self._begun_s))
        for work_s in self._sorted_s:
            left_s -= work_s
            if left_s < 0:
                return work_s
        return math.inf
