"""The socket: takes lines, gives lines. Every failure here means silence, and silence leaves the job alone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

from accounting.errors import ServiceError
from slurm_plugin.config import Config
from slurm_plugin.service.answers import LEAST_PAUSE_S, Answers, Send
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.service.decide import chain_settings_of
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.protocol import MAX_REQUEST_BYTES

log = logging.getLogger(__name__)

# One readlink beside the loop; what is new is loaded and in use within a second of its promotion.
MODEL_CHECK_S = 0.2
FACTS_CHECK_S = 5.0
# The hook gives up after some 25 ms: whoever takes longer over a line, or over its first one, is not the hook.
SLOW_S = 2.0
# Between lines the hook keeps its connection, and makes a new one where it finds it closed.
QUIET_S = 300.0
BACKLOG = 256

Handler = Callable[[bytes, Send], bool]


class Connection(asyncio.Protocol):
    """One client. It may send line after line; it may not be slow about one, nor make one too long."""

    def __init__(self, handle: Handler, answered: Callable[[], None]) -> None:
        self._handle = handle
        self._answered = answered
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._seen_s = 0.0
        self._patience_s = SLOW_S
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with a client."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a Unix stream is one; tells mypy
        self._transport = transport
        self._seen_s = time.monotonic()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End with a client."""
        if self._watch is not None:
            self._watch.cancel()

    def _look(self) -> None:
        """Drop a client that has taken too long; else look again later."""
        assert self._transport is not None  # noqa: S101
        quiet_s = time.monotonic() - self._seen_s
        if quiet_s > self._patience_s:
            self._transport.abort()
        else:
            self._watch = asyncio.get_running_loop().call_later(SLOW_S, self._look)

    def data_received(self, data: bytes) -> None:
        """Answer every whole line; drop a client that sends more than a request can be."""
        assert self._transport is not None  # noqa: S101
        *lines, rest = (self._buffer + data).split(b"\n")
        if lines or not self._buffer:
            self._seen_s = time.monotonic()
        self._patience_s = SLOW_S if rest else QUIET_S
        self._buffer = rest
        for line in lines:
            if not self._answer(line):
                self._transport.close()
                return
            self._answered()
        if len(rest) > MAX_REQUEST_BYTES:
            log.warning("a client sent more than %d bytes without a line end", MAX_REQUEST_BYTES)
            self._transport.abort()

    def _answer(self, line: bytes) -> bool:
        assert self._transport is not None  # noqa: S101
        try:
            return self._handle(line, self._transport.write)
        except Exception:  # the request handler: whatever happens to one job, the next one gets an answer
            log.exception("a request failed")
            return False


class Rehearsals:
    """Calls `rehearse` on the loop's own thread, whose caches it keeps warm, whenever that wants to be called again."""

    def __init__(self, rehearse: Callable[[], float | None]) -> None:
        self._rehearse = rehearse
        self._next: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin anew, soon after an answer."""
        if self._next is not None:
            self._next.cancel()
        self._next = asyncio.get_running_loop().call_later(LEAST_PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        pause_s = self._rehearse()
        self._next = None if pause_s is None else asyncio.get_running_loop().call_later(pause_s, self._go_on)


def bind_socket(path: Path, mode: int, key: str = "service.socket") -> socket.socket:
    """Return a listening socket at `path`, which the configuration has under `key`; a dead service's is replaced.

    Raises ServiceError where a service answers there already, or the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            # EAGAIN: its queue is full, so there is one behind it that is busy or stuck.
            if path.exists() and probe.connect_ex(str(path)) in (0, errno.EAGAIN):
                raise ServiceError(f"the socket {path} is taken by a running service; stop that one first")
        if path.exists() and not path.is_socket():
            raise ServiceError(f"{path} exists and is no socket; move it away or set {key}")
        path.unlink(missing_ok=True)
        with contextlib.ExitStack() as undo:
            server = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            server.bind(str(path))
            path.chmod(mode)
            server.listen(BACKLOG)
            undo.pop_all()
    except OSError as error:
        raise ServiceError(f"cannot listen on {path}: {error.strerror or error}; set {key}") from None
    return server


async def serve(config: Config) -> None:
    """Answer until SIGTERM or SIGINT; raises ServiceError where the service cannot start."""
    model = CurrentModel(Path(config.models.directory), chain_settings_of(config))
    model.refresh()
    facts = CurrentFacts(config)
    # Before the first answer: a limit that is not known yet would not be kept.
    facts.refresh_when_due()
    journal = Journal(Path(config.service.journal))
    path = Path(config.service.socket)
    listening = bind_socket(path, int(config.service.socket_mode, 8))
    answers = Answers(config, model, facts, journal)
    rehearsals = Rehearsals(answers.rehearse)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(
        lambda: Connection(answers.handle, rehearsals.begin), sock=listening
    )
    log.info("answering on %s in mode %s", path, config.mode)
    try:
        await until_stopped(
            every(MODEL_CHECK_S, model.refresh),
            every(FACTS_CHECK_S, facts.refresh_when_due),
            model.follow_feed(),
        )
    finally:
        server.close()
        path.unlink(missing_ok=True)
        journal.close()
    log.info("stopped")


async def until_stopped(*works: Coroutine[object, object, object]) -> None:
    """Wait for SIGTERM or SIGINT, and meanwhile do all these works, none of which should end."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(stop.wait()),
        *(asyncio.create_task(work) for work in works),
    ]
    try:
        # A task that fails ends the service: restarted, it has them all again; until then jobs pass unchanged.
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


async def every(pause_s: float, refresh: Callable[[], None]) -> None:
    """Refresh now and from time to time, beside the loop, so that answers go on."""
    while True:
        await asyncio.to_thread(refresh)
        await asyncio.sleep(pause_s)
