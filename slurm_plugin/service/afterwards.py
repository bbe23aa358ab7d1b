"""Work that an answer leaves behind, done a moment later, when the client that waited for the answer has gone on.

Linux tends to wake the service on the processor of the hook that asks it, where the hook can go on only once the
service sleeps: work done right after an answer would hold up slurmctld. And soon after it, slurmctld and the user's
sbatch want the processors.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

# Longer than slurmctld needs for the rest of a submission.
PAUSE_S = 0.005

Work = Callable[[], object]


class Afterwards:
    """Pieces of work to do, each once, in their order."""

    def __init__(self) -> None:
        self._due: deque[Work] = deque()

    def add(self, work: Work) -> None:
        """Do the work after a pause, on the running loop."""
        if not self._due:
            asyncio.get_running_loop().call_later(PAUSE_S, self.do_all)
        self._due.append(work)

    def do_all(self) -> None:
        """Do all that is due, in the next turn of the loop; the loop logs what one of them raises and does the next."""
        loop = asyncio.get_running_loop()
        while self._due:
            loop.call_soon(self._due.popleft())
