"""Processes of a sandbox: start them detached, record them, find them again, and end no others.

A pid alone is never trusted, since the kernel reuses pids. A process is ours if its pid **and** start time are those
on record, if its environment contains this sandbox's marker, or if it descends from a process of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from accounting.errors import SandboxError
from slurm_plugin.process_stat import PROC, Stat, read_stat
from slurm_plugin.sandbox.files import write_file

MARKER_VARIABLE = "RIGHTSIZER_SANDBOX_ID"
POLL_S = 0.02

# This process must reap its children; also, a Popen that is garbage-collected while its child runs warns.
_children: dict[int, subprocess.Popen[bytes]] = {}


class Record(msgspec.Struct, frozen=True):
    """A started process; `start_ticks` is its start time in clock ticks since boot (proc(5), field 22)."""

    name: str
    pid: int
    start_ticks: int
    argv: tuple[str, ...]
    log: str

    @property
    def identity(self) -> Identity:
        """Pid and start time, which identify the process."""
        return Identity(self.pid, self.start_ticks)


@dataclass(frozen=True)
class Identity:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    start_ticks: int


def is_running(identity: Identity) -> bool:
    """Whether exactly this process runs; a zombie does not count as running."""
    child = _children.get(identity.pid)
    if child is not None and child.poll() is not None:
        del _children[identity.pid]
    stat = read_stat(identity.pid)
    return stat is not None and stat.start_ticks == identity.start_ticks and stat.state not in "ZX"


def spawn(name: str, argv: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path) -> Record:
    """Start `argv` in a session of its own with its output appended to `log`, and write `folder`/NAME.json.

    The record is written before this returns. If this is interrupted in between, the marker in `environment` still
    identifies the process.
    """
    with log.open("ab") as output:
        try:
            child = subprocess.Popen(
                argv,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                # Whatever the caller's umask, users must be able to use the daemons' sockets, logs and job scripts.
                umask=0o022,
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(
                f"cannot start {argv[0]}: {error.strerror}; check that it is installed"
            ) from None
    _children[child.pid] = child
    stat = read_stat(child.pid)
    record = Record(name, child.pid, stat.start_ticks if stat else 0, tuple(argv), str(log))
    write_record(record, folder)
    return record


def write_record(record: Record, folder: Path) -> None:
    """Write the record atomically: a reader sees all of it or nothing."""
    write_file(folder / f"{record.name}.json", msgspec.json.encode(record).decode(), 0o644)


def read_records(folder: Path) -> tuple[Record, ...]:
    """Read all records; leave out damaged ones, since the marker finds their processes too."""
    records = []
    for file in sorted(folder.glob("*.json")):
        with contextlib.suppress(msgspec.DecodeError, FileNotFoundError):
            records.append(msgspec.json.decode(file.read_bytes(), type=Record))
    return tuple(records)


def forget_record(name: str, folder: Path) -> None:
    """Remove the record of a process that has ended."""
    (folder / f"{name}.json").unlink(missing_ok=True)


def snapshot() -> dict[int, Stat]:
    """Read the state of every process of this host."""
    pids = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
    stats = {pid: read_stat(pid) for pid in pids}
    return {pid: stat for pid, stat in stats.items() if stat is not None}


def environment_of(pid: int) -> frozenset[bytes]:
    """Return the `NAME=value` entries with which process `pid` was started; empty if they may not be read."""
    try:
        return frozenset((PROC / str(pid) / "environ").read_bytes().split(b"\0"))
    except OSError:
        return frozenset()


def find_processes(entries: Iterable[str], pids: Iterable[int] = ()) -> tuple[Identity, ...]:
    """Find every process whose environment has one of `entries`, those in `pids`, and all their descendants.

    Never returns this process or its ancestors.
    """
    wanted = frozenset(os.fsencode(entry) for entry in entries)
    stats = snapshot()
    own = set(pids) & stats.keys() | {pid for pid in stats if wanted & environment_of(pid)}
    spared = ancestors(os.getpid(), stats)
    found = descendants(own - spared, stats) - spared
    return tuple(
        Identity(pid, stats[pid].start_ticks) for pid in sorted(found) if stats[pid].state not in "ZX"
    )


def ancestors(pid: int, stats: Mapping[int, Stat]) -> set[int]:
    """Return `pid` and the pids of all its ancestors."""
    above: set[int] = set()
    while pid in stats and pid not in above:
        above.add(pid)
        pid = stats[pid].parent
    return above


def descendants(pids: set[int], stats: Mapping[int, Stat]) -> set[int]:
    """Return `pids` and the pids of all their descendants."""
    below = set(pids)
    grew = True
    while grew:
        more = {pid for pid, stat in stats.items() if stat.parent in below} - below
        below |= more
        grew = bool(more)
    return below


def end(identities: Iterable[Identity], patience_s: float) -> tuple[Identity, ...]:
    """Ask processes to end, kill them after `patience_s`, and return those that survive even that."""
    left = _signal_all(identities, signal.SIGTERM)
    left = wait_for_end(left, patience_s)
    left = _signal_all(left, signal.SIGKILL)
    return wait_for_end(left, patience_s)


def wait_for_end(identities: Iterable[Identity], patience_s: float) -> tuple[Identity, ...]:
    """Wait until all have ended, for at most `patience_s`; return those that have not."""
    deadline = time.monotonic() + patience_s
    left = tuple(one for one in identities if is_running(one))
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = tuple(one for one in left if is_running(one))
    return left


def _signal_all(identities: Iterable[Identity], number: signal.Signals) -> tuple[Identity, ...]:
    """Send a signal to those that still run, and return them."""
    running = tuple(one for one in identities if is_running(one))
    for one in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, number)
    return running
