"""The hook's connections: line after line from each, with bounds on their number and on the memory of each.

slurmctld needs one connection, and on some releases keeps one more open after each reconfigure: a client that exceeds
the bounds is not the hook. Nothing here waits for a client.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import OrderedDict
from collections.abc import Callable

from slurm_plugin.service.answers import Send
from slurm_plugin.service.protocol import MAX_REQUEST_BYTES

log = logging.getLogger(__name__)

# The hook gives up after some 25 ms: a client that takes longer over a line, or over its first one, is not the hook.
SLOW_S = 2.0
# Between lines the hook keeps its connection, and makes a new one if it finds it closed.
QUIET_S = 300.0
MOST_CONNECTIONS = 128

Handler = Callable[[bytes, Send], bool]
Admits = Callable[[socket.socket], bool]


class Connections:
    """All open connections, the one that has been quiet longest first: it is dropped if there is one too many."""

    def __init__(
        self,
        handle: Handler,
        admits: Admits,
        answered: Callable[[bytes], None],
        *,
        bounded: bool = True,
    ) -> None:
        self.handle = handle
        self.admits = admits
        self.answered = answered
        # Whether slow or quiet clients are dropped.
        self.bounded = bounded
        self._open: OrderedDict[Connection, None] = OrderedDict()
        # The buffer that asyncio reads into, shared by all clients. Otherwise it allocates a quarter of a MiB for each
        # line, which costs more than the rest of reading it.
        self.room = bytearray(MAX_REQUEST_BYTES)

    def new(self) -> Connection:
        """Return the protocol object of a new connection: asyncio calls this."""
        return Connection(self)

    def add(self, one: Connection) -> None:
        """Add a connection, and drop the quietest one if there are too many."""
        self._open[one] = None
        if len(self._open) > MOST_CONNECTIONS:
            quietest, _ = self._open.popitem(last=False)
            quietest.abort()

    def heard(self, one: Connection) -> None:
        """Note that a connection is not quiet."""
        if one in self._open:
            self._open.move_to_end(one)

    def remove(self, one: Connection) -> None:
        """Remove a connection."""
        self._open.pop(one, None)

    def close(self) -> None:
        """Close all connections, once their answers are sent."""
        for one in list(self._open):
            one.close()


class Connection(asyncio.BufferedProtocol):
    """One client. It may send line after line, but may not be slow about one, nor send one that is too long.

    Nothing more is read from a client that does not take its answers.
    """

    def __init__(self, others: Connections) -> None:
        self._others = others
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._seen_s = 0.0
        self._patience_s = SLOW_S
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving a client, unless it may not ask."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a Unix stream is one; tells mypy
        self._transport = transport
        if not self._others.admits(transport.get_extra_info("socket")):
            transport.abort()
            return
        self._others.add(self)
        self._seen_s = time.monotonic()
        if self._others.bounded:
            self._look()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Stop serving a client."""
        self._others.remove(self)
        if self._watch is not None:
            self._watch.cancel()

    def pause_writing(self) -> None:
        """Read no more from a client that lets its answers pile up."""
        assert self._transport is not None  # noqa: S101
        self._transport.pause_reading()
        self._patience_s = SLOW_S

    def resume_writing(self) -> None:
        """Read on from a client that has taken its answers."""
        assert self._transport is not None  # noqa: S101
        self._transport.resume_reading()
        self._seen_s = time.monotonic()
        self._patience_s = SLOW_S if self._buffer else QUIET_S

    def abort(self) -> None:
        """Hang up at once."""
        assert self._transport is not None  # noqa: S101
        self._transport.abort()

    def close(self) -> None:
        """Hang up once the answers are sent."""
        assert self._transport is not None  # noqa: S101
        self._transport.close()

    def _look(self) -> None:
        """Drop a client that has taken too long; otherwise look again later."""
        quiet_s = time.monotonic() - self._seen_s
        if quiet_s > self._patience_s:
            self.abort()
        else:
            self._watch = asyncio.get_running_loop().call_later(SLOW_S, self._look)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        """Return the buffer for the next bytes; they are taken out before anything else is read."""
        return self._others.room

    def buffer_updated(self, nbytes: int) -> None:
        """Answer every whole line; drop a client that sends more than a request can be."""
        *lines, rest = (self._buffer + self._others.room[:nbytes]).split(b"\n")
        if lines or not self._buffer:
            self._seen_s = time.monotonic()
            self._others.heard(self)
        self._patience_s = SLOW_S if rest else QUIET_S
        self._buffer = rest
        for line in lines:
            if not self._answer(line):
                self.close()
                return
            self._others.answered(line)
        if len(rest) > MAX_REQUEST_BYTES:
            log.warning("a client sent more than %d bytes without a line end", MAX_REQUEST_BYTES)
            self.abort()

    def _answer(self, line: bytes) -> bool:
        assert self._transport is not None  # noqa: S101
        try:
            return self._others.handle(line, self._transport.write)
        except Exception:  # the request handler: whatever happens to one job, the next one gets an answer
            log.exception("a request failed")
            return False
