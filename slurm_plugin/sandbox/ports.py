"""TCP ports of this host that are kept free for the daemons of a sandbox until those have them."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from accounting.errors import SandboxError

LOWEST_PORT = 10_240  # below are the ports that services of a host are known by, 6817 to 6819 among them
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_LOWEST = 32_768  # Linux's own, where the file is not to be read
TRIES_PER_PORT = 50


@contextmanager
def reserved_ports(count: int) -> Iterator[tuple[int, ...]]:
    """Hold `count` different ports that nothing uses, in any process, until the block ends.

    They lie below those that the kernel gives to connections going out: a daemon that is restarted later finds
    its port free again. Inside the block a daemon that sets SO_REUSEADDR, as MariaDB's and all of Slurm's do,
    can bind and listen on them; a second reservation, which does not set it, cannot.

    Raises SandboxError where so many are not to be had.
    """
    with ExitStack() as held:
        ports: list[int] = []
        for port in _candidates(count * TRIES_PER_PORT):
            if len(ports) == count:
                break
            holder = held.enter_context(socket.socket())
            try:
                holder.bind(("", port))  # every address, as slurmd does
            except OSError:
                continue
            # Set only now: on the bind it would let two reservations share a port.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ports.append(port)
        if len(ports) < count:
            raise SandboxError(
                f"only {len(ports)} of {count} TCP ports from {LOWEST_PORT} up are free; stop the "
                "programs that use them"
            )
        yield tuple(ports)


def _candidates(count: int) -> list[int]:
    """Return up to `count` ports to try, in an order of chance that no seed repeats."""
    try:
        above = int(EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        above = EPHEMERAL_LOWEST
    if above - LOWEST_PORT < count:  # a host that gives nearly all its ports to connections going out
        above = 65_536
    ports = range(LOWEST_PORT, above)
    return random.SystemRandom().sample(ports, min(count, len(ports)))
