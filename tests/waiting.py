"""Waiting for other processes."""

from __future__ import annotations

import time
from collections.abc import Callable

# A long deadline costs nothing if it is not reached: a machine may be slow, or stand still for a while.
PATIENCE_S = 300.0


def wait_until(
    holds: Callable[[], object],
    why: str | Callable[[], str] = "",
    *,
    patience_s: float = PATIENCE_S,
    every_s: float = 0.1,
) -> None:
    """Check `holds` at intervals until it is true; AssertionError with `why` if that takes too long."""
    until_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < until_s, why if isinstance(why, str) else why()
        time.sleep(every_s)
