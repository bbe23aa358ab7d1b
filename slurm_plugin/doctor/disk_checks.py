"""Checks of what we write: whether there is room for it, who owns it, and whether old data is removed. Pure."""

from __future__ import annotations

from slurm_plugin.doctor.finding import DAY_S, Judged, span, unseen
from slurm_plugin.doctor.seen import Complaint, DiskSeen, OwnerSeen, Seen

# Less than this is too little, however slowly we grow: others write to the same file system.
LEAST_BYTES, LEAST_INODES = 2**30, 10_000
WEEK_DAYS = 7
# The number of files that are named; a count stands for the others.
NAMED = 3
# The nightly removal should have happened by then, even if it missed a weekend.
RETENTION_LAG_DAYS = 3


def space(seen: Seen) -> Judged:
    """Whether the free space lasts for a week of what we write."""
    if isinstance(seen.disks, Complaint):
        return unseen(seen.disks)
    full, little = [], []
    for disk in seen.disks:
        lacking = _lacking(disk, _week_bytes(disk, seen))
        if not disk.free_bytes or disk.free_inodes == 0:
            full += lacking
        else:
            little += lacking
    fix = (
        "free some space, or lower store.keep_days and models.keep_days, then run `rightsizer ingest "
        "--prune` and `rightsizer models --prune --apply`"
    )
    if full:
        return "problem", "; ".join((*full, *little)), fix
    if little:
        return "warning", "; ".join(little), fix
    free = min((disk.free_bytes for disk in seen.disks), default=0)
    return "ok", f"at least {_gib(free)} are free on every file system that rightsizer writes to", ""


def _week_bytes(disk: DiskSeen, seen: Seen) -> int:
    """Return how much we write in a week; the store's file adds a week's share of its present size."""
    store, days = seen.store, 0.0
    if not isinstance(store, Complaint) and store.oldest_end_s is not None:
        days = (seen.now_s - store.oldest_end_s) / DAY_S
    return disk.week_bytes + int(disk.store_bytes * WEEK_DAYS / max(days, WEEK_DAYS))


def _lacking(disk: DiskSeen, week_bytes: int) -> list[str]:
    where = f"on the file system of {disk.folders[0]}" + (
        f" (and {len(disk.folders) - 1} more)" if disk.folders[1:] else ""
    )
    said = []
    if disk.free_bytes < max(LEAST_BYTES, week_bytes):
        said.append(
            f"only {_gib(disk.free_bytes)} are free {where}, and rightsizer writes {_gib(week_bytes)} a week"
        )
    if disk.free_inodes is not None and disk.free_inodes < max(LEAST_INODES, disk.week_inodes):
        said.append(
            f"only {disk.free_inodes} inodes are free {where}, and rightsizer creates {disk.week_inodes} "
            "files a week"
        )
    return said


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def owners(seen: Seen) -> Judged:
    """Whether the owner of our folders, the service's user, may use everything in them."""
    if isinstance(seen.owners, Complaint):
        return unseen(seen.owners)
    if not seen.owners:
        return "ok", "the owner of rightsizer's folders can use all files in them", ""
    fixes = [
        f"chown -R {one.owner}: {' '.join(one.blocked if len(one.blocked) <= NAMED else [one.folder])}"
        for one in seen.owners
    ]
    return "problem", "; ".join(map(_blocked, seen.owners)), " && ".join(fixes)


def _blocked(one: OwnerSeen) -> str:
    more = f" and {len(one.blocked) - NAMED} more" if len(one.blocked) > NAMED else ""
    return (
        f"{one.owner} owns {one.folder}, but may not use {', '.join(one.blocked[:NAMED])}{more}, which root "
        "owns"
    )


def retention(seen: Seen) -> Judged:
    """Whether what is older than the site wants to keep is removed."""
    if isinstance(seen.store, Complaint):
        return unseen(seen.store)
    keep_days, oldest_s = seen.store.keep_days, seen.store.oldest_end_s
    if not keep_days:
        return "ok", "store.keep_days is 0: nothing is removed", ""
    if oldest_s is None or seen.now_s - oldest_s < (keep_days + RETENTION_LAG_DAYS) * DAY_S:
        return "ok", f"nothing is older than store.keep_days ({keep_days} days)", ""
    what = f"the oldest job ended {span(seen.now_s - oldest_s)} ago, store.keep_days is {keep_days}"
    fix = "run `rightsizer ingest --prune`; `systemctl cat rightsizer-train.service` should show it as the last command"
    return "warning", what, fix
