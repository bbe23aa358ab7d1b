"""Whether something lies at a path: one that is closed to whoever asks is not one where nothing lies."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_there(path: Path) -> bool:
    """Whether something lies at `path`; OSError where that is closed to whoever asks.

    Path.exists, as Path.is_dir, says from Python 3.14 on that nothing is there then.
    """
    return _mode(path) is not None


def is_folder(path: Path) -> bool:
    """Whether a folder lies at `path`; OSError where that is closed to whoever asks."""
    return stat.S_ISDIR(_mode(path) or 0)


def check_listable(folder: Path) -> None:
    """Raise OSError where a folder that is there may not be listed: that is not a folder without files."""
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
