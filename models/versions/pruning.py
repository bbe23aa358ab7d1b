"""Removes what a registry no longer keeps (keeping.py says what that is), and what killed processes left there.

    <models>/.gone-<version>   a version that is being removed: it was moved aside as a whole first
    <models>/.draft-*          a version that is being written; nobody's once its maker has ended

No process can promote meanwhile. A kill at any moment leaves whole versions, and folders that the next pruning
removes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from accounting.owned_files import sync
from models.demand.prediction import ChainSettings
from models.versions import registry
from models.versions.going_back import rollback_target
from models.versions.holding import nobody_holds
from models.versions.keeping import Keep, Known, current_until_s, why_kept
from models.versions.promotion_log import locked_log, read_promotions

GONE = ".gone-"
# A process holds a draft that it has just made sooner than this, also by another host's clock.
LEFT_S = 3600.0


class Pruned(msgspec.Struct):
    """What went, what killed processes had left (by name), and what prevents the removal of the rest, a line each."""

    versions: list[str] = []
    leftovers: list[str] = []
    problems: list[str] = []


def stays(directory: Path, keep: Keep, settings: ChainSettings, now_s: float) -> dict[str, str]:
    """Return for every version, the oldest first, why it stays; "" for those that `prune` would remove.

    `settings` are those that the service loads a model with, `now_s` is in unix seconds. ModelError if the log of
    promotions cannot be read.
    """
    there = registry.versions(directory)
    target = rollback_target(directory, settings)
    known = Known(
        made_s={
            version: made_s for version in there if (made_s := _changed_s(directory / version)) is not None
        },
        current=registry.current_version(directory),
        current_until_s=current_until_s(read_promotions(directory)),
        back_to={*filter(None, [target.version]), *target.unread},
        held={version for version in there if _is_held(directory / version)},
    )
    return why_kept(known, keep, now_s)


def prune(directory: Path, keep: Keep, settings: ChainSettings) -> Pruned:
    """Remove what is no longer kept; report what cannot be removed, which stays, or goes the next time.

    ModelError if the registry cannot be read or written.
    """
    pruned = Pruned()
    if not directory.is_dir():
        return pruned
    pruned.leftovers = [path.name for path in leftovers(directory)]
    with registry.writing(directory), locked_log(directory):
        for version, why in stays(directory, keep, settings, time.time()).items():
            if not why and _put_aside(directory, version, pruned.problems):
                pruned.versions.append(version)
        sync(directory)
    for name in [*(f"{GONE}{version}" for version in pruned.versions), *pruned.leftovers]:
        _remove(directory / name, pruned.problems)
    return pruned


def leftovers(directory: Path) -> list[Path]:
    """Return what killed processes left: half-removed versions, drafts that nobody writes, links not swapped in."""
    return [
        *directory.glob(f"{GONE}*"),
        *(path for path in directory.glob(f"{registry.DRAFT}*") if _is_old(path) and not _is_held(path)),
        *(path for path in directory.glob(f".{registry.CURRENT}-*") if path.is_symlink() and _is_old(path)),
    ]


def _put_aside(directory: Path, version: str, problems: list[str]) -> bool:
    """Give a version a name that no version has, in one step; return False if it is held, or that fails."""
    try:
        with nobody_holds(directory / version) as free:
            if free:
                (directory / version).rename(directory / f"{GONE}{version}")
            return free
    except OSError as error:
        problems.append(_not_removed(directory / version, error))
        return False


def _remove(path: Path, problems: list[str]) -> None:
    try:
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path)
    except FileNotFoundError:  # another process removed it too
        return
    except OSError as error:
        problems.append(_not_removed(path, error))


def _not_removed(path: Path, error: OSError) -> str:
    return (
        f"cannot remove {path}: {error.strerror}; `rightsizer doctor` says which files belong to another user"
    )


def _is_held(folder: Path) -> bool:
    """Return whether some process uses a folder; one that cannot be opened counts as held."""
    try:
        with nobody_holds(folder) as free:
            return not free
    except OSError:
        return True


def _is_old(path: Path) -> bool:
    changed_s = _changed_s(path)
    return changed_s is not None and changed_s < time.time() - LEFT_S


def _changed_s(path: Path) -> float | None:
    """Return when something was last written into a folder (unix seconds); None if it has gone meanwhile."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return None


def size_mib(folder: Path) -> float:
    """Return how much the files of a version take, in MiB; 0 if it has gone."""
    return sum(_sizes(folder)) / 2**20


def _sizes(folder: Path) -> Iterator[int]:
    for file in folder.glob("*"):
        try:
            yield file.lstat().st_size
        except OSError:
            continue
