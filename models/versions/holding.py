"""Holds on folders of the registry: while a process loads, uses or writes a folder, pruning leaves it alone.

A hold is a shared lock (flock) on the folder: it ends with its process, however that ends. It is known on one host
only. On a file system that keeps no locks nothing is held, and only the rules of keeping.py protect a folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class Hold:
    """A folder that is held from now on until `close`, or until this object is no longer referenced."""

    def __init__(self, folder: Path) -> None:
        """Hold the folder; OSError if it is not there or may not be read, BlockingIOError if it is being removed."""
        self._handle = -1
        self._handle = _open(folder)
        try:
            _lock(self._handle, fcntl.LOCK_SH)
        except BlockingIOError:
            self.close()
            raise

    def close(self) -> None:
        """Release the folder; a second call does nothing."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        self.close()


@contextlib.contextmanager
def nobody_holds(folder: Path) -> Iterator[bool]:
    """Yield whether no process holds a folder, and let none begin to meanwhile; OSError if it cannot be opened."""
    handle = _open(folder)
    try:
        _lock(handle, fcntl.LOCK_EX)
    except BlockingIOError:
        os.close(handle)
        yield False
        return
    try:
        yield True
    finally:
        os.close(handle)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _lock(handle: int, kind: int) -> None:
    """Take a lock at once; BlockingIOError if another process has it."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # this file system keeps no locks
        return
