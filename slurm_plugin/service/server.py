"""The service's socket: it takes lines and returns lines. Any failure means silence, which leaves the job alone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

from accounting.errors import ServiceError
from accounting.key_file import journal_key
from slurm_plugin.brakes.watch import LOOK_S, Watch
from slurm_plugin.config.settings import Config
from slurm_plugin.service.afterwards import Afterwards
from slurm_plugin.service.answers import Answers
from slurm_plugin.service.connections import Connections
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.service.decide import chain_settings_of
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.peers import Peers
from slurm_plugin.service.rehearsals import Rehearsals
from slurm_plugin.service.reloading import Groups, Hangups

log = logging.getLogger(__name__)

# One readlink, in a thread; a new model is loaded and in use within a second of its promotion.
MODEL_CHECK_S = 0.2
FACTS_CHECK_S = 5.0
# One stat: a brake that another process pulls or releases takes effect within this time.
BRAKES_CHECK_S = 0.2
BACKLOG = 256
# The kernel's limit for the path of a Unix socket.
MOST_PATH_BYTES = 107
# Other threads give way to an answer after this long. Python's own 5 ms are a fifth of the hook's deadline, and an
# answer takes the interpreter back three times: after waiting, reading and sending.
GIVE_WAY_S = 0.0005
# Twice what the hook waits: whatever has been asked by the time of the stop is answered.
GRACE_S = 0.05
# Turns of the loop, if this machine was busy meanwhile: accepting, reading and answering take three.
LAST_TURNS = 10


def bind_socket(path: Path, mode: int, key: str = "service.socket") -> socket.socket:
    """Return a listening socket at `path`, the value of the setting `key`; replaces the socket of a dead service.

    Raises ServiceError if a service answers there already, or the folder cannot be written to.
    """
    if len(os.fsencode(path)) > MOST_PATH_BYTES:
        raise ServiceError(
            f"cannot listen on {path}: the path is longer than {MOST_PATH_BYTES} bytes; set {key}"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            # EAGAIN: its queue is full, so the service behind it runs, but is busy or stuck.
            if path.exists() and probe.connect_ex(str(path)) in (0, errno.EAGAIN):
                raise ServiceError(f"a running service uses the socket {path}; stop that service first")
        if path.exists() and not path.is_socket():
            raise ServiceError(f"{path} exists and is not a socket; move it away or set {key}")
        draft = path.with_name(f".{os.getpid()}")
        draft.unlink(missing_ok=True)
        with contextlib.ExitStack() as undo:
            server = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            server.bind(str(draft))
            undo.callback(draft.unlink, missing_ok=True)
            draft.chmod(mode)
            server.listen(BACKLOG)
            # Anyone who sees it can connect, and only those with access to the folder see more than its name.
            draft.rename(path)
            undo.pop_all()
    except OSError as error:
        fix = f"set {key}"
        if isinstance(error, PermissionError):
            fix = (
                "run this as the service's user, give that user the folder (RuntimeDirectory= in a "
                f"unit), or {fix}"
            )
        raise ServiceError(f"cannot listen on {path}: {error.strerror or error}; {fix}") from None
    return server


def remove_socket(path: Path, own: os.stat_result) -> None:
    """Remove a socket unless it is no longer our `own`, but that of a service which has taken our place."""
    with contextlib.suppress(OSError):
        if os.path.samestat(path.stat(), own):
            path.unlink()


async def serve(config: Config, load: Callable[[], Config]) -> None:
    """Answer until SIGTERM or SIGINT; raises ServiceError if the service cannot start.

    At SIGHUP it continues with the configuration that `load` then returns.
    """
    hangups = Hangups(load)
    model = CurrentModel(Path(config.models.directory), chain_settings_of(config))
    model.refresh()
    facts = CurrentFacts(config)
    # Before the first answer: a limit that is not known yet would not be kept.
    facts.refresh_when_due()
    journal = Journal(Path(config.service.journal), key=journal_key(config.service.journal_key))
    brakes = Watch(config, facts.hold, facts.memory_comes_with_cpus)
    path = Path(config.service.socket)
    listening = bind_socket(path, int(config.service.socket_mode, 8))
    own = path.stat()
    afterwards = Afterwards()
    answers = Answers(config, model, facts, journal, afterwards.add)
    rehearsals = Rehearsals(answers.rehearse)
    await rehearsals.connect()

    def answered(line: bytes) -> None:
        rehearsals.pause()
        afterwards.add(partial(rehearsals.begin, line))

    clients = Connections(answers.handle, Peers(config.service.users).admits, answered)
    server = await asyncio.get_running_loop().create_unix_server(clients.new, sock=listening)

    def apply(config: Config, groups: Groups) -> None:
        model.retune(chain_settings_of(config))
        facts.retune(config, groups)
        answers.retune(config)
        brakes.retune(config)

    log.info("answering on %s in mode %s", path, config.mode)
    try:
        await until_stopped(
            every(MODEL_CHECK_S, model.refresh),
            every(FACTS_CHECK_S, facts.refresh_when_due),
            every(BRAKES_CHECK_S, facts.refresh_brakes),
            every(LOOK_S, brakes.look),
            model.follow_feed(),
            hangups.follow(config, apply),
        )
    finally:
        remove_socket(path, own)
        # Clients that have connected, or are about to be accepted, are still answered; later ones find no socket.
        await asyncio.sleep(GRACE_S)
        for _ in range(LAST_TURNS):
            await asyncio.sleep(0)
        server.close()
        clients.close()
        rehearsals.close()
        afterwards.do_all()
        await asyncio.sleep(0)
        journal.close()
    log.info("stopped")


async def until_stopped(*works: Coroutine[object, object, object]) -> None:
    """Wait for SIGTERM or SIGINT, and run all these works meanwhile, none of which should end."""
    sys.setswitchinterval(GIVE_WAY_S)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(stop.wait()),
        *(asyncio.create_task(work) for work in works),
    ]
    try:
        # A task that fails ends the service. Restarted, it has all tasks again; until then jobs pass unchanged.
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


async def every(pause_s: float, refresh: Callable[[], None]) -> None:
    """Call `refresh` now and every `pause_s` seconds, in a thread, so that answers go on."""
    while True:
        await asyncio.to_thread(refresh)
        await asyncio.sleep(pause_s)
