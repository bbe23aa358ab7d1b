"""The folder of artefacts: versions side by side, and a `current` link that is swapped in one step."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from accounting.errors import ModelError
from models.artefact import MANIFEST

CURRENT = "current"


def versions(directory: Path) -> list[str]:
    """Return the versions in a registry, the oldest first."""
    # A name with a dot in front is a draft that a killed training left.
    folders = (file.parent for file in directory.glob(f"*/{MANIFEST}"))
    return sorted(folder.name for folder in folders if folder.name[0] != "." and not folder.is_symlink())


def current_version(directory: Path) -> str | None:
    """Return the version that `current` names; None before the first."""
    try:
        return (directory / CURRENT).readlink().name
    except OSError:
        return None


def current_folder(directory: Path) -> Path:
    """Return the folder of the current version; ModelError where there is none."""
    version = current_version(directory)
    if version is None:
        raise ModelError(f"there is no model in {directory}; run `rightsizer train` first")
    return directory / version


@contextlib.contextmanager
def new_version(directory: Path, version: str) -> Iterator[Path]:
    """Hand out a folder to write an artefact into; it appears under its version only when all of it is on disk."""
    with _writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=directory))
        try:
            yield draft
            for file in draft.iterdir():
                _sync(file)
            draft.chmod(0o755)
            draft.rename(directory / version)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        _sync(directory)


def promote(directory: Path, version: str) -> None:
    """Make a version the current one; ModelError where it does not exist."""
    if version not in versions(directory):
        raise ModelError(
            f"there is no model {version} in {directory}; `rightsizer models` lists those there are"
        )
    link = directory / f".{CURRENT}-{os.getpid()}"
    with _writing(directory):
        link.unlink(missing_ok=True)
        link.symlink_to(version)
        try:
            link.replace(directory / CURRENT)
        finally:
            link.unlink(missing_ok=True)
        _sync(directory)


def rollback(directory: Path, passed_over: Collection[str] = ()) -> str:
    """Make the version before the current one current again, and return it; ModelError where there is none.

    Versions to be `passed_over` are none to go back to: those that the gate refused.
    """
    current = current_version(directory) or ""
    older = [version for version in versions(directory) if version < current and version not in passed_over]
    if not older:
        raise ModelError(f"no model in {directory} is older than the current one; nothing was changed")
    promote(directory, older[-1])
    return older[-1]


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelError(
            f"cannot write models to {directory}: {error.strerror}; set models.directory to a folder you may write"
        ) from None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
