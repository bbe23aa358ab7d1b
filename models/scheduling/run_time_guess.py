"""How long a job is expected to run, for backfill. Pure state: it learns from what ended and has no clock.

EASY++ (Tsafrir, Etsion, Feitelson: Backfilling using system-generated predictions rather than user runtime estimates,
TPDS 2007): the mean of the user's last two run times, never above what the user asked for. A job that outruns its
prediction gets a longer one, by the paper's fixed steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

LOOKED_BACK = 2
# What is added when a prediction is outrun, from the first time on; the last step repeats.
MINUTE_S, HOUR_S = 60.0, 3600.0
CORRECTIONS_S: tuple[float, ...] = (
    *(minutes * MINUTE_S for minutes in (1, 5, 15, 30)),
    *(hours * HOUR_S for hours in (1, 2, 5, 10, 20, 50, 100)),
)


class RunTimeGuess(Protocol):
    """How long jobs are expected to run (seconds), learned from those that ended."""

    def guess_s(self, user: int, limit_s: float) -> float:
        """Return the expected run time of a job of this user with this limit."""

    def ended(self, user: int, run_s: float) -> None:
        """Learn from a job that ended."""


class ByLimit:
    """The user's own limit, on which Slurm's backfill relies."""

    def guess_s(self, user: int, limit_s: float) -> float:  # noqa: ARG002
        """Return the limit."""
        return limit_s

    def ended(self, user: int, run_s: float) -> None:
        """Learn nothing."""


class LastTwo:
    """The mean of the user's last two run times."""

    def __init__(self) -> None:
        self._last: dict[int, deque[float]] = {}

    def guess_s(self, user: int, limit_s: float) -> float:
        """Return the mean, at most the limit; the limit if fewer than two of the user's jobs have ended."""
        last: Sequence[float] = self._last.get(user, ())
        return min(limit_s, sum(last) / LOOKED_BACK) if len(last) == LOOKED_BACK else limit_s

    def ended(self, user: int, run_s: float) -> None:
        """Remember the run time."""
        self._last.setdefault(user, deque(maxlen=LOOKED_BACK)).append(run_s)


def corrected_s(expected_s: float, times_outrun: int, limit_s: float) -> float:
    """Return the next expected run time of a job that outran the last one for the n-th time (from 0)."""
    step_s = CORRECTIONS_S[min(times_outrun, len(CORRECTIONS_S) - 1)]
    return max(min(expected_s + step_s, limit_s), expected_s)
