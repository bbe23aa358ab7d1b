"""A file that is replaced as a whole: whoever reads it, after whatever crash, finds the old content or the new."""

from __future__ import annotations

import os
from pathlib import Path


def replace_whole(path: Path, content: bytes) -> None:
    """Replace a file, or make it; it is on disk when this returns. OSError where the disk refuses it.

    What a process that dies meanwhile leaves is a `.new` file that nobody reads.
    """
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
