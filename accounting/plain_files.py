"""Opening files that somebody else may have put there: without waiting, and only if they are regular files.

A FIFO would block the reader; a link or a device would lead it elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# The kernel's errors for a link that is not followed, and for a socket.
_OTHER_KINDS = (errno.ELOOP, errno.ENXIO)


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file for reading; OSError if it is not one, or cannot be opened.

    Links in the folders of its path are followed; a link in the file's own place is not.
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
