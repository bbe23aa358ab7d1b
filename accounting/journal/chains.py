"""Finds the files of the decision journal, chain by chain, and runs their lines through the check (chain_check.py)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accounting.journal.chain_check import ChainCheck, Place
from accounting.journal.files import PATTERN, cannot_read, opened
from accounting.journal.links import Anchor, Linker, chain_name, read_anchor


def chains_in(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each chain in a folder, in the order of their days."""
    chains: dict[str, list[Path]] = {}
    for file in sorted(folder.glob(PATTERN)):
        name = chain_name(file.name)
        if name:
            chains.setdefault(name, []).append(file)
    return chains


def anchor_file(folder: Path, name: str) -> Path:
    """Return the path of a chain's anchor."""
    return folder / f"{name}.anchor"


def check_chain(name: str, files: Sequence[Path], key: bytes, *, latest: int = 0) -> ChainCheck:
    """Check the lines of a chain, or of only its `latest` files, and return the check.

    Raises StoreError if a file cannot be read.
    """
    linker = Linker(key)
    anchor = _anchor_of(files[0].parent, name, linker)
    part = latest and len(files) > latest
    check = ChainCheck(name, key, None if part else anchor.head if anchor else linker.begin(name))
    for file in files[-latest:]:
        with opened(file) as lines:
            for number, line in enumerate(lines, 1):
                check.take(Place(file.name, number), line.rstrip(b"\n"), is_whole=line.endswith(b"\n"))
    return check


def _anchor_of(folder: Path, name: str, linker: Linker) -> Anchor | None:
    file = anchor_file(folder, name)
    try:
        return read_anchor(file.read_bytes(), name, linker)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise cannot_read(file, error) from None
