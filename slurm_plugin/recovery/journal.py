"""What was done about jobs that failed by us, one line each: who comes back, and who could not and is owed his hours.

    <recovery.directory>/recoveries-DAY.jsonl   append only
    <recovery.directory>/recover.lock           held for a round, or for one job

A line stands before its job is queued again, and one after: a job with the first alone was cut off, and is looked at
again. That a job comes back once is not decided here: slurmctld holds that (requeuing.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from accounting.errors import ServiceError
from accounting.journal import read_lines
from slurm_plugin.day_files import append_line, day_name
from slurm_plugin.recovery.judging import Cause
from slurm_plugin.slurm.queue import Requeue

FILES = "recoveries-*.jsonl"
LOCK = "recover.lock"
MODE = 0o640

# A job's number may come again; with its decision it does not.
Run = tuple[int, int, str]
What = Literal["begun", "requeued", "lost"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one failed run (a job and how often it had been restarted), at a time in unix seconds.

    `hours` are what it held in vain: of CPUs, and of GiB of memory. `requeue` is what was begun, `why` why it is lost.
    """

    job_id: int
    restarts: int
    what: What
    time_s: float
    cause: Cause
    user: str
    decision_id: str
    cpu_hours: float = 0.0
    mem_gib_hours: float = 0.0
    why: str = ""
    requeue: Requeue | None = None
    array_job_id: int = 0

    @property
    def run(self) -> Run:
        """Which run of which job."""
        return self.job_id, self.restarts, self.decision_id


class Journal:
    """The entries of a folder; it is made at the first one."""

    def __init__(self, folder: Path) -> None:
        """Read nothing yet."""
        self._folder = folder

    def newest(self, since_s: float = 0.0) -> dict[Run, Entry]:
        """Return the last entry of each run, from the day of a moment on; StoreError where a file cannot be read.

        Lines that were cut off are passed over.
        """
        found: dict[Run, Entry] = {}
        first = day_name(FILES, since_s)
        for file in sorted(file for file in self._folder.glob(FILES) if file.name >= first):
            for line in read_lines(file, 0)[0]:
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                    entry = msgspec.json.decode(line, type=Entry)
                    found[entry.run] = entry
        return found

    def append(self, entry: Entry) -> None:
        """Append an entry; it is on disk when this returns. ServiceError where the disk refuses it."""
        try:
            append_line(
                self._folder,
                FILES,
                entry.time_s,
                msgspec.json.encode(entry) + b"\n",
                mode=MODE,
                synced=True,
            )
        except OSError as error:
            raise self._cannot_write(error) from None

    @contextlib.contextmanager
    def alone(self) -> Iterator[int]:
        """Be the only one at work on this folder, waiting for whoever is; yield the lock's handle.

        Who dies lets go of it, unless a process that he started still holds it.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        except OSError as error:
            raise self._cannot_write(error) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)

    def _cannot_write(self, error: OSError) -> ServiceError:
        return ServiceError(
            f"cannot write to {self._folder}: {error.strerror}; "
            "set recovery.directory to a folder that its user may write"
        )


def told(entry: Entry) -> str:
    """Say an entry in words."""
    causes = {"out_of_memory": "killed for memory", "killed": "killed", "timeout": "out of time"}
    became = {
        "begun": "it is being queued again as it was asked at first",
        "requeued": "it was queued again as it was asked at first",
        "lost": f"it could not come back by itself: {entry.why}",
    }
    return (
        f"job {entry.job_id} was {causes[entry.cause]}: it failed because we had cut it, and is owed "
        f"{entry.cpu_hours:g} CPU hours and {entry.mem_gib_hours:g} GiB hours; {became[entry.what]}"
    )
