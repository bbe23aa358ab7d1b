"""A file that is replaced as a whole: whoever reads it, after whatever crash, finds the old content or the new."""

from __future__ import annotations

import os
from pathlib import Path

from accounting.owned_files import open_owned

MODE = 0o666


def replace_whole(path: Path, content: bytes) -> None:
    """Replace a file, or make it; it is on disk when this returns. OSError where the disk refuses it.

    What a process that dies meanwhile leaves is a `.new` file that nobody reads.
    Whose it is when root writes it: accounting/owned_files.py.
    """
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(open_owned(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
