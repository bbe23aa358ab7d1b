"""The size of a file that a given user may read, judged by the mode bits; the service's own rights do not count.

Only files below the roots that the site lists are looked at, from folder to folder by open handles, so that nothing
can be swapped in between. A symbolic link is followed only if it leads below a root again. No file is opened for
reading. If an access control list might differ from the mode bits, only the owner is told anything.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Iterator, Sequence

import msgspec

READ, SEARCH = 4, 1
# The number of links that a path may go through.
MOST_LINKS = 8
NOTHING = 0

# File systems without extended attributes have no access control lists.
_NO_LISTS = (errno.ENOTSUP, errno.EOPNOTSUPP)
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Reader(msgspec.Struct, frozen=True):
    """The user on whose behalf files are looked at: the uid, and the groups that the user is in."""

    uid: int
    groups: frozenset[int]


def file_bytes(path: str, roots: Sequence[str], reader: Reader) -> int | None:
    """Return the size of a regular file, given by its absolute path without `..`, that the reader may read.

    Returns 0 if there is no such file, or it is named outside the roots. Returns None if the size may not be told:
    the reader may not enter a folder or read the file, a link leads out of the roots, or the file system does not
    answer.
    """
    outside: int | None = NOTHING
    for _ in range(MOST_LINKS + 1):
        root = next((root for root in roots if is_below(path, root)), None)
        if root is None:
            return outside
        try:
            found = _look(root, path, reader)
        except (FileNotFoundError, NotADirectoryError):
            return NOTHING
        except OSError:
            return None
        if not isinstance(found, str):
            return found
        path, outside = found, None
    return None


def is_below(path: str, root: str) -> bool:
    """Whether a path lies in a folder, judged by their names."""
    return path.startswith(root.rstrip("/") + "/")


def _look(root: str, path: str, reader: Reader) -> int | str | None:
    """Return what `file_bytes` does, or the path that a link leads to; raises OSError if something is missing."""
    names = path[len(root.rstrip("/")) + 1 :].split("/")
    with contextlib.ExitStack() as opened:
        folder = None
        for place in _ancestors(root):
            folder = _open(opened, place)
            if not may(reader, folder, SEARCH):
                return None
        for number, name in enumerate(names):
            found = _open(opened, name, folder)
            kind = os.fstat(found).st_mode
            if stat.S_ISLNK(kind):
                here = posixpath.join(root, *names[:number])
                return posixpath.normpath(
                    posixpath.join(here, os.readlink("", dir_fd=found), *names[number + 1 :])
                )
            if number == len(names) - 1:
                return _size(found, reader) if stat.S_ISREG(kind) else NOTHING
            if not stat.S_ISDIR(kind):
                return NOTHING
            if not may(reader, found, SEARCH):
                return None
            folder = found
    return NOTHING


def _ancestors(root: str) -> Iterator[str]:
    """Yield the folders from / down to a root, none of which is a link."""
    real = os.path.realpath(root)
    parts = [part for part in real.split("/") if part]
    yield from ("/" + "/".join(parts[:count]) for count in range(len(parts) + 1))


def _open(opened: contextlib.ExitStack, name: str, folder: int | None = None) -> int:
    handle = os.open(name, _LOOK, dir_fd=folder)
    opened.callback(os.close, handle)
    return handle


def _size(handle: int, reader: Reader) -> int | None:
    return os.fstat(handle).st_size if may(reader, handle, READ) else None


def may(reader: Reader, handle: int, bit: int) -> bool:
    """Whether the mode bits of an open file or folder let the reader in, and no access control list may differ.

    The owner's bits apply even if there is a list; root may do everything.
    """
    known = os.fstat(handle)
    if reader.uid == 0:
        return True
    if reader.uid == known.st_uid:
        return bool(known.st_mode >> 6 & bit)
    shift = 3 if known.st_gid in reader.groups else 0
    return bool(known.st_mode >> shift & bit) and not has_list(handle)


def has_list(handle: int) -> bool:
    """Whether an open file or folder has an access control list, or it is not known whether it has one."""
    try:
        names = os.listxattr(f"/proc/self/fd/{handle}")
    except OSError as error:
        return error.errno not in _NO_LISTS
    return any("acl" in name and name.startswith("system.") for name in names)
