"""Look at our services' sockets: whether they accept a connection, and whether the installed version answers."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path

import slurm_plugin
from slurm_plugin.config.settings import Config
from slurm_plugin.doctor.seen import Answer, SocketSeen
from slurm_plugin.process_stat import read_stat
from slurm_plugin.service.peers import peer_pid

ANSWERS: dict[int, Answer] = {
    0: "answers",
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "does not exist",
    errno.ENOTSOCK: "is not a socket",
    # Its queue is full: the listening process is busy or stuck.
    errno.EAGAIN: "has a full queue",
    errno.EACCES: "does not admit this user",
    errno.EPERM: "does not admit this user",
}
# Every installation rewrites all files; this one hardly ever changes otherwise.
INSTALLED = Path(slurm_plugin.__file__)


def look_at_sockets(config: Config) -> tuple[SocketSeen, ...]:
    """Return the state of each configured socket; connects to it but sends nothing."""
    asked = [(config.service.socket, "rightsizer serve", "rightsizer")]
    if config.client.socket:
        asked.append((config.client.socket, "rightsizer serve --clients", "rightsizer-clients"))
    return tuple(_seen(path, command, unit) for path, command, unit in asked)


def _seen(path: str, command: str, unit: str) -> SocketSeen:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        answer = _connect(probe, Path(path))
        older = answer == "answers" and _began_before(peer_pid(probe), INSTALLED.stat().st_ctime)
    return SocketSeen(path, answer, command, unit, older)


def _connect(probe: socket.socket, path: Path) -> Answer:
    try:
        refused = probe.connect_ex(str(path))
    except OSError:  # the path is longer than a socket's path may be
        return "does not exist"
    if refused == errno.ECONNREFUSED and not path.is_socket():
        return "is not a socket"
    return ANSWERS.get(refused, "has no listener")


def _began_before(pid: int, moment_s: float) -> bool:
    """Whether a process started before a moment (unix seconds); False if that cannot be determined."""
    stat = read_stat(pid)
    if stat is None:
        return False
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - stat.start_ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s < moment_s
