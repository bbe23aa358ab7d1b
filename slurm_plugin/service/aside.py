"""Work that may hang, done in a thread: an answer waits for it a few milliseconds, and no longer.

At most one piece of work is under way. A caller that asks meanwhile gets nothing, at once; so does every caller for a
while after several late results in a row. A file server that hangs therefore costs one wait, a slow one a few, and
neither costs an answer.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

# After this many late results in a row, nothing is asked for this long.
MOST_LATE, REST_S = 3, 30.0

Asked = TypeVar("Asked")
Told = TypeVar("Told")


class Aside(Generic[Asked, Told]):
    """Does `work` in a thread of its own, which ends with the process even if it hangs. For one caller at a time."""

    def __init__(
        self, work: Callable[[Asked], Told | None], wait_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._work = work
        self._wait_s = wait_s
        self._clock = clock
        self._asked: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        self._told: queue.SimpleQueue[Told | None] = queue.SimpleQueue()
        self._is_out = False
        self._late = 0
        self._rests_until_s = 0.0
        self._thread: threading.Thread | None = None

    def ask(self, asked: Asked) -> Told | None:
        """Return the result of the work; None if it is not there in time, failed, or was not even started."""
        if not self._is_back() or self._clock() < self._rests_until_s:
            return None
        if self._thread is None:
            self._thread = threading.Thread(target=self._go_on, name="aside", daemon=True)
            self._thread.start()
        self._asked.put(asked)
        try:
            told = self._told.get(timeout=self._wait_s)
        except queue.Empty:
            self._is_out = True
            self._count_late()
            return None
        self._late = 0
        return told

    def _is_back(self) -> bool:
        """Whether nothing is under way; a result that came too late is thrown away."""
        if self._is_out:
            try:
                self._told.get_nowait()
            except queue.Empty:
                return False
            self._is_out = False
        return True

    def _count_late(self) -> None:
        self._late += 1
        if self._late >= MOST_LATE:
            self._late, self._rests_until_s = 0, self._clock() + REST_S
            log.warning("%d results in a row were late: nothing is asked for %.0f s", MOST_LATE, REST_S)

    def _go_on(self) -> None:
        while True:
            asked = self._asked.get()
            told = None
            try:
                told = self._work(asked)
            except Exception:  # the top of a thread: whatever happens to one job, the next one is looked at
                log.exception("work beside an answer failed")
            self._told.put(told)
