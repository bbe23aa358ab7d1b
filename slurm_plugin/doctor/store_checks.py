"""Checks of the store, of how far behind and how complete it is, and of the journal. Pure."""

from __future__ import annotations

from datetime import datetime

from accounting.units import counted
from slurm_plugin.doctor.finding import DAY_S, HOUR_S, Judged, by_age, closed_to, unseen
from slurm_plugin.doctor.seen import Complaint, Seen, unread_bytes

# The timer ingests every ten minutes.
INGEST_LAG_S = 2 * HOUR_S
# On a long weekend, no job may end at all.
NEWEST_JOB_AGE_S = 4 * DAY_S
# How many jobs make a share meaningful, and which share is too large: a few that lost their node, or had no step, are
# usual.
LEAST_MEASURED, MUCH_UNMEASURED = 50, 0.25
# About 75,000 decisions.
UNREAD_BYTES = 64 * 1024 * 1024
INGEST = "see `systemctl status rightsizer-ingest.timer`, and run `rightsizer ingest`"


def store(seen: Seen) -> Judged:
    """Whether the store opens."""
    if isinstance(seen.store, Complaint):
        return "problem", seen.store.what, seen.store.fix
    if seen.store.closed:
        shut = " ".join(seen.store.closed)
        fix = f"run this as the user who owns the store; if you did, chmod u+rw {shut}"
        return "warning", f"opens, but cannot be written, so nothing is ingested: {shut}", fix
    return "ok", "opens", ""


def ingest(seen: Seen) -> Judged:
    """How far behind the reading of accounting is."""
    if isinstance(seen.store, Complaint):
        return unseen(seen.store)
    if seen.store.read_until_s is None:
        return "unknown", "the store was never filled from Slurm's accounting", "run `rightsizer ingest`"
    if seen.hidden:
        what, _, fix = seen.hidden.partition(". ")
        return "warning", what, fix
    return by_age("accounting was read until", seen.now_s - seen.store.read_until_s, INGEST_LAG_S, INGEST)


def newest_job(seen: Seen) -> Judged:
    """How long ago the newest job ended: reading may succeed and yet find nothing."""
    if isinstance(seen.store, Complaint):
        return unseen(seen.store)
    if seen.store.newest_end_s is None:
        of = f" of cluster {seen.store.cluster}" if seen.store.cluster else ""
        fix = "run `rightsizer ingest`; if you did, compare accounting.cluster with `scontrol show config`"
        return "warning", f"the store has no job{of}", fix
    fix = (
        "if jobs have ended since then, check what `sacct -a -X` shows to the service's user, then run "
        "`rightsizer ingest`"
    )
    return by_age(
        "the newest job in the store ended", seen.now_s - seen.store.newest_end_s, NEWEST_JOB_AGE_S, fix
    )


def labels(seen: Seen) -> Judged:
    """Whether labels follow the rules of this release: stored labels stay as they are until they are read again."""
    if isinstance(seen.store, Complaint):
        return unseen(seen.store)
    oldest_s, until_s = seen.store.oldest_end_s, seen.store.outdated_until_s
    if oldest_s is None or until_s is None or oldest_s >= until_s:
        return "ok", "all labels follow the rules of this release", ""
    since = datetime.fromtimestamp(oldest_s).astimezone()
    until = datetime.fromtimestamp(until_s).astimezone()
    return (
        "warning",
        f"of jobs that ended before {until:%Y-%m-%d %H:%M} they may be by the rules of an earlier release",
        f"run `rightsizer ingest --since {since:%Y-%m-%d}` once, at a quiet hour: it reads all of them again",
    )


def measured(seen: Seen) -> Judged:
    """Whether Slurm still measures what jobs use: otherwise nothing is learned, and no report shows a saving."""
    if isinstance(seen.store, Complaint):
        return unseen(seen.store)
    ran, without, newest_s = seen.store.latest_ran, seen.store.latest_without_memory, seen.store.newest_end_s
    if newest_s is None or ran < LEAST_MEASURED:
        return (
            "ok",
            f"only {counted(ran, 'job')} ran long enough in the newest week, too few to judge this",
            "",
        )
    what = (
        f"no memory use was recorded for {without / ran:.0%} of the newest {ran:,} jobs that ran long enough"
    )
    if without < MUCH_UNMEASURED * ran:
        return "ok", what, ""
    since = datetime.fromtimestamp(newest_s - 7 * DAY_S).astimezone()
    fix = f"do what `rightsizer report quality --since {since:%Y-%m-%d}` says; such jobs are not learned from"
    return "warning", what, fix


def journal(seen: Seen) -> Judged:
    """Whether decisions can be recorded in the journal, and are ingested from it."""
    if isinstance(seen.journal, Complaint):
        return unseen(seen.journal)
    journal = seen.journal
    if not journal.is_there:
        return "warning", f"{journal.folder} does not exist", "start the service; it creates the folder"
    if not journal.is_ours:
        fix = closed_to("the service's user")
        return "problem", f"cannot read and write {journal.folder}", fix
    if isinstance(seen.store, Complaint):
        return "ok", f"{journal.folder} can be read and written; how much of it is ingested is not known", ""
    unread = unread_bytes(journal, seen.store)
    what = f"{unread / 1024 / 1024:.1f} MiB of {journal.folder} are not ingested yet"
    return ("warning", what, INGEST) if unread > UNREAD_BYTES else ("ok", what, "")
