"""The socket for direct srun and salloc: any user may ask, but only about that user's own jobs.

It runs in a process of its own (`rightsizer serve --clients`), so that no user can slow down what slurmctld waits
for. The kernel identifies the user who asks (SO_PEERCRED). If anything is wrong the service hangs up, and the client
submits the request unchanged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from accounting.errors import ConfigError
from accounting.key_file import journal_key
from slurm_plugin.config.settings import Config
from slurm_plugin.policy.client import as_known, claims_another
from slurm_plugin.service.allowance import Allowance
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.service.decide import chain_settings_of, decide_request, reply_to_client
from slurm_plugin.service.input_sizes import InputSizes
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.peers import peer_uid
from slurm_plugin.service.protocol import MAX_REQUEST_BYTES, decode_client_request, encode_reply
from slurm_plugin.service.reloading import Groups, Hangups
from slurm_plugin.service.remembered import Remembered
from slurm_plugin.service.server import (
    BRAKES_CHECK_S,
    FACTS_CHECK_S,
    MODEL_CHECK_S,
    bind_socket,
    every,
    remove_socket,
    until_stopped,
)
from slurm_plugin.switches import switches

log = logging.getLogger(__name__)

SOCKET_MODE = 0o666
NAME_HOLDS_S = 600.0
# A client gives up after some 25 ms: whatever takes longer is not a client.
SLOW_S = 2.0

ClientHandler = Callable[[bytes, int, str], bytes | None]


def make_client_handler(
    config: Config, model: CurrentModel, facts: CurrentFacts, journal: Journal
) -> ClientHandler:
    """Return a function that takes a line, and the uid and name of its sender, and returns a reply line or None."""
    remembered = Remembered(
        lambda job, request, predictor, known, name, now_s: decide_request(
            job, request, predictor, config, name, now_s, known
        )
    )
    inputs = InputSizes(config)

    def handle(line: bytes, uid: int, user: str) -> bytes | None:
        request = decode_client_request(line)
        if isinstance(request, str):
            log.warning("a request of uid %d was not understood: %s", uid, request)
            return None
        if claims_another(request.job, uid, user):
            log.warning("uid %d asked in the name of another user", uid)
            return None
        job = as_known(request.job, uid, user, config, facts.facts)
        answer = remembered.answer(
            job, model.predictor, facts.facts, os.urandom(6).hex(), time.time(), inputs.mib(job)
        )
        facts.learn_from(answer.decision)
        if not journal.keep(answer.decision):
            # The original request would be recorded nowhere, so the job keeps it.
            return None
        return encode_reply(reply_to_client(request.id, answer))

    return handle


class Clients:
    """Reads one line from each connection and answers it, unless one of the `switches` exists."""

    def __init__(self, handle: ClientHandler, switches: Sequence[Path]) -> None:
        self._handle = handle
        self._switches = switches
        self._allowance = Allowance()
        self._names: dict[int, tuple[str, float]] = {}

    def retune(self, handle: ClientHandler, switches: Sequence[Path]) -> None:
        """Answer with another handler and other switches from now on."""
        self._handle, self._switches = handle, switches

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; on any failure, send nothing."""
        uid = peer_uid(writer.get_extra_info("socket"))
        try:
            if any(map(Path.exists, self._switches)) or not self._allowance.admit(uid, time.monotonic()):
                return
            try:
                reply = await asyncio.wait_for(self._answer(reader, uid), SLOW_S)
            finally:
                self._allowance.leave(uid)
            if reply is not None:
                writer.write(reply)
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.TimeoutError):
            pass  # disconnected, too slow, or longer than a request may be
        except Exception:  # the request handler: whatever happens to one client, the next one gets an answer
            log.exception("a client's request failed")
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, uid: int) -> bytes | None:
        line = await reader.readuntil(b"\n")
        self._allowance.charge(uid, len(line))
        user = await self._name_of(uid)
        return None if user is None else self._handle(line[:-1], uid, user)

    async def _name_of(self, uid: int) -> str | None:
        """Look up a user's name in a thread: a slow directory delays nobody else."""
        name, until_s = self._names.get(uid, ("", 0.0))
        if time.monotonic() >= until_s:
            try:
                name = (await asyncio.to_thread(pwd.getpwuid, uid)).pw_name
            except KeyError:
                return None
            self._names[uid] = (name, time.monotonic() + NAME_HOLDS_S)
        return name


def journal_name() -> str:
    """Return the name of this host's own journal files: login nodes may write into one shared folder."""
    return f"decisions-clients-{socket.gethostname().partition('.')[0]}"


async def serve_clients(config: Config, load: Callable[[], Config]) -> None:
    """Answer clients until SIGTERM or SIGINT; raises ConfigError or ServiceError if it cannot start.

    At SIGHUP it continues with the configuration that `load` then returns.
    """
    hangups = Hangups(load)
    if not config.client.socket:
        raise ConfigError('client.socket is "", so there is no socket for clients; set client.socket')
    model = CurrentModel(Path(config.models.directory), chain_settings_of(config))
    model.refresh()
    facts = CurrentFacts(config)
    facts.refresh_when_due()
    journal = Journal(Path(config.service.journal), journal_name(), journal_key(config.service.journal_key))
    path = Path(config.client.socket)
    listening = bind_socket(path, SOCKET_MODE, "client.socket")
    own = path.stat()
    clients = Clients(make_client_handler(config, model, facts, journal), switches(config))

    def apply(config: Config, groups: Groups) -> None:
        model.retune(chain_settings_of(config))
        facts.retune(config, groups)
        clients.retune(make_client_handler(config, model, facts, journal), switches(config))

    server = await asyncio.start_unix_server(clients.converse, sock=listening, limit=MAX_REQUEST_BYTES)
    log.info("answering clients on %s in mode %s", path, config.mode)
    try:
        await until_stopped(
            every(MODEL_CHECK_S, model.refresh),
            every(FACTS_CHECK_S, facts.refresh_when_due),
            every(BRAKES_CHECK_S, facts.refresh_brakes),
            model.follow_feed(),
            hangups.follow(config, apply),
        )
    finally:
        remove_socket(path, own)
        server.close()
        journal.close()
    log.info("stopped")
