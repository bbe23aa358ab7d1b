"""Whether something exists at a path. A path that the caller may not access does not count as absent."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_there(path: Path) -> bool:
    """Whether something exists at `path`; OSError if the caller may not access it.

    From Python 3.14 on, Path.exists and Path.is_dir return False in that case.
    """
    return _mode(path) is not None


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder; OSError if the caller may not access it."""
    return stat.S_ISDIR(_mode(path) or 0)


def check_listable(folder: Path) -> None:
    """Raise OSError if an existing folder may not be listed, which is not the same as a folder without files."""
    try:
        with os.scandir(folder):
            pass
    except FileNotFoundError:
        return


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
