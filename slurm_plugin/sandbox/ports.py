"""Free TCP ports of this host, asked of the kernel."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_ports(count: int) -> tuple[int, ...]:
    """Return `count` different ports that nothing uses now.

    All are held open until the last is known, so that the kernel cannot name one twice. Another program may
    still take one before the daemon does; that daemon then fails to start, and `up` says so.
    """
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return tuple(one.getsockname()[1] for one in sockets)
