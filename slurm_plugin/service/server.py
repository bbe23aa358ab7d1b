"""The socket: takes lines, gives lines. Every failure here means silence, and silence leaves the job alone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from accounting.errors import ServiceError
from slurm_plugin.config import Config
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.service.decide import chain_settings_of, decide, reply_to
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.protocol import MAX_REQUEST_BYTES, decode_request, encode_reply
from slurm_plugin.service.remembered import Remembered

log = logging.getLogger(__name__)

MODEL_CHECK_S = 0.5
FACTS_CHECK_S = 600.0
# The hook gives up after some 25 ms; whoever holds a connection longer is not the hook.
IDLE_S = 2.0
BACKLOG = 256

Handler = Callable[[bytes], bytes | None]


def make_handler(config: Config, model: CurrentModel, facts: CurrentFacts, journal: Journal) -> Handler:
    """Return the function from a request line to a reply line; None where the line deserves no answer."""
    remembered = Remembered(
        lambda job, predictor, known, name, now_s: decide(job, predictor, config, name, now_s, known)
    )

    def handle(line: bytes) -> bytes | None:
        request = decode_request(line)
        if isinstance(request, str):
            log.warning("a request was not understood: %s", request)
            return None
        answer = remembered.answer(
            request.job, model.predictor, facts.facts, os.urandom(6).hex(), time.time()
        )
        try:
            journal.append(answer.decision)
        except OSError as error:
            # The token in the job's comment holds the decision too: one copy is enough to answer.
            log.error("decision %s is not journalled: %s", answer.decision.id, error)  # noqa: TRY400
        return encode_reply(reply_to(request.id, answer))

    return handle


class Connection(asyncio.Protocol):
    """One client. It may send several lines; it may not be slow about it, nor long."""

    def __init__(self, handle: Handler) -> None:
        self._handle = handle
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with a client."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a Unix stream is one; tells mypy
        self._transport = transport
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End with a client."""
        if self._idle is not None:
            self._idle.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer every whole line; drop a client that sends more than a request can be."""
        assert self._transport is not None  # noqa: S101
        self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            reply = self._answer(bytes(line))
            if reply is None:
                self._transport.close()
                return
            self._transport.write(reply)
        if len(self._buffer) > MAX_REQUEST_BYTES:
            log.warning("a client sent more than %d bytes without a line end", MAX_REQUEST_BYTES)
            self._transport.abort()

    def _answer(self, line: bytes) -> bytes | None:
        try:
            return self._handle(line)
        except Exception:  # the request handler: whatever happens to one job, the next one gets an answer
            log.exception("a request failed")
            return None


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
    journal = Journal(Path(config.service.journal))
    path = Path(config.service.socket)
    listening = bind_socket(path, int(config.service.socket_mode, 8))
    handle = make_handler(config, model, facts, journal)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: Connection(handle), sock=listening)
    log.info("answering on %s in mode %s", path, config.mode)
    try:
        await until_stopped((MODEL_CHECK_S, model.refresh), (FACTS_CHECK_S, facts.refresh))
    finally:
        server.close()
        path.unlink(missing_ok=True)
        journal.close()
    log.info("stopped")


async def until_stopped(*watches: tuple[float, Callable[[], None]]) -> None:
    """Wait for SIGTERM or SIGINT, and meanwhile refresh, each watch every so many seconds."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(stop.wait()),
        *(asyncio.create_task(_every(pause_s, refresh)) for pause_s, refresh in watches),
    ]
    try:
        # A watch that fails ends the service: restarted, it follows models again; until then jobs pass unchanged.
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


async def _every(pause_s: float, refresh: Callable[[], None]) -> None:
    """Refresh now and from time to time, beside the loop, so that answers go on."""
    while True:
        await asyncio.to_thread(refresh)
        await asyncio.sleep(pause_s)
