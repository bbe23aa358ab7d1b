"""Old files of the decision journal go once they are read; an anchor stands for them, so that the chain still begins.

The newest file of a chain that has a line always stays: the next line follows its last one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from accounting.chain import Head, Linker, anchor_of, day_of
from accounting.errors import StoreError
from accounting.journal_chains import anchor_file, chains_in, check_chain
from accounting.owned_files import open_owned


def remove_read(folder: Path, key: bytes, offsets: Mapping[str, int], first_day: str) -> list[Path]:
    """Remove the journal's files of days before `first_day` (YYYYMMDD) that are ingested to their end; return them.

    A file whose chain is broken stays, and so do those after it: they are evidence. StoreError where one cannot be
    removed.
    """
    gone: list[Path] = []
    for name, files in chains_in(folder).items():
        last = max((at for at, file in enumerate(files) if file.stat().st_size), default=0)
        old = [file for file in files[:last] if day_of(file.name) < first_day]
        read = _until(old, offsets)
        try:
            gone += _remove(folder, name, read, key)
        except OSError as error:
            raise StoreError(
                f"cannot remove {error.filename}: {error.strerror}; run this as the service's user"
            ) from None
    return gone


def _until(files: Sequence[Path], offsets: Mapping[str, int]) -> list[Path]:
    """Return the files up to the first that is not read to its end."""
    read: list[Path] = []
    for file in files:
        if offsets.get(file.name, 0) < file.stat().st_size:
            break
        read.append(file)
    return read


def _remove(folder: Path, name: str, files: Sequence[Path], key: bytes) -> list[Path]:
    """Write the anchor, then remove the files: cut off between, the anchor only stands for more than has gone."""
    if not files:
        return []
    check = check_chain(name, files, key)
    if any(one.kind not in ("torn", "without link") for one in check.finish()):
        return []
    if check.first is not None:
        _write_anchor(anchor_file(folder, name), name, check.head, key)
    for file in files:
        file.unlink()
    return list(files)


def _write_anchor(file: Path, name: str, head: Head, key: bytes) -> None:
    text = msgspec.json.encode(anchor_of(name, head, Linker(key)))
    partial = file.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(open_owned(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), "wb") as opened:
        opened.write(text + b"\n")
        opened.flush()
        os.fsync(opened.fileno())
    partial.replace(file)
