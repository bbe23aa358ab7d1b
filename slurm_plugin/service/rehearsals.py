"""Rehearsals: the latest line is sent again, and is received, answered and sent back like a client's.

This keeps what an answer needs in the caches of the processor that runs the loop: the kernel's part, asyncio's and
ours. After 20 ms of idling, the next answer that is not remembered would take three times as long, after 100 ms seven
times.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time

from slurm_plugin.service.answers import Send
from slurm_plugin.service.connections import Connections, Handler

log = logging.getLogger(__name__)

# Submissions come in bursts: the longer ago the last one was, the rarer the rehearsals, from a millisecond to a
# minute after it. That is some 700 for one submission, a fifth of a second of one core in all.
LEAST_PAUSE_S, PAUSE_SHARE, EXPECTED_S = 0.001, 0.01, 60.0
# More than the hook accepts as a reply.
ROOM_BYTES = 65536


def pause_s(since_s: float) -> float | None:
    """Return the seconds until the next rehearsal, `since_s` after a submission; None if there are no more."""
    return max(LEAST_PAUSE_S, since_s * PAUSE_SHARE) if since_s <= EXPECTED_S else None


class Rehearsals:
    """Sends the latest line over a connection of its own, to be answered by `rehearse`, and drops the reply."""

    def __init__(self, rehearse: Handler) -> None:
        self._hook, self._accepted = socket.socketpair()
        self._hook.setblocking(False)
        self._rehearse = rehearse
        self._connections = Connections(self._answer, lambda _: True, lambda _: None, bounded=False)
        self._next: asyncio.TimerHandle | None = None
        self._works = True
        self._line, self._begun_s = b"", 0.0
        self._room = bytearray(ROOM_BYTES)

    async def connect(self) -> None:
        """Connect the loop's end, before the first rehearsal."""
        await asyncio.get_running_loop().connect_accepted_socket(self._connections.new, self._accepted)

    def pause(self) -> None:
        """Stop rehearsing until the next `begin`."""
        self._plan(None)

    def begin(self, line: bytes) -> None:
        """Start again, with the line that was answered last."""
        self._line, self._begun_s = line, time.monotonic()
        if self._works:
            self._plan(LEAST_PAUSE_S)

    def close(self) -> None:
        """Stop for good."""
        self._works = False
        self._plan(None)
        self._connections.close()
        self._hook.close()

    def _answer(self, line: bytes, send: Send) -> bool:
        try:
            return self._rehearse(line, send)
        except Exception:  # it failed for nobody: answers go on, and other lines are rehearsed
            log.exception("a rehearsal failed; the next submission begins anew")
            self.pause()
            return True

    def _plan(self, after_s: float | None) -> None:
        if self._next is not None:
            self._next.cancel()
        loop = asyncio.get_running_loop()
        self._next = None if after_s is None else loop.call_later(after_s, self._go_on)

    def _go_on(self) -> None:
        try:
            # Drop the reply to the previous rehearsal.
            with contextlib.suppress(BlockingIOError):
                self._hook.recv_into(self._room)
            self._hook.send(self._line + b"\n")
        except OSError as error:
            # No reason to end a service that answers.
            log.warning("no more rehearsals: %s", error.strerror or error)
            self._works = False
            return
        self._plan(pause_s(time.monotonic() - self._begun_s))
