"""The user at the other end of a Unix socket, according to the kernel, and which users may ask on the hook's socket.

The mode of the socket and of its folder already keep other users out. This check still holds if those are wider than
they should be, such as after a `chmod` by hand.
"""

from __future__ import annotations

import logging
import os
import pwd
import socket
import struct
from collections.abc import Iterable

from accounting.unnamed import nobody

log = logging.getLogger(__name__)

ROOT = 0
_PEER = struct.Struct("iII")  # pid, uid, gid


def peer_uid(connection: socket.socket) -> int:
    """Return the uid of the process at the other end of a Unix socket, as of when that process connected."""
    return _peer(connection)[1]


def peer_pid(connection: socket.socket) -> int:
    """Return the pid of the process at the other end; on the connecting side, that of the process that listens."""
    return _peer(connection)[0]


def _peer(connection: socket.socket) -> tuple[int, int, int]:
    pid, uid, gid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return pid, uid, gid


class Peers:
    """The users who may ask: root, the service's own, and those of `service.users` that this machine knows."""

    def __init__(self, users: Iterable[str]) -> None:
        self._uids = {ROOT, os.geteuid(), *filter(None, map(_uid_of, users))}
        self._refused: set[int] = set()

    def admits(self, connection: socket.socket) -> bool:
        """Whether the peer's user may ask; each user who may not is logged once."""
        uid = peer_uid(connection)
        if uid in self._uids:
            return True
        if uid not in self._refused:
            self._refused.add(uid)
            log.warning(
                "uid %d may not ask: if slurmctld runs as it, add it to service.users%s", uid, _caution(uid)
            )
        return False


def _caution(uid: int) -> str:
    """Return a warning about the uid that may stand for everybody; '' for any other."""
    if uid != nobody():
        return ""
    return "; in a user namespace all others have it: set PrivateUsers=no in the service's unit then, and see who it is"


def _uid_of(user: str) -> int | None:
    try:
        return int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        log.warning("service.users names %s, whom this machine does not know", user)
        return None
