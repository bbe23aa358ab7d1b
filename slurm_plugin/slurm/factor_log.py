"""The files of the advisor's changes: what is ours in Slurm, and which process may change it. It never calls Slurm.

    <advisor.directory>/factors.json   the state, replaced as a whole and on disk before anything is written to Slurm
    <advisor.directory>/factors.lock   held for the moment of a change
    <advisor.directory>/advisor.lock   held by the one advisor for as long as it runs, with its process id and host

A state that is replaced as a whole is never half written; a killed process leaves at most an unused `.new` file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from accounting.damage import UNREADABLE
from accounting.errors import ServiceError, StoreError
from accounting.owned_files import fix_for, make_folder, open_owned, replace_whole
from slurm_plugin.slurm.factor_state import FactorState
from slurm_plugin.slurm.lease import Clock

STATE = "factors.json"
_CHANGE_LOCK = "factors.lock"
_ADVISOR_LOCK = "advisor.lock"
# A process id and a host's name.
_NAME_BYTES = 128
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def now() -> Clock:
    """Return the time, by the clock that may jump and by the one that does not."""
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        boot = ""
    return Clock(time.time(), boot, time.clock_gettime(time.CLOCK_BOOTTIME))


class FactorLog:
    """The state in a folder, for one cluster."""

    def __init__(self, folder: Path, cluster: str) -> None:
        """Touch nothing yet: the folder is made at the first change."""
        self._folder = folder
        self._cluster = cluster

    def read(self) -> FactorState:
        """Return the state, empty if nothing was written yet; raises StoreError if it cannot be used."""
        path = self._folder / STATE
        try:
            state = msgspec.json.decode(path.read_bytes(), type=FactorState)
        except FileNotFoundError:
            return FactorState()
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}; correct its permissions") from None
        except UNREADABLE as error:
            raise StoreError(
                f"{path} is damaged ({error}); find SiteFactors that are not 0 with `sprio -o '%i %S'`, "
                "set them to 0 with `scontrol update`, and remove the file"
            ) from None
        if (state.entries or state.listed) and self._cluster and state.cluster != self._cluster:
            raise StoreError(
                f"{path} belongs to cluster {state.cluster}, not to {self._cluster}; give each cluster "
                "its own [advisor] directory"
            )
        return state

    def change(self, change: Callable[[FactorState], FactorState]) -> FactorState:
        """Replace the state by what `change` makes of it; on disk when this returns. Raises StoreError on failure."""
        with self._held(_CHANGE_LOCK):
            before = self.read()
            after = msgspec.structs.replace(change(before), cluster=self._cluster)
            if after != before:
                self._write(msgspec.json.encode(after))
            return after

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the only advisor of this folder; raises ServiceError, naming the other process, if there is one."""
        with self._held(_ADVISOR_LOCK, wait=False) as handle:
            # The lock holds even without a name in the file, as on a full disk.
            with contextlib.suppress(OSError):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            yield

    @contextlib.contextmanager
    def _held(self, name: str, *, wait: bool = True) -> Iterator[int]:
        path = self._folder / name
        try:
            make_folder(self._folder)
            handle = open_owned(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            fix = fix_for(error, "let the advisor's user write there")
            raise StoreError(f"cannot write {path}: {error.strerror}; {fix}") from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                other = os.pread(handle, _NAME_BYTES, 0).decode(errors="replace").strip() or "unknown"
                raise ServiceError(
                    f"another advisor (process {other}) uses {self._folder}; stop it, or wait until it "
                    "has ended"
                ) from None
            yield handle
        finally:
            os.close(handle)

    def _write(self, content: bytes) -> None:
        path = self._folder / STATE
        try:
            replace_whole(path, content)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}; nothing was written to Slurm") from None
