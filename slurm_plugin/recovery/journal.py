"""What was done about jobs that failed by us, a line each: which come back, and which could not and are owed hours.

    <recovery.directory>/recoveries-DAY.jsonl   append only
    <recovery.directory>/recover.lock           held for a round, or for one job
    <recovery.directory>/last-round             as old as the last round of a watcher

One line is written before a job is requeued, and one after: a job with only the first was interrupted, and is looked
at again. That a job comes back only once is ensured not here, but by what slurmctld holds (requeuing.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from accounting.damage import UNREADABLE
from accounting.errors import ServiceError, StoreError
from accounting.journal.files import read_lines
from accounting.journal.recoveries import FILES, Recovered, Run
from accounting.owned_files import fix_for, make_folder, open_owned
from slurm_plugin.day_files import append_line, day_name
from slurm_plugin.slurm.queue import Requeue

LOCK = "recover.lock"
# Touched after each round of a watcher: `rightsizer doctor` looks at its age.
LAST_ROUND = "last-round"
MODE = 0o640


class Entry(Recovered, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one failed run, and how it is, or was to be, requeued; None: it cannot be."""

    requeue: Requeue | None = None


class Journal:
    """The entries of a folder, which is created at the first one."""

    def __init__(self, folder: Path) -> None:
        """Read nothing yet."""
        self._folder = folder

    def newest(self, since_s: float = 0.0) -> dict[Run, Entry]:
        """Return the last entry of each run, from the day of `since_s` on; lines that were cut off are skipped.

        Raises StoreError if the folder or a file cannot be read.
        """
        found: dict[Run, Entry] = {}
        for file in self._files(day_name(FILES, since_s)):
            for line in read_lines(file, 0)[0]:
                with contextlib.suppress(*UNREADABLE):
                    entry = msgspec.json.decode(line, type=Entry)
                    found[entry.run] = entry
        return found

    def _files(self, first: str) -> list[Path]:
        try:
            # Path.glob finds nothing in an unreadable folder, and only some versions of Python raise an error.
            found = sorted(self._folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(
                f"cannot read {self._folder}: {error.strerror}; run this as the service's user, or give "
                "that user the folder"
            ) from None
        return [file for file in found if file.match(FILES) and file.name >= first]

    def append(self, entry: Entry) -> None:
        """Append an entry; it is on disk when this returns. Raises ServiceError if the disk refuses it."""
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

    def note_round(self) -> None:
        """Record that a round was made just now; raises ServiceError if the disk refuses it."""
        try:
            make_folder(self._folder)
            handle = open_owned(self._folder / LAST_ROUND, os.O_WRONLY | os.O_CREAT, MODE)
            try:
                os.utime(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise self._cannot_write(error) from None

    @contextlib.contextmanager
    def alone(self) -> Iterator[int]:
        """Be the only process at work on this folder, waiting for another one; yield the lock's handle.

        A process that dies releases the lock, unless a process that it started still holds it.
        """
        try:
            make_folder(self._folder)
            handle = open_owned(self._folder / LOCK, os.O_RDWR | os.O_CREAT, MODE)
        except OSError as error:
            raise self._cannot_write(error) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)

    def _cannot_write(self, error: OSError) -> ServiceError:
        fix = fix_for(
            error, "set recovery.directory to a folder that the user of `rightsizer recover` may write"
        )
        return ServiceError(f"cannot write to {self._folder}: {error.strerror}; {fix}")


def told(entry: Recovered, job: str) -> str:
    """Return an entry in words; `job` is its job as people write it: 4711_3 for a task of an array."""
    causes = {
        "out_of_memory": "it was killed for memory",
        "killed": "it was killed",
        "timeout": "it ran out of time",
        "said_no_memory": "its own output says that it ran out of memory",
        "said_no_gpu_memory": "its own output says that it ran out of GPU memory",
        "said_no_gpus": "its own output says that it had too few GPUs",
        "said_no_cpus": "its own output says that it had too few CPUs",
        "said_no_step": "its own output says that a step had too few CPUs or GPUs",
    }
    but = f", but {entry.why}" if entry.why else ""
    became = {
        "begun": f"it is being requeued with its original request{but}",
        "requeued": f"it was requeued with its original request{but}",
        "lost": f"it could not be requeued: {entry.why}",
    }
    return (
        f"job {job} failed because it had been cut: {causes[entry.cause]}. Its user is owed "
        f"{entry.cpu_hours:g} CPU hours and {entry.mem_gib_hours:g} GiB hours; {became[entry.what]}"
    )
