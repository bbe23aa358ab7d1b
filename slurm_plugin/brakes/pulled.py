"""The file of what is stopped: everything that decides about jobs reads it, and only a person releases a brake.

    <brakes.directory>/pulled.json   replaced as a whole, under pulled.lock

A file that exists and cannot be read stops everything, since its content is not known.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from accounting.damage import UNREADABLE
from accounting.errors import ServiceError
from accounting.owned_files import fix_for, make_folder, open_owned, replace_whole
from slurm_plugin.brakes.tallies import Counts
from slurm_plugin.config.settings import Brakes
from slurm_plugin.policy.braked import ALL, Brake, renamed

FILE, LOCK = "pulled.json", "pulled.lock"


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """A brake that is pulled: when (unix seconds), why in words, and what was counted then."""

    brake: Brake
    time_s: float
    why: str
    counts: Counts = Counts()


class Stopped(msgspec.Struct, frozen=True):
    """All brakes that are pulled. `damaged` says why the file cannot be read: everything is stopped then."""

    pulled: tuple[Pulled, ...] = ()
    damaged: str = ""

    @property
    def brakes(self) -> frozenset[Brake]:
        """What is stopped."""
        return frozenset({ALL}) if self.damaged else frozenset(one.brake for one in self.pulled)


class PulledFile:
    """The brakes of a folder, which is created at the first one."""

    def __init__(self, folder: Path) -> None:
        """Read nothing yet."""
        self._folder = folder
        self._path = folder / FILE

    def read(self) -> Stopped:
        """Return what is stopped; without a file, nothing is."""
        try:
            pulled = msgspec.json.decode(self._path.read_bytes(), type=tuple[Pulled, ...])
            return Stopped(tuple(msgspec.structs.replace(one, brake=renamed(one.brake)) for one in pulled))
        except (FileNotFoundError, NotADirectoryError):
            return Stopped()
        except OSError as error:
            return Stopped(damaged=f"{self._path} cannot be read: {error.strerror}")
        except UNREADABLE as error:
            return Stopped(damaged=f"{self._path} is damaged: {error}")

    def changed(self) -> object:
        """Return a value that differs once the file does; called several times a second."""
        try:
            seen = self._path.stat()
        except OSError as error:
            return error.errno
        return seen.st_ino, seen.st_mtime_ns, seen.st_size

    def pull(self, one: Pulled) -> None:
        """Add a brake, on disk when this returns; one already pulled stays.

        Raises ServiceError on failure, and if the file is damaged, which stays as it is.
        """
        with self._alone():
            found = self.read()
            if found.damaged:
                raise ServiceError(
                    f"{found.damaged}; nothing is cut until `rightsizer enable --all`, after which no brake is pulled: "
                    "pull this one then"
                )
            if one.brake in found.brakes:
                return
            self._write((*found.pulled, one))

    def let_go(self, brake: Brake) -> bool:
        """Release a brake; False if it was not pulled. Releasing that of everything also replaces a damaged file."""
        with self._alone():
            found = self.read()
            if brake not in found.brakes:
                return False
            self._write(tuple(one for one in found.pulled if one.brake != brake))
            return True

    def _write(self, pulled: tuple[Pulled, ...]) -> None:
        replace_whole(self._path, msgspec.json.format(msgspec.json.encode(pulled), indent=1) + b"\n")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            make_folder(self._folder)
            handle = open_owned(self._folder / LOCK, os.O_RDWR | os.O_CREAT, 0o640)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield
            finally:
                os.close(handle)
        except OSError as error:
            fix = fix_for(
                error, "run this as the service's user, or set brakes.directory to a folder that it may write"
            )
            raise ServiceError(f"cannot write to {self._folder}: {error.strerror}; {fix}") from None


def pulled_file(settings: Brakes) -> PulledFile:
    """Return the brakes of a site."""
    return PulledFile(Path(settings.directory))
