"""How each fault is made: context managers that break a site while their block runs, and single acts."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from models.versions import registry
from models.versions.artefact import HISTORY
from models.versions.feed import FOLDER
from tests.cluster.fault import Break
from tests.cluster.fault_site import FaultSite
from tests.lua.conftest import Answer, Service, reply_with

# The service uses a new model within a second.
MODEL_NOTICED_S = 1.5
# The state in /proc/net/unix of a connection that nobody has accepted.
NOT_ACCEPTED = "02"
BROKEN_LUA = "function slurm_job_submit(\n"


def service_answers(answer: Answer) -> Break:
    """Put an impostor on the service's socket."""

    @contextlib.contextmanager
    def broken(site: FaultSite) -> Iterator[None]:
        site.stop_service()
        with Service(site.socket, answer):
            site.let_slurmctld_in()
            yield
        site.socket.unlink()

    return broken


def grants(grant: str) -> Break:
    """Put an impostor on the socket whose answers are good except for the grant."""
    return service_answers(reply_with('{"v":1,"id":"{id}","grant":' + grant + "}"))


def path_is(make: Callable[[Path], None]) -> Break:
    """Put something else where the socket should be."""

    @contextlib.contextmanager
    def broken(site: FaultSite) -> Iterator[None]:
        site.stop_service()
        make(site.socket)
        yield
        site.remove_socket_path()

    return broken


def nothing(_path: Path) -> None:
    """Leave nothing there."""


def bind_only(path: Path) -> None:
    """Leave behind the socket file of a process that has ended."""
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    path.chmod(0o666)


def socket_mode(mode: int) -> Break:
    """Change the permissions of the running service's socket; if root runs this, slurmctld's user does not own it."""

    @contextlib.contextmanager
    def broken(site: FaultSite) -> Iterator[None]:
        site.start_service()
        site.socket.chmod(mode)
        yield
        site.stop_service()

    return broken


@contextlib.contextmanager
def closed_folder(site: FaultSite) -> Iterator[None]:
    """Close the socket's folder to all other users, and to its owner too if slurmctld runs as the owner."""
    site.start_service()
    open_mode = site.socket.parent.stat().st_mode
    site.socket.parent.chmod(0o700 if os.geteuid() == 0 else 0)
    yield
    site.socket.parent.chmod(open_mode)
    site.stop_service()


@contextlib.contextmanager
def full_backlog(site: FaultSite) -> Iterator[None]:
    """Fill the queue of a listener that never accepts."""
    site.stop_service()
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as waiting:
        listener.bind(str(site.socket))
        site.let_slurmctld_in()
        listener.listen(0)
        for _ in range(3):
            queued = waiting.enter_context(socket.socket(socket.AF_UNIX))
            queued.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                queued.connect(str(site.socket))
        yield
    site.remove_socket_path()


@contextlib.contextmanager
def never_accepted(site: FaultSite) -> Iterator[None]:
    """Listen, and never accept."""
    site.stop_service()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(site.socket))
        site.let_slurmctld_in()
        listener.listen(64)
        yield
    site.remove_socket_path()


def stopped(site: FaultSite) -> AbstractContextManager[None]:
    """SIGSTOP the service."""
    return site.stopped_service()


@contextlib.contextmanager
def stopped_for_long(site: FaultSite) -> Iterator[None]:
    """Stop the service, and let calls wait for it for a second each."""
    site.mend(deadline_ms=1000)
    # No connection to the new service is kept, so each call has to connect first and `callers` counts it.
    site.stop_service()
    with site.stopped_service():
        yield
    site.stop_service()
    site.mend()


def kill_service(site: FaultSite) -> None:
    """Kill the service while a call waits for its answer, and keep submitting without it."""
    site.wait_for(lambda: callers(site.socket) > 0, "nobody calls the service")
    time.sleep(0.1)
    site.signal_service(signal.SIGKILL)
    time.sleep(0.3)


def callers(path: Path) -> int:
    """Return how many connections nobody has accepted, by the kernel's list, on sockets made next to this path.

    The service gives its socket this name once it listens.
    """
    lines = Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()
    return sum(f" {path.parent}/" in line and line.split()[5] == NOT_ACCEPTED for line in lines)


@contextlib.contextmanager
def healthy(site: FaultSite) -> Iterator[None]:
    """Break nothing before the submissions."""
    site.start_service()
    yield


@contextlib.contextmanager
def healthy_and_impatient(site: FaultSite) -> Iterator[None]:
    """Let the breaker pause for only one second, so that jobs are cut again while the fault is still being made."""
    site.start_service()
    site.write_settings(first='require("rightsizer.breaker").OPEN_S = 1')
    yield
    site.mend()


def restart_service(site: FaultSite) -> None:
    """Restart the service twice, once with SIGTERM and once with SIGKILL."""
    site.stop_service()
    site.start_service()
    site.signal_service(signal.SIGKILL)
    time.sleep(0.3)
    site.start_service()
    time.sleep(2.0)


def touch_script(site: FaultSite) -> None:
    """Make slurmctld reload the script three times."""
    for _ in range(3):
        time.sleep(1.1)
        os.utime(site.script)
    time.sleep(0.5)


@contextlib.contextmanager
def model_missing(site: FaultSite) -> Iterator[None]:
    """Start the service without any model."""
    site.stop_service()
    (site.models / registry.CURRENT).unlink()
    site.start_service()
    yield
    site.stop_service()
    site.restore_models()


def promote_copy(site: FaultSite, name: str, history: Callable[[bytes], bytes] = bytes) -> None:
    """Make a copy of the current model current, under another name and with its history changed by `history`."""
    version = registry.current_version(site.models)
    assert version is not None
    copy = site.models / name
    shutil.copytree(site.models / version, copy)
    (copy / HISTORY).write_bytes(history((copy / HISTORY).read_bytes()))
    registry.promote(site.models, copy.name)


def damage_current(site: FaultSite) -> None:
    """Make a version current whose history differs in one byte from what its digest covers."""
    promote_copy(site, "damaged", lambda history: flipped(history, len(history) // 2))


def flipped(content: bytes, at: int) -> bytes:
    """Return the bytes with one bit changed."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@contextlib.contextmanager
def model_damaged_while_running(site: FaultSite) -> Iterator[None]:
    """Promote a damaged model under a running service, which keeps the last good one."""
    site.start_service()
    damage_current(site)
    time.sleep(MODEL_NOTICED_S)
    yield
    site.restore_models()


@contextlib.contextmanager
def model_damaged_at_start(site: FaultSite) -> Iterator[None]:
    """Start the service with a damaged model."""
    site.stop_service()
    damage_current(site)
    site.start_service()
    yield
    site.stop_service()
    site.restore_models()


@contextlib.contextmanager
def model_cut_short(site: FaultSite) -> Iterator[None]:
    """Promote a model whose history ends in the middle; the service keeps the last good one."""
    site.start_service()
    promote_copy(site, "cut-short", lambda history: history[: len(history) // 2])
    time.sleep(MODEL_NOTICED_S)
    yield
    site.restore_models()


@contextlib.contextmanager
def model_stale(site: FaultSite) -> Iterator[None]:
    """Promote a model with an old name, next to a feed that cannot be read: what is known from both is used."""
    site.start_service()
    feed = site.models / FOLDER
    feed.mkdir(exist_ok=True)
    (feed / "jobs-20200101.jsonl").write_bytes(b"\x00\xff garbage\n[]\n" + b'{"half": ')
    (feed / "jobs-20200102.jsonl").mkdir()
    promote_copy(site, "20200101T000000")
    time.sleep(MODEL_NOTICED_S)
    yield
    site.restore_models()


@contextlib.contextmanager
def models_removed(site: FaultSite) -> Iterator[None]:
    """Remove every model under a running service."""
    site.start_service()
    site.models.rename(site.models.with_name("models-away"))
    time.sleep(MODEL_NOTICED_S)
    yield
    site.models.with_name("models-away").rename(site.models)


@contextlib.contextmanager
def script_broken(site: FaultSite) -> Iterator[None]:
    """Replace the script by one that does not compile; slurmctld keeps the one that it has loaded."""
    site.start_service()
    site.reload()
    site.submit()
    site.replace_script(BROKEN_LUA)
    yield
    site.mend()


@contextlib.contextmanager
def script_removed(site: FaultSite) -> Iterator[None]:
    """Remove the script; slurmctld keeps the one that it has loaded."""
    site.start_service()
    site.reload()
    site.submit()
    site.script.unlink()
    yield
    site.script.touch()
    site.mend()


def settings_begin(line: str) -> Break:
    """Run a line of Lua when the site file is loaded."""

    @contextlib.contextmanager
    def broken(site: FaultSite) -> Iterator[None]:
        site.start_service()
        site.write_settings(first=line)
        site.reload()
        yield
        site.mend()

    return broken


@contextlib.contextmanager
def no_hook_folder(site: FaultSite) -> Iterator[None]:
    """Move the hook's modules away; only loading the script again shows that they are missing."""
    site.start_service()
    (site.hook / "rightsizer").rename(site.hook / "rightsizer-away")
    site.reload()
    yield
    (site.hook / "rightsizer-away").rename(site.hook / "rightsizer")
    site.mend()


@contextlib.contextmanager
def no_settings(site: FaultSite) -> Iterator[None]:
    """Remove the site file."""
    site.start_service()
    (site.hook / "rightsizer_site.lua").unlink()
    site.reload()
    yield
    site.mend()
