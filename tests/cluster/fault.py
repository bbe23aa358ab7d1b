"""Defines a fault: what breaks, how it is broken, and what may then become of a job."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from tests.cluster.fault_site import FaultSite, ordinary_user

Break = Callable[[FaultSite], AbstractContextManager[None]]
Expected = Literal["unchanged", "cut", "either"]


def always() -> None:
    """Need nothing."""


@dataclass(frozen=True)
class Fault:
    """One row: its name, what is done in words, and how.

    `broken` breaks the site while its block runs, and asserts by itself what must be intact afterwards. `reasons` are
    the words in slurmctld's log which prove that this fault was met and not another; `must_log` is the one of several
    that must be there. `during` runs while submissions go on; without it some jobs are submitted one after the other.
    `fresh_state` reloads the script after the break; without it the script that is in use is tested. `needs` says why
    the fault cannot be made here, or nothing. A fault that `is_long` takes many seconds. slurmctld may hang up on
    `most_hung_up` submissions: one for each time that it reads its configuration anew, which happens with an empty hook
    too (bench.soak --empty-hook: 6 of 147,627, in 18 such times).
    """

    name: str
    made: str
    broken: Break
    expected: Expected = "unchanged"
    reasons: frozenset[str] = frozenset()
    during: Callable[[FaultSite], None] | None = None
    fresh_state: bool = True
    must_log: str = ""
    needs: Callable[[], str | None] = always
    is_long: bool = False
    most_hung_up: int = 0


def reasons(*words: str) -> frozenset[str]:
    """Return the reasons of a row."""
    return frozenset(words)


UNREACHABLE = reasons("connect_failed")
LATE = reasons("deadline")


def why_no_permissions() -> str | None:
    """Say why permissions do not restrict slurmctld here; None if they do."""
    return None if ordinary_user() or os.geteuid() != 0 else "no ordinary user can run this Slurm"


def why_same_user() -> str | None:
    """Say why slurmctld runs as the user who starts the service; None if it does not."""
    return None if ordinary_user() else "only root can start a slurmctld of another user"
