"""Files that both root and the service's user write: what root makes in another user's folder is that user's.

Otherwise one command run as root would lock the service out of its own lock, and with a umask of 077 out of files
that it has to read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

FOLDER_MODE = 0o750
# The same as in the services' systemd units.
UMASK = 0o027


def open_owned(path: Path, flags: int, mode: int) -> int:
    """Open a file as `os.open` does, closed on exec. Raises OSError on failure.

    A file that root makes in another user's folder gets that folder's owner and group, and `mode` less UMASK,
    whatever root's umask is. In such a folder root does not follow a link in the file's place.
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
    """Return the fix if a folder of ours could not be written: `otherwise`, unless the disk is full or read-only.

    Our systemd units see all but some folders as read-only.
    """
    if error.errno == errno.EROFS:
        return "let the systemd unit write there with ReadWritePaths= (docs/admin.md), or mount it writable"
    return "free some space there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else otherwise


def append_lines(handle: int, lines: bytes) -> None:
    """Append lines to an open file, on a new line if a full disk or a crash cut off the last one.

    Raises OSError if the disk refuses them.
    """
    size = os.fstat(handle).st_size
    torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
    left = memoryview(b"\n" * torn + lines)
    while left:
        left = left[os.write(handle, left) :]


def replace_whole(path: Path, content: bytes) -> None:
    """Replace or make a file so that a reader finds the old content or the new, whatever crashes.

    The content is on disk on return; OSError if the disk refuses it. A process that dies meanwhile leaves a
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
    """Wait until a file, or the names in a folder, are on disk; OSError if they cannot be written there."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path, mode: int = FOLDER_MODE) -> None:
    """Make a folder and its missing parents; owner and mode follow the same rule as for files."""
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    folder.mkdir(exist_ok=True)
    hand_over(folder, mode)


def hand_over(path: Path, mode: int) -> None:
    """Give what root has just made to the owner of its folder, as `open_owned` does. Raises OSError on failure."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        owner = _other_owner(folder)
        if owner is None:
            return
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(path.name, flags, dir_fd=folder)
        try:
            found = os.fstat(handle)
            # The folder's owner may meanwhile have put something else there, such as a hard link to another file.
            if found.st_uid == 0 and (stat.S_ISDIR(found.st_mode) or found.st_nlink == 1):
                _give(handle, owner, mode)
        finally:
            os.close(handle)
    finally:
        os.close(folder)


def _other_owner(folder: int) -> os.stat_result | None:
    """Return the status of a folder owned by another user than root, if root runs this; else None."""
    if os.geteuid() != 0:
        return None
    found = os.fstat(folder)
    return found if found.st_uid != 0 else None


def _made(name: str, flags: int, mode: int, folder: int, owner: os.stat_result) -> int:
    """Make a file for its folder's owner; if somebody else makes it at the same moment, open theirs as it is."""
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
