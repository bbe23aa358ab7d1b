"""Look at the folders that we write to: the free space, how fast they grow, and what in them belongs to root."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from accounting.errors import RightsizerError
from accounting.presence import is_folder
from accounting.unnamed import user_name
from models.versions.feed import FOLDER as FEED
from slurm_plugin.config.secret_urls import store_url
from slurm_plugin.config.settings import Config
from slurm_plugin.doctor.finding import DAY_S
from slurm_plugin.doctor.seen import DiskSeen, OwnerSeen

WEEK_S = 7 * DAY_S
SQLITE = "sqlite:///"
READ, CHANGE = 0o4, 0o6
# The rights to list a folder, and to create and remove files in it.
FOLDER = 0o7


def state_folders(config: Config) -> list[Path]:
    """Return the folders that are ours alone, whether they exist or not."""
    return [
        Path(name)
        for name in (
            config.service.journal,
            config.models.directory,
            config.advisor.directory,
            config.recovery.directory,
            config.brakes.directory,
        )
    ]


def store_file(config: Config) -> Path | None:
    """Return the file of an SQLite store; None for another database, or if the store's URL cannot be read."""
    try:
        url = store_url(config)
    except RightsizerError:  # the check of the store reports it
        return None
    return Path(url.removeprefix(SQLITE)) if url.startswith(f"{SQLITE}/") else None


def look_at_disks(config: Config, now_s: float) -> tuple[DiskSeen, ...]:
    """Return what is free, and what we wrote in a week, once for each file system; OSError if that is hidden."""
    store = store_file(config)
    found: dict[int, DiskSeen] = {}
    spool = Path(config.accounting.gpu_spool)
    for folder in (*state_folders(config), spool, *([store.parent] if store else [])):
        there = _nearest(folder)
        is_store = store is not None and folder == store.parent
        own = found.get(device := there.stat().st_dev)
        sizes = [] if is_store else [one.st_size for one in _files(folder) if one.st_mtime > now_s - WEEK_S]
        free = os.statvfs(there)
        found[device] = DiskSeen(
            folders=((*own.folders, str(folder)) if own else (str(folder),)),
            free_bytes=free.f_bavail * free.f_frsize,
            # Some file systems, such as btrfs, have no fixed number of inodes.
            free_inodes=free.f_favail if free.f_files else None,
            week_bytes=sum(sizes) + (own.week_bytes if own else 0),
            week_inodes=len(sizes) + (own.week_inodes if own else 0),
            store_bytes=_store_bytes(store) if store and is_store else own.store_bytes if own else 0,
        )
    return tuple(found.values())


def _nearest(folder: Path) -> Path:
    """Return a folder, or its nearest parent that exists."""
    return next(one for one in (folder, *folder.parents) if is_folder(one))


def _files(folder: Path) -> Iterator[os.stat_result]:
    for _, found in _entries(folder):
        if stat.S_ISREG(found.st_mode):
            yield found


def _store_bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def look_at_owners(config: Config) -> tuple[OwnerSeen, ...]:
    """Return which of root's files the owner of a folder, who is not root, cannot use as needed; OSError if hidden."""
    models, store = Path(config.models.directory), store_file(config)
    seen = [_owned(folder, _entries(folder), models) for folder in state_folders(config) if is_folder(folder)]
    if store is not None and is_folder(store.parent):
        beside = [(path, found) for path, found in _beside(store) if stat.S_ISREG(found.st_mode)]
        seen.append(_owned(store.parent, iter(beside), models))
    return tuple(one for one in seen if one.blocked)


def closed_folders(models: Path) -> tuple[str, ...]:
    """Return those of the folders of models and of their feed that exist and that this process may not write."""
    there = [folder for folder in (models, models / FEED) if is_folder(folder)]
    return tuple(str(folder) for folder in there if not os.access(folder, os.W_OK | os.X_OK))


def closed_files(config: Config) -> tuple[str, ...]:
    """Return those of an SQLite store's files that this process may not read and write; () for other databases."""
    store = store_file(config)
    beside = _beside(store) if store is not None else ()
    return tuple(sorted(str(path) for path, _ in beside if not os.access(path, os.R_OK | os.W_OK)))


def _owned(folder: Path, entries: Iterator[tuple[Path, os.stat_result]], models: Path) -> OwnerSeen:
    owner = folder.stat()
    blocked = [
        str(path)
        for path, found in entries
        if owner.st_uid != 0 == found.st_uid and not _may(owner, found, _needed(path, found, models))
    ]
    return OwnerSeen(folder=str(folder), owner=user_name(owner.st_uid), blocked=tuple(sorted(blocked)))


def _needed(path: Path, found: os.stat_result, models: Path) -> int:
    """Return which rights the service's user needs; the files of a model version never change, so reading is enough."""
    if stat.S_ISDIR(found.st_mode):
        return FOLDER
    return READ if path.parent.parent == models and path.parent.name != FEED else CHANGE


def _may(owner: os.stat_result, found: os.stat_result, needed: int) -> bool:
    """Whether the owner of a folder has these rights to root's entry in it; only the owner's group of it counts."""
    shift = 3 if found.st_gid == owner.st_gid else 0
    return (found.st_mode >> shift) & needed == needed


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the entries of a folder and of its subfolders, one level deep; skips links and what vanishes meanwhile."""
    for path, found in _listed(folder):
        yield path, found
        if stat.S_ISDIR(found.st_mode):
            yield from _listed(path)


def _listed(folder: Path) -> Sequence[tuple[Path, os.stat_result]]:
    """Return the entries of a folder; none if it does not exist or this process may not read it."""
    try:
        with os.scandir(folder) as entries:
            return [(Path(one.path), found) for one in entries if (found := _status(one)) is not None]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return an entry's status; None for a link, for one that has vanished since it was listed, or if hidden."""
    try:
        return None if entry.is_symlink() else entry.stat(follow_symlinks=False)
    except (FileNotFoundError, PermissionError):
        return None


def _beside(store: Path) -> list[tuple[Path, os.stat_result]]:
    """Return a store's file, and the files that SQLite and our lock keep next to it."""
    return [(path, found) for path, found in _listed(store.parent) if path.name.startswith(store.name)]
