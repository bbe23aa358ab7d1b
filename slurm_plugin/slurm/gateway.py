"""The one gate through which the advisor changes the queue: bounded, rate-limited, read back, logged and undoable.

Before a factor is written, its old and new values are on disk (factor_log.py), so that `undo` finds them whenever the
writer dies. After it is written, Slurm is asked what it has: before 26.05, backfill may undo what changes during its
own cycle, and what is not kept is tried once more. Without `apply`, nothing reaches Slurm and nothing is noted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal

import msgspec

from slurm_plugin.config.settings import Config
from slurm_plugin.log_lines import SaidOnceOfEach
from slurm_plugin.slurm import factor_state, listed_by_us
from slurm_plugin.slurm.backends import open_queue
from slurm_plugin.slurm.factor_log import FactorLog, now
from slurm_plugin.slurm.factor_state import FactorState, Submission
from slurm_plugin.slurm.lease import Lease, is_over
from slurm_plugin.slurm.listed_by_us import Listed
from slurm_plugin.slurm.queue import Dependent, FactorChange, Failed, Queue, Relist, Requeue, Resize, Written
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
from slurm_plugin.slurm.snapshot import FORGETS_S, QueuedJob, Snapshot
from slurm_plugin.slurm.unnumbered import LEFT, Unnumbered

log = logging.getLogger(__name__)

# Writes come in batches, this many a second, with pauses in which slurmctld does its own work.
_BATCHES_PER_S = 10
# Before 24.11 slurmctld may wait five seconds for each (unnumbered.py), and one scontrol is given thirty.
_MOST_AT_ONCE = 5
# After so many, the factors are read again: whatever somebody else has set meanwhile stays.
_LOOKS_EVERY = 100
# Once the lease is over, the timer undoes what is ours and forgets it: a hanging write must have ended by then too.
WRITING_SHARE = 0.5
DRY_RUN = "dry run"
TOO_SLOW = "slurmctld takes changes too slowly; the next cycle goes on"
HIDDEN = "no longer shown by sprio: started, held or gone"
BY_OTHERS = "changed by somebody else meanwhile"


class WriteTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate allows: the largest SiteFactor either way, changes per call, writes per second, the lease."""

    most_factor: int = 10_000
    most_changes: int = 1_000
    writes_per_s: float = 50.0
    lease_s: float = 600.0


class Gateway:
    """Reads the queue and changes it; as a context manager it is the only gate for this folder that does."""

    def __init__(
        self,
        queue: Queue,
        folder: Path,
        terms: WriteTerms,
        *,
        apply: bool,
        cluster: str = "",
        sleep: Callable[[float], None] = time.sleep,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cluster` is its name, so that a folder serves only one; Slurm is not read yet."""
        self._queue, self._terms, self._apply, self._sleep = queue, terms, apply, sleep
        self.cluster = cluster
        self._log = FactorLog(folder, cluster)
        self._held = ExitStack()
        self._alive: frozenset[int] | None = None
        self._jobs: Mapping[int, QueuedJob] = {}
        self._array_of: Mapping[int, int] = {}
        self._submitted: Mapping[int, Submission] = {}
        self._forgets_s = FORGETS_S
        self._unnumbered = Unnumbered(clock_s)

    def __enter__(self) -> Gateway:
        """Become the one advisor; raises ServiceError if there is another. A dry run may always watch."""
        if self._apply:
            self._held.enter_context(self._log.held())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """Let another advisor in; what was changed stays until `undo`, or until the lease is over."""
        self._held.close()
        return False

    def read(self) -> Snapshot:
        """Return the cluster as it is now; raises SlurmError if it does not answer."""
        snapshot = self._queue.read()
        self._forgets_s = snapshot.terms.forgets_s
        self._alive = frozenset(job.job_id for job in snapshot.jobs)
        self._jobs = {job.job_id: job for job in snapshot.jobs}
        self._array_of, self._submitted = _array_of(snapshot), _submitted(snapshot)
        self._unnumbered.keep(self._alive)
        return snapshot

    def ours(self) -> dict[int, frozenset[int]]:
        """Return all SiteFactors that jobs may have because of us; empty once all is as before us for good."""
        state = factor_state.as_of_now(self._log.read(), self._array_of, self._submitted)
        return factor_state.may_be_ours(state)

    def reorder(self, changes: Sequence[FactorChange]) -> list[Written]:
        """Write SiteFactors; each comes back with '' if Slurm has it now, or the reason why not.

        The lease is stamped first, even if nothing changes: what is ours may stay for that long, and nothing is
        written once half of it is over. Raises SlurmError if slurmctld does not answer; what may have been written
        until then is noted, and can be undone.
        """
        if not self._apply:
            return [_logged(change, DRY_RUN) for change in changes]
        current = self._queue.site_factors()
        refused = [self._refusal(change, number, current) for number, change in enumerate(changes)]
        wanted = [change for change, refusal in zip(changes, refused, strict=True) if not refusal]
        new = [change for change in wanted if change.after != current[change.job_id]]
        new.sort(key=lambda change: self._unnumbered.was_refused(change.job_id))
        lease = Lease(now(), self._terms.lease_s)
        self._log.change(
            lambda state: msgspec.structs.replace(
                factor_state.intend(state, wanted, current, self._array_of, self._submitted), lease=lease
            )
        )
        writing = Lease(lease.stamped, lease.lease_s * WRITING_SHARE)
        problems, after = self._write(new, writing=writing) if new else ({}, current)
        for job_id, problem in problems.items():
            self._unnumbered.note(job_id, problem)
        alive = (
            None if self._alive is None else self._alive | after.keys() | {change.job_id for change in wanted}
        )
        self._log.change(
            lambda state: factor_state.settle(state, after, alive, now(), forgets_s=self._forgets_s)
        )
        return [
            _logged(change, refusal or problems.get(change.job_id, ""))
            for change, refusal in zip(changes, refused, strict=True)
        ]

    def resize(self, change: Resize) -> Written:
        """Give a pending record other resources, all or nothing; raises SlurmError if slurmctld does not answer."""
        if not self._apply:
            written = Written(job_id=change.job_id, problem=DRY_RUN)
        elif self._unnumbered.is_left(change.job_id):
            written = Written(job_id=change.job_id, problem=LEFT)
        else:
            self._sleep(1 / self._terms.writes_per_s)
            written = self._queue.resize(change)
            self._unnumbered.note(change.job_id, written.problem)
        log.info("resize job %d: %s: %s", change.job_id, change.reason, written.problem or "done")
        return written

    def has_changed(self) -> bool:
        """Whether anything may be different because of us."""
        return bool(self.ours() or self._log.read().listed)

    def listed_by_us(self) -> dict[int, str]:
        """Return the partition that each waiting job lists only because of us, as of the last reading."""
        return listed_by_us.by_us(self._log.read().listed, self._jobs.values())

    def relist(self, change: Relist) -> Written:
        """Change which partitions a pending record lists; raises SlurmError if slurmctld does not answer.

        An added partition is noted first, for `undo`. A record that the last reading did not show is not touched.
        """
        job = self._jobs.get(change.job_id)
        if not self._apply:
            written = Written(job_id=change.job_id, problem=DRY_RUN)
        elif job is None:
            written = Written(job_id=change.job_id, problem=HIDDEN)
        elif self._unnumbered.is_left(change.job_id):
            written = Written(job_id=change.job_id, problem=LEFT)
        else:
            written = self._relist(change, job)
        said = f"{','.join(change.before)} to {','.join(change.after)}: {change.reason}"
        log.info("partitions of job %d: %s: %s", change.job_id, said, written.problem or "done")
        return written

    def _relist(self, change: Relist, job: QueuedJob) -> Written:
        if change.added:
            self._note(lambda listed: listed_by_us.added(listed, job, change.added))
        self._sleep(1 / self._terms.writes_per_s)
        written = self._queue.relist(change)
        self._unnumbered.note(change.job_id, written.problem)
        # An addition that was refused, or a partition that was taken out, is no longer ours.
        if bool(written.problem) == bool(change.added):
            self._note(lambda listed: listed_by_us.without(listed, job))
        return written

    def _note(self, change: Callable[[Sequence[Listed]], tuple[Listed, ...]]) -> None:
        """Note which partitions jobs list because of us, for the jobs that slurmctld knows."""
        there, moment = self._jobs.values(), now()

        def noted(state: FactorState) -> FactorState:
            kept = listed_by_us.still_there(state.listed, there, moment, self._forgets_s)
            return msgspec.structs.replace(state, listed=change(kept))

        self._log.change(noted)

    def _take_out(self, state: FactorState, snapshot: Snapshot) -> list[Written]:
        """Remove the partitions that were added by us from all jobs."""
        ours = listed_by_us.by_us(state.listed, snapshot.jobs)
        self._jobs = {job.job_id: job for job in snapshot.jobs}
        if self._apply:
            self._note(tuple)
        return [self.relist(one) for one in listed_by_us.taken_out(snapshot.jobs, ours, "undone")]

    def undo(self, *, only_expired: bool = False) -> list[Written]:
        """Restore each factor, and each list of partitions, that is still ours; leave what others have changed since.

        With `only_expired`, nothing is done while the lease holds. The timer calls that without being the one
        advisor, since a hanging advisor holds the lock but lets its lease run out. Raises SlurmError if slurmctld
        does not answer: what could not be restored stays noted for the next attempt, and what was restored stays
        noted for a minute.
        """
        state = self._log.read()
        if not (state.entries or state.listed) or (only_expired and not is_over(state.lease, now())):
            return []
        snapshot = self._queue.read()
        self._forgets_s = snapshot.terms.forgets_s
        current = self._queue.site_factors()
        alive = {job.job_id for job in snapshot.jobs} | current.keys()
        array_of, submitted = _array_of(snapshot), _submitted(snapshot)

        def of_now(noted: FactorState) -> FactorState:
            return factor_state.as_of_now(noted, array_of, submitted)

        relisted = self._take_out(state, snapshot)
        state = of_now(state)
        changes = factor_state.restorations(state, current, alive)
        if not self._apply:
            return [*relisted, *(_logged(change, DRY_RUN) for change in changes)]
        self._log.change(of_now)
        back = factor_state.taking_back(state)
        self._log.change(lambda newest: factor_state.follow(newest, state, back))
        problems, after = self._write(changes, unseen=alive) if changes else ({}, current)
        taken = {job for job, problem in problems.items() if not problem}
        settled = factor_state.settle(back, after, alive, now(), taken, self._forgets_s)
        self._log.change(lambda newest: factor_state.follow(newest, back, settled))
        undone = [_logged(change, problems.get(change.job_id, "")) for change in changes]
        return [*relisted, *(one for one in undone if not one.problem.startswith(BY_OTHERS))]

    def _refusal(self, change: FactorChange, number: int, current: Mapping[int, int]) -> str:
        if abs(change.after) > self._terms.most_factor:
            return f"beyond the bound of {self._terms.most_factor}"
        if number >= self._terms.most_changes:
            return f"beyond the {self._terms.most_changes} changes of a cycle"
        if change.job_id not in current:
            return HIDDEN
        if current[change.job_id] not in (change.before, change.after):
            return f"{BY_OTHERS}, to {current[change.job_id]}"
        if current[change.job_id] != change.after and self._unnumbered.is_left(change.job_id):
            return LEFT
        return ""

    def _write(
        self,
        changes: Sequence[FactorChange],
        unseen: Collection[int] = (),
        writing: Lease | None = None,
    ) -> tuple[dict[int, str], dict[int, int]]:
        """Write, read back, and retry once what was not kept; return problems by job, and what Slurm has now.

        A factor that is neither ours nor the one before us was set by somebody else meanwhile: that job is left. For
        jobs that sprio does not show (`unseen`), it is enough that scontrol accepts the change. Nothing is written
        once the lease `writing`, if given, is over.
        """
        known = {one.job_id: {one.original, *one.ours} for one in self._log.read().entries}
        problems: dict[int, str] = {}
        for start in range(0, len(changes), _LOOKS_EVERY):
            part = changes[start : start + _LOOKS_EVERY]
            goes_on = writing is None or not is_over(writing, now())
            current = self._queue.site_factors() if start and goes_on else {}
            problems |= {one.job_id: _by_others(one, current, known) for one in part}
            problems |= self._write_once([one for one in part if not problems[one.job_id]], writing)
        current = self._queue.site_factors()
        lost = [
            one
            for one in changes
            if not problems[one.job_id]
            and current.get(one.job_id, one.after) != one.after
            and not _by_others(one, current, known)
        ]
        if lost:
            problems |= self._write_once(lost, writing)
            current = self._queue.site_factors()
        for change in changes:
            if not problems[change.job_id]:
                problems[change.job_id] = _by_others(change, current, known) or _left(change, current, unseen)
        return problems, current

    def _write_once(self, changes: Sequence[FactorChange], writing: Lease | None) -> dict[int, str]:
        size = max(1, min(_MOST_AT_ONCE, int(self._terms.writes_per_s / _BATCHES_PER_S)))
        problems: dict[int, str] = {}
        for start in range(0, len(changes), size):
            if writing is not None and is_over(writing, now()):
                return problems | dict.fromkeys((one.job_id for one in changes[start:]), TOO_SLOW)
            batch = changes[start : start + size]
            began = time.monotonic()
            problems |= {one.job_id: one.problem for one in self._queue.set_site_factors(batch)}
            if start + size < len(changes):
                self._sleep(max(0.0, len(batch) / self._terms.writes_per_s - (time.monotonic() - began)))
        return problems


class RecoveryGate:
    """Requeues failed jobs, which no other part of the gate does; each change is logged, with its reason.

    A refusal by Slurm is logged once, and again when it says something else.
    """

    def __init__(self, queue: ScontrolQueue, *, apply: bool) -> None:
        """Without `apply` nothing reaches Slurm."""
        self._queue, self._apply = queue, apply
        self._said = SaidOnceOfEach()

    def failed_jobs(self, *, again: bool) -> dict[int, str]:
        """Return what was seen of each job that failed and, with `again`, of those that wait again."""
        return self._queue.failed_jobs(again=again)

    def failed(self, job_id: int) -> Failed | None:
        """Return one job as slurmctld has it; None if it is gone, or not plain."""
        return self._queue.failed(job_id)

    def failed_of(self, job_ids: Sequence[int]) -> dict[int, Failed | None]:
        """Return these jobs by one call for all; the token of a job counts only if the job `carries` it."""
        return self._queue.failed_of(job_ids)

    def carries(self, job: QueuedJob) -> bool:
        """Whether a job has the token that its record shows, rather than one forged by a user; False if it is gone."""
        return self._queue.carries(job)

    def requeue(self, wanted: Requeue, kept_open: Sequence[int] = (), *, only_hold: bool = False) -> Written:
        """Queue a job again, or do what is left of that; raises SlurmError if slurmctld does not answer.

        With `only_hold`, it is only queued again and held, if that is left to do. Any process that changes it inherits
        the handles of `kept_open`: a lock among them then outlasts this process.
        """
        change = wanted.change
        if self._apply:
            written = self._queue.requeue(wanted, kept_open, only_hold=only_hold)
        else:
            written = Written(job_id=change.job_id, problem=DRY_RUN)
        if self._said.is_new(change.job_id, written.problem):
            log.info("requeue job %d: %s: %s", change.job_id, change.reason, written.problem or "done")
        return written

    def given_up(self) -> list[Dependent]:
        """Return the jobs that wait for one that failed, and that Slurm will no longer start."""
        return self._queue.given_up()

    def depend(self, change: Dependent) -> Written:
        """Set a waiting job's dependency; raises SlurmError if slurmctld does not answer."""
        dry = Written(job_id=change.job_id, problem=DRY_RUN)
        written = self._queue.depend(change) if self._apply else dry
        if self._said.is_new(change.job_id, written.problem):
            log.info("job %d waits for %s: %s", change.job_id, change.dependency, written.problem or "done")
        return written


def open_gateway(config: Config, *, apply: bool) -> Gateway:
    """Return the gate that the configuration asks for; raises SlurmError if its backend cannot be used."""
    wanted = config.advisor
    queue = open_queue(wanted.queue)
    terms = WriteTerms(
        most_factor=wanted.most_factor,
        most_changes=wanted.most_changes,
        writes_per_s=wanted.writes_per_s,
        lease_s=wanted.lease_s,
    )
    return Gateway(queue, Path(wanted.directory), terms, apply=apply, cluster=queue.cluster())


def _array_of(snapshot: Snapshot) -> dict[int, int]:
    """Return the array of each task that has a record of its own."""
    return {job.job_id: job.array_job_id for job in snapshot.jobs if job.array_job_id not in (0, job.job_id)}


def _submitted(snapshot: Snapshot) -> Mapping[int, Submission]:
    """Return when each existing job was submitted."""
    return {job.job_id: Submission(job.submit_s, job.restarts) for job in snapshot.jobs}


def _by_others(change: FactorChange, current: Mapping[int, int], known: Mapping[int, Collection[int]]) -> str:
    """Return that a job has a factor which is none of those `known` of it; '' if it has not, or is not shown."""
    shown = current.get(change.job_id)
    if shown is None or change.job_id not in known or shown in known[change.job_id]:
        return ""
    return f"{BY_OTHERS}, to {shown}"


def _left(change: FactorChange, current: Mapping[int, int], unseen: Collection[int]) -> str:
    if change.job_id not in current:
        return "" if change.job_id in unseen else HIDDEN
    return "" if current[change.job_id] == change.after else "not kept"


def _logged(change: FactorChange, problem: str) -> Written:
    log.info(
        "update JobId=%d SiteFactor=%d (was %d): %s: %s",
        change.job_id, change.after, change.before, change.reason, problem or "done",
    )  # fmt: skip
    return Written(job_id=change.job_id, problem=problem)
