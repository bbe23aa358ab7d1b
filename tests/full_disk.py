"""Makes the files that a service appends to refuse every write, as a full disk does."""

from __future__ import annotations

import time
from pathlib import Path

from slurm_plugin.day_files import DAY_S, day_name


def fill(folder: Path, pattern: str) -> None:
    """Make the folder's file of today `/dev/full`, and tomorrow's, as it may become midnight meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    for moment_s in (time.time(), time.time() + DAY_S):
        file = folder / day_name(pattern, moment_s)
        file.unlink(missing_ok=True)
        file.symlink_to("/dev/full")
