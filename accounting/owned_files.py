"""Files that root and the service's user both write: what root makes where another user owns the folder is that user's.

Else one command as root locks the service out of its own lock, and with a umask of 077 out of what it has to read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

FOLDER_MODE = 0o750
# As in the units of the services.
UMASK = 0o027


def open_owned(path: Path, flags: int, mode: int) -> int:
    """Open a file as `os.open` does, closed on exec. OSError where that fails.

    One that root makes in another user's folder gets that folder's owner and group, and whatever root's umask, `mode`
    less UMASK; there root follows no link that lies in the file's place.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    flags |= os.O_CLOEXEC
    try:
        owner = _other_owner(folder)
        if owner is None:
            return os.open(path.name, flags, mode, dir_fd=folder)
        flags |= os.O_NOFOLLOW
        if not flags & os.O_EXCL:
            try:
                return os.open(path.name, flags & ~os.O_CREAT, dir_fd=folder)
            except FileNotFoundError:
                if not flags & os.O_CREAT:
                    raise
        return _made(path.name, flags, mode, folder, owner)
    finally:
        os.close(folder)


def fix_for(error: OSError, otherwise: str) -> str:
    """Return what to do where a folder of ours could not be written: `otherwise`, unless something else is the matter.

    There is no room, or all is read-only, as to our units all but some folders is.
    """
    if error.errno == errno.EROFS:
        return "let its unit write there, by ReadWritePaths= (docs/admin.md), or mount it writable"
    return "make room there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else otherwise


def append_lines(handle: int, lines: bytes) -> None:
    """Append lines to an open file, behind whatever a full disk or a crash cut off; OSError where the disk refuses."""
    size = os.fstat(handle).st_size
    torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
    left = memoryview(b"\n" * torn + lines)
    while left:
        left = left[os.write(handle, left) :]


def replace_whole(path: Path, content: bytes) -> None:
    """Replace a file, or make it: whoever reads it, after whatever crash, finds the old content or the new.

    It is on disk when this returns; OSError where the disk refuses it. What a process that dies meanwhile leaves is a
    `.new` file that nobody reads.
    """
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(open_owned(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk; OSError where they do not get there."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path, mode: int = FOLDER_MODE) -> None:
    """Make a folder and those above it that are missing; who owns them, and with which mode, is as for files."""
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    folder.mkdir(exist_ok=True)
    hand_over(folder, mode)


def hand_over(path: Path, mode: int) -> None:
    """Give what root has just made to the owner of the folder it is in, as `open_owned` does. OSError on failure."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        owner = _other_owner(folder)
        if owner is None:
            return
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(path.name, flags, dir_fd=folder)
        try:
            found = os.fstat(handle)
            # By now the folder's owner may have put something else there, such as a second name of another file.
            if found.st_uid == 0 and (stat.S_ISDIR(found.st_mode) or found.st_nlink == 1):
                _give(handle, owner, mode)
        finally:
            os.close(handle)
    finally:
        os.close(folder)


def _other_owner(folder: int) -> os.stat_result | None:
    """Return what tells owner and group of a folder; None where nothing is to be given away."""
    if os.geteuid() != 0:
        return None
    found = os.fstat(folder)
    return found if found.st_uid != 0 else None


def _made(name: str, flags: int, mode: int, folder: int, owner: os.stat_result) -> int:
    """Make a file for the owner of its folder; one that somebody else makes at that moment is his."""
    try:
        handle = os.open(name, flags | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR, dir_fd=folder)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(name, flags & ~os.O_CREAT, dir_fd=folder)
    try:
        _give(handle, owner, mode & ~UMASK)
    except OSError:
        os.close(handle)
        os.unlink(name, dir_fd=folder)
        raise
    return handle


def _give(handle: int, owner: os.stat_result, mode: int) -> None:
    os.fchown(handle, owner.st_uid, owner.st_gid)
    os.fchmod(handle, mode)
