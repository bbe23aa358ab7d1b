"""A folder of the registry that a process loads, has loaded or writes is held: whoever tidies up leaves it.

A hold is a shared lock (flock) on the folder: it ends with its process, however that ends. It is known on one host
alone; where a file system keeps no locks nothing is held, and the rules of keeping.py are what protects.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class Hold:
    """A folder that is held from now on until `close`, or until nobody knows of this any more."""

    def __init__(self, folder: Path) -> None:
        """Hold it; OSError where it is not there or may not be read, BlockingIOError where it is being removed."""
        self._handle = -1
        self._handle = _open(folder)
        try:
            _lock(self._handle, fcntl.LOCK_SH)
        except BlockingIOError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of it; twice is once."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __del__(self) -> None:
        self.close()


@contextlib.contextmanager
def nobody_holds(folder: Path) -> Iterator[bool]:
    """Tell whether no process holds a folder, and let none begin to within the `with`; OSError where hidden."""
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
    """Take a lock at once; BlockingIOError where another process has it."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # this file system keeps no locks
        return
