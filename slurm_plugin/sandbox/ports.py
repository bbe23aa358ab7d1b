"""Reserve TCP ports of this host until a sandbox's daemons have bound them."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from accounting.errors import SandboxError

LOWEST_PORT = 10_240  # well-known ports, such as Slurm's 6817 to 6819, lie below
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_LOWEST = 32_768  # Linux's default, if the file cannot be read
TRIES_PER_PORT = 50


@contextmanager
def reserved_ports(count: int) -> Iterator[tuple[int, ...]]:
    """Reserve `count` different ports that no process uses, until the block ends.

    They lie below the ports that the kernel gives to outgoing connections, so that a daemon that is restarted later
    finds its port still free. Inside the block, a daemon that sets SO_REUSEADDR, as MariaDB's and all of Slurm's do,
    can bind them and listen; a second reservation, which does not set it, cannot.

    Raises SandboxError if there are not enough.
    """
    with ExitStack() as held:
        ports: list[int] = []
        for port in _candidates(count * TRIES_PER_PORT):
            if len(ports) == count:
                break
            holder = held.enter_context(socket.socket())
            try:
                holder.bind(("", port))  # all addresses, as slurmd does
            except OSError:
                continue
            # Set only now: if set before the bind, two reservations could share a port.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ports.append(port)
        if len(ports) < count:
            raise SandboxError(
                f"only {len(ports)} of {count} TCP ports from {LOWEST_PORT} up are free; stop the "
                "programs that use them"
            )
        yield tuple(ports)


def _candidates(count: int) -> list[int]:
    """Return up to `count` ports to try, in a random order that does not depend on a seed."""
    try:
        above = int(EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        above = EPHEMERAL_LOWEST
    if above - LOWEST_PORT < count:  # the host gives nearly all ports to outgoing connections
        above = 65_536
    ports = range(LOWEST_PORT, above)
    return random.SystemRandom().sample(ports, min(count, len(ports)))
