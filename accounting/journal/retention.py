"""Removes old files of the decision journal that are ingested; an anchor replaces them, so that the chain has a start.

The newest file of a chain that has a line always stays: the next line follows its last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from accounting.errors import StoreError
from accounting.journal.chain_check import HARMLESS
from accounting.journal.chains import anchor_file, chains_in, check_chain
from accounting.journal.links import Linker, anchor_of, day_of
from accounting.owned_files import replace_whole


def remove_read(folder: Path, key: bytes, offsets: Mapping[str, int], first_day: str) -> list[Path]:
    """Remove journal files of days before `first_day` (YYYYMMDD) that are ingested to their end; return them.

    If the chain is broken in any of these files, all of them stay: they are evidence. Raises StoreError if a file
    cannot be removed.
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
    """Return the files before the first that is not read to its end."""
    read: list[Path] = []
    for file in files:
        if offsets.get(file.name, 0) < file.stat().st_size:
            break
        read.append(file)
    return read


def _remove(folder: Path, name: str, files: Sequence[Path], key: bytes) -> list[Path]:
    """Write the anchor, then remove the files; after a crash in between, the anchor stands for more than is gone."""
    if not files:
        return []
    check = check_chain(name, files, key)
    if any(one.kind not in HARMLESS for one in check.finish()):
        return []
    if check.first is not None:
        anchor = anchor_of(name, check.head, Linker(key))
        replace_whole(anchor_file(folder, name), msgspec.json.encode(anchor) + b"\n")
    for file in files:
        file.unlink()
    return list(files)
