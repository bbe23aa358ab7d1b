"""What an answer leaves to do, done a moment after it, when whoever waited for the answer has gone on.

Linux likes to wake the service on the processor of the hook that asks it, where the hook goes on only once the service
sleeps: all that follows an answer at once would hold up slurmctld. And soon after it, slurmctld and the user's sbatch
want the processors.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

# Longer than slurmctld takes for the rest of a submission.
PAUSE_S = 0.005

Work = Callable[[], object]


class Afterwards:
    """Works to do, each once, in their order."""

    def __init__(self) -> None:
        self._due: deque[Work] = deque()

    def add(self, work: Work) -> None:
        """Do it after a pause, by the loop that runs."""
        if not self._due:
            asyncio.get_running_loop().call_later(PAUSE_S, self.do_all)
        self._due.append(work)

    def do_all(self) -> None:
        """Do all that is due, in the next turn of the loop, which logs what one of them raises and does the next."""
        loop = asyncio.get_running_loop()
        while self._due:
            loop.call_soon(self._due.popleft())
