"""Files that somebody else may have put there: opened without waiting, and only where they are plain files.

A FIFO would hang whoever opens it, a link or a device would lead him elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# What the kernel says of a link that is not followed, and of a socket.
_OTHER_KINDS = (errno.ELOOP, errno.ENXIO)


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file for reading; OSError where it is none, or cannot be opened.

    Links are followed in the folders of its path, not in its own place.
    """
    try:
        handle = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno in _OTHER_KINDS:
            raise _not_plain(path) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_plain(path)
    return os.fdopen(handle, "rb")


def _not_plain(path: Path) -> OSError:
    return OSError(errno.EINVAL, "not a regular file", str(path))
