"""Marks how far each file of a journal was read; a file is identified by its contents, on whichever host it lies.

Several hosts write files with the same names (`decisions-20261122.jsonl`) that one store reads. A file's mark is
kept under its name and the digest of its first line, which no other writer's file has. The mark also has a digest
of the bytes before it, which shows that a copy that continued elsewhere, or was restored from a backup and
continued, is not what was read. Such a file is read from its beginning: every row is written onto its own key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from accounting.plain_files import open_plain

# How much of a first line, and before a mark, is looked at: lines that share this much are of one writer.
HEAD_BYTES = 64 * 1024
TAIL_BYTES = 4096
KEY_CHARS = 191  # the longest key that fits into every store
_DIGEST_BYTES = 16

# Whether the store knows what a line records; for marks of earlier releases, which are by name only.
Known = Callable[[bytes], bool]


class Mark(NamedTuple):
    """How far a file was read, in bytes, and the digest of what precedes; '' in marks of earlier releases."""

    read_bytes: int
    tail: str


def mark_of(name: str, file: Path, read_bytes: int) -> tuple[str, Mark] | None:
    """Return the key and the mark of a file read so far; None if nothing was read, or the file is gone.

    `name` is the file's name among all journals.
    """
    if read_bytes == 0:
        return None
    try:
        return key_of(name, head_of(file)), Mark(read_bytes, tail_of(file, read_bytes))
    except OSError:
        return None


def read_to(name: str, file: Path, marks: Mapping[str, Mark], known: Known | None = None) -> int:
    """Return how far this very file was read, in bytes; 0 if it was not, or is not accessible.

    A mark of an earlier release, by name only, counts if `known` says that this file's first line was read.
    """
    try:
        head = head_of(file)
        mark = marks.get(key_of(name, head))
        if mark is not None:
            return mark.read_bytes if tail_of(file, mark.read_bytes) == mark.tail else 0
        older = marks.get(name)
        if older is None or known is None or not _ends_line(file, older.read_bytes) or not known(head):
            return 0
    except OSError:
        return 0
    return older.read_bytes


def offsets_of(files: Iterable[Path], marks: Mapping[str, Mark]) -> dict[str, int]:
    """Return how far files were read, in bytes, by name; unread files are left out."""
    found = {file.name: read_to(file.name, file, marks) for file in files}
    return {name: read_bytes for name, read_bytes in found.items() if read_bytes}


def key_of(name: str, head: bytes) -> str:
    """Return the store's key for the mark of a file with this name and first line."""
    key = f"{name}#{_digest(head)}"
    return key if len(key) <= KEY_CHARS else _digest(key.encode(errors="replace"))


def head_of(file: Path) -> bytes:
    """Return the first line of a file, as far as it is written, at most HEAD_BYTES of it."""
    with open_plain(file) as opened:
        return opened.read(HEAD_BYTES).lstrip(b"\n").partition(b"\n")[0]


def tail_of(file: Path, read_bytes: int) -> str:
    """Return the digest of what precedes a place in a file; '' if the file ends before it."""
    begin = max(0, read_bytes - TAIL_BYTES)
    with open_plain(file) as opened:
        opened.seek(begin)
        before = opened.read(read_bytes - begin)
    return _digest(before) if len(before) == read_bytes - begin else ""


def _ends_line(file: Path, read_bytes: int) -> bool:
    with open_plain(file) as opened:
        opened.seek(max(0, read_bytes - 1))
        return opened.read(1) == b"\n"


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()
