"""Which SiteFactors are ours, what they were before, and until when they may stay. Pure.

A factor is noted before it is written to Slurm, so after a crash at any moment each job whose factor could be ours
has an entry. `ours` are all values that may be in force because of us: those written and confirmed, those about to be
written, and earlier ones, since backfill may bring them back (before 26.05 it can undo what changed during its
cycle). Any other value was set by somebody else, and stays.

A hanging write may still come through when slurmctld wakes up, after it was asked what it has. So a job that is as
before us again is forgotten only after LATE_S, and is looked at once more.

A job that runs, is held, or is not eligible yet keeps its SiteFactor, but sprio does not show it. Such an entry stays
as long as the job exists: the job may be requeued. So may a task of an array, which inherits the SiteFactor of the
record that it is split from: it gets an entry of its own (`with_tasks`). And so may a job that has ended, by its user
or by recovery, as long as slurmctld knows of it; until then nothing of it can be changed (seen on 22.05).

A number alone does not identify a job: a slurmctld that has lost its state hands out numbers again. So an entry says
when its job was submitted, and counts for no other job (`without_others`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from slurm_plugin.slurm.lease import Clock, Lease, is_over
from slurm_plugin.slurm.listed_by_us import Listed
from slurm_plugin.slurm.queue import FactorChange

# At most this many values of ours are remembered for a job.
_MOST_VALUES = 16
# A hanging write comes through at most this many seconds after slurmctld has answered others.
LATE_S = 60.0


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A job, its SiteFactor before the first of ours, and ours since then, the newest last.

    `back` is when it was first seen to be as before us again. For an array, `tasks_to` is the highest id looked at
    among its tasks with records of their own. `submit_s` is when it was submitted (unix seconds; 0: not known, as in
    files written before this was noted). `gone` is when it was first seen to have ended.
    """

    job_id: int
    original: int
    ours: tuple[int, ...]
    back: Clock | None = None
    tasks_to: int = 0
    submit_s: float = 0.0
    gone: Clock | None = None


class Submission(NamedTuple):
    """When a job was submitted or last requeued (unix seconds), and how often it was requeued."""

    submit_s: float
    restarts: int


class FactorState(msgspec.Struct, frozen=True):
    """The state, and its cluster: job ids mean nothing on another. `listed` are jobs that list a partition by us."""

    cluster: str = ""
    entries: tuple[Entry, ...] = ()
    lease: Lease | None = None
    listed: tuple[Listed, ...] = ()

    @property
    def by_job(self) -> dict[int, Entry]:
        """The entries by job."""
        return {entry.job_id: entry for entry in self.entries}


def intend(
    state: FactorState,
    changes: Iterable[FactorChange],
    current: Mapping[int, int],
    array_of: Mapping[int, int],
    submitted: Mapping[int, Submission],
) -> FactorState:
    """Note what is about to be written, given what Slurm has now, and which tasks have records of their own.

    `submitted` says when each job was submitted. A value that is not ours was set by somebody else meanwhile: from
    now on the job goes back to that.
    """
    state = as_of_now(state, array_of, submitted)
    entries, newest = state.by_job, _newest(array_of)
    for change in changes:
        old = entries.get(change.job_id)
        now = current.get(change.job_id, change.before)
        if old is None or now not in (*old.ours, old.original):
            old = Entry(change.job_id, now, (), tasks_to=newest.get(change.job_id, 0))
        ours = (*(value for value in old.ours if value != change.after), change.after)
        since = submitted.get(change.job_id)
        entries[change.job_id] = msgspec.structs.replace(
            old,
            ours=ours[-_MOST_VALUES:],
            back=None,
            gone=None,
            submit_s=since.submit_s if since else old.submit_s,
        )
    return msgspec.structs.replace(state, entries=tuple(entries.values()))


def as_of_now(
    state: FactorState, array_of: Mapping[int, int], submitted: Mapping[int, Submission]
) -> FactorState:
    """Return the state for the jobs that exist now, including tasks that were split off since."""
    return with_tasks(without_others(state, submitted), array_of)


def without_others(state: FactorState, submitted: Mapping[int, Submission]) -> FactorState:
    """Return the state without the jobs whose numbers now belong to others.

    A requeued job has another submit time, but is still the same job.
    """
    kept = tuple(one for one in state.entries if not _is_another(one, submitted.get(one.job_id)))
    return msgspec.structs.replace(state, entries=kept)


def _is_another(entry: Entry, found: Submission | None) -> bool:
    return bool(found and not found.restarts and entry.submit_s and found.submit_s != entry.submit_s)


def with_tasks(state: FactorState, array_of: Mapping[int, int]) -> FactorState:
    """Return the state with an entry for each task that was split from an array of ours.

    `array_of` has the arrays of tasks with records of their own. A task gets its id when it is split off, the highest
    so far, so each is looked at once: what somebody else sets on it later stays theirs.
    """
    known, newest = state.by_job, _newest(array_of)
    new = [
        msgspec.structs.replace(known[array], job_id=task, back=None, gone=None)
        for task, array in array_of.items()
        if array in known and task > known[array].tasks_to and task not in known
    ]
    seen = (
        msgspec.structs.replace(one, tasks_to=max(one.tasks_to, newest.get(one.job_id, 0)))
        for one in state.entries
    )
    return msgspec.structs.replace(state, entries=(*seen, *new)) if new else state


def _newest(array_of: Mapping[int, int]) -> dict[int, int]:
    """Return the highest id among each array's tasks."""
    newest: dict[int, int] = {}
    for task, array in array_of.items():
        newest[array] = max(task, newest.get(array, 0))
    return newest


def settle(
    state: FactorState,
    current: Mapping[int, int],
    alive: Collection[int] | None,
    now: Clock,
    taken: Collection[int] = (),
    forgets_s: float = 0.0,
) -> FactorState:
    """Forget the jobs that have ended, those that somebody else has changed, and those that are again as before us.

    The last only once they have been so for LATE_S, the first only after `forgets_s`. `alive` are the jobs that wait
    or run; None if that is not known. Of the jobs that sprio does not show, those in `taken` have just been restored.
    """
    settled = (
        _settled(entry, current.get(entry.job_id), now, taken=entry.job_id in taken)
        if alive is None or entry.job_id in alive
        else _ended(entry, now, forgets_s)
        for entry in state.entries
    )
    return msgspec.structs.replace(state, entries=tuple(entry for entry in settled if entry))


def _ended(entry: Entry, now: Clock, forgets_s: float) -> Entry | None:
    """Return what to remember of a job that has ended; None: nothing."""
    gone = entry.gone or now
    return None if is_over(Lease(gone, forgets_s), now) else msgspec.structs.replace(entry, gone=gone)


def _settled(entry: Entry, shown: int | None, now: Clock, *, taken: bool) -> Entry | None:
    """Return what to remember of a job from now on; None: nothing."""
    if shown is not None and shown not in (*entry.ours, entry.original):
        return None
    as_before = taken or entry.back is not None if shown is None else shown == entry.original
    if not as_before or entry.ours[-1] != entry.original:
        return msgspec.structs.replace(entry, back=None, gone=None)
    if entry.back is None:
        return msgspec.structs.replace(entry, back=now, gone=None)
    return None if is_over(Lease(entry.back, LATE_S), now) else entry


def taking_back(state: FactorState) -> FactorState:
    """Note that every job is about to be as it was before us."""
    return msgspec.structs.replace(
        state,
        entries=tuple(
            msgspec.structs.replace(
                entry, ours=(*(value for value in entry.ours if value != entry.original), entry.original)
            )
            for entry in state.entries
        ),
    )


def follow(newest: FactorState, before: FactorState, after: FactorState) -> FactorState:
    """Return the newest state, with what has become of the entries of `before` that have not been rewritten since."""
    old, new = before.by_job, after.by_job
    found = (new.get(one.job_id) if old.get(one.job_id) == one else one for one in newest.entries)
    return msgspec.structs.replace(newest, entries=tuple(entry for entry in found if entry))


def restorations(
    state: FactorState, current: Mapping[int, int], alive: Collection[int]
) -> list[FactorChange]:
    """Return the changes that restore each job with a factor of ours; a job that is not shown counts too."""
    return [
        FactorChange(
            job_id=entry.job_id,
            before=current.get(entry.job_id, entry.ours[-1]),
            after=entry.original,
            reason="undone",
        )
        for entry in state.entries
        if entry.job_id in alive and _is_ours(entry, current.get(entry.job_id))
    ]


def in_force(state: FactorState) -> dict[int, int]:
    """Return the SiteFactor that we last gave each job, but for those seen as before us, or to have ended, since."""
    return {entry.job_id: entry.ours[-1] for entry in state.entries if not (entry.back or entry.gone)}


def may_be_ours(state: FactorState) -> dict[int, frozenset[int]]:
    """Return all SiteFactors that each job may have because of us."""
    return {entry.job_id: frozenset(entry.ours) - {entry.original} for entry in state.entries}


def _is_ours(entry: Entry, shown: int | None) -> bool:
    return shown is None or (shown in entry.ours and shown != entry.original)
