"""For how long something holds, by a clock that does not jump where there is one. Pure."""

from __future__ import annotations

import msgspec


class Clock(msgspec.Struct, frozen=True):
    """The time: unix seconds, which may jump, and seconds since this boot, which do not."""

    time_s: float
    boot: str
    since_boot_s: float


class Lease(msgspec.Struct, frozen=True):
    """When the lease was stamped, and for how long it holds (seconds)."""

    stamped: Clock
    lease_s: float


def is_over(lease: Lease | None, now: Clock) -> bool:
    """Whether a lease has ended: by the clock that does not jump, unless it was stamped by another boot.

    That may be another host's, whose clock is a little ahead: such a lease has not ended before it was stamped.
    """
    if lease is None:
        return True
    if lease.stamped.boot == now.boot:
        return not 0 <= now.since_boot_s - lease.stamped.since_boot_s <= lease.lease_s
    return abs(now.time_s - lease.stamped.time_s) > lease.lease_s
