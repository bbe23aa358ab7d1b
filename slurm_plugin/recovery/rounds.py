"""Brings back jobs that failed by us: round after round, or one job. It only decides what to look at, and when.

Rounds and single calls take turns by a lock; what slurmctld holds of a job shows whether anything is left to do.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from accounting.decisions.decision import Decision
from accounting.errors import RightsizerError, SlurmError, StoreError
from accounting.journal.recoveries import Run, What
from accounting.wants import Said
from slurm_plugin.log_lines import SaidOnce
from slurm_plugin.recovery.entries import entry_of, is_another, is_forgotten
from slurm_plugin.recovery.journal import Entry, Journal
from slurm_plugin.recovery.judging import (
    PLAIN,
    Decided,
    Recovery,
    SiteTerms,
    Witness,
    continued,
    judge,
    may_say,
    witness_of,
)
from slurm_plugin.recovery.mending import LOOKED_BACK_S, Mender
from slurm_plugin.recovery.mending import Gate as MendersGate
from slurm_plugin.recovery.refused import Refused, in_turns, shared_round
from slurm_plugin.slurm.job_lines import owner_in, waits_in
from slurm_plugin.slurm.queue import Failed, Requeue, Written
from slurm_plugin.slurm.requeuing import FINAL, GONE, ONLY_HELD
from slurm_plugin.slurm.snapshot import QueuedJob

log = logging.getLogger(__name__)

_PAUSE_S = 0.2
TRIES_AGAIN = "this round failed, the next one tries again"
# slurmctld saves its jobs every five seconds, so one that is killed forgets what was done last. A requeued job is
# looked at once more after this long, however long rounds take. Of those from before this process only the latest
# are: its first round sees which jobs are held.
WRITTEN_DOWN_S, BEFORE_S = 10.0, 60.0
# Slurm makes a job that was requeued wait for two minutes: this often, jobs that others requeued are looked for.
LOOKS_AGAIN_S = 45.0


class Gate(MendersGate, Protocol):
    """What recovery needs of the one gate (slurm_plugin/slurm/gateway.py)."""

    def failed_jobs(self, *, again: bool) -> dict[int, str]:
        """Return what was seen of each job that failed and, with `again`, of those that wait again."""

    def failed(self, job_id: int) -> Failed | None:
        """Return one job as slurmctld has it; None if it is gone, or not plain."""

    def carries(self, job: QueuedJob) -> bool:
        """Whether a job has the token that its record shows, rather than one forged by a user; False if it is gone."""

    def requeue(self, wanted: Requeue, kept_open: Sequence[int] = (), *, only_hold: bool = False) -> Written:
        """Queue it again with other resources, or do what is left of that; with `only_hold`, at most hold it."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result for a job: how it is recovered (None: an earlier recovery was continued), and '' or the problem."""

    job_id: int
    run: Failed
    recovery: Recovery | None
    problem: str = ""


class Recoverer:
    """Looks at each failed job once."""

    def __init__(
        self,
        gate: Gate,
        journal: Journal,
        *,
        apply: bool,
        most: int,
        goes_on: bool = False,
        terms: SiteTerms = PLAIN,
        said_by: Callable[[Failed], Said | None] | None = None,
        decided: Callable[[Mapping[str, float]], Mapping[str, Decision]] | None = None,
    ) -> None:
        """`most` bounds the jobs of a round, and the dependents that it mends. `goes_on`: more rounds follow.

        Without `apply` nothing is written, to Slurm or to the journal. `said_by` reads the output of a job whose
        failure shows no reason; None if output is not to be read. `decided` looks up decisions by id, given the
        submit time of the job of each (0: not known); it raises StoreError if it cannot.
        """
        self._gate, self._journal = gate, journal
        self._apply, self._most, self._terms, self._said_by = apply, most, terms, said_by
        self._decided, self._goes_on = decided, goes_on
        # Whether more jobs have failed than the latest round took.
        self.is_behind = False
        self._left: dict[int, str] = {}
        self._refused, self._mender = Refused[int](), Mender(gate, journal, most)
        self._is_first, self._looked_again_s = True, -math.inf
        self._kept, self._since_s = set[Run](), time.time() - BEFORE_S
        self._lock: tuple[int, ...] = ()
        self._failures = SaidOnce()

    def round(self) -> list[Outcome]:
        """Recover what failed since the last round; raises SlurmError if slurmctld does not answer.

        The first round, and the one after slurmctld was silent, also look for recoveries that were begun and
        forgotten: jobs that were requeued and are still held. Now and then a round looks for jobs that were killed
        for memory and requeued by others. What slurmctld refuses is tried again ever more rarely, and takes at most
        half of a round if others wait.

        If more jobs have failed than a round takes, they are only held: that takes a quarter of the time, and
        slurmctld forgets no job that waits. Rounds that follow do the rest.
        """
        try:
            return self._round()
        except SlurmError:
            self._is_first = True
            raise

    def _round(self) -> list[Outcome]:
        self._refused.begin_round()
        self._mender.begin_round()
        with self._alone():
            waiting_too = self._is_first or time.monotonic() - self._looked_again_s >= LOOKS_AGAIN_S
            seen = self._gate.failed_jobs(again=waiting_too)
            if waiting_too:
                self._looked_again_s = time.monotonic()
            known = self._journal.newest(time.time() - LOOKED_BACK_S)
            self._left = {
                job: what
                for job, what in self._left.items()
                if (seen.get(job) == what if waiting_too or job in seen else waits_in(what))
            }
            begun = dict.fromkeys(entry.job_id for entry in known.values() if entry.what == "begun")
            fresh = [job for job in seen if job not in self._left and job not in begun]
            # Thousands of one user's tasks may fail at once: slurmctld would forget the others meanwhile.
            fresh = in_turns(fresh, lambda job: (waits_in(seen[job]), owner_in(seen[job])))
            # Failed jobs may be forgotten any moment; a waiting one may only have been told to begin later.
            fresh.sort(key=lambda job: waits_in(seen[job]))
            turn = self._refused.whose_turn(begun)
            self.is_behind = self._goes_on and sum(not waits_in(seen[job]) for job in fresh) > self._most
            if self.is_behind:
                turn = [job for job in turn if job in seen and not waits_in(seen[job])]
            new, again = shared_round(fresh, turn, self._most)
            doubtful = [job for job in self._doubtful(known) if job not in new and job not in begun]
            found = list(self._outcomes([*new, *again, *doubtful], known, seen))
            self._mender.mend()
        self._is_first = self._is_first and len(fresh) > len(new)
        if self._apply:
            self._journal.note_round()
        return found

    def one(self, job_id: int, patience_s: float) -> list[Outcome]:
        """Recover one job, once it has ended; nothing if it is none of ours."""
        until_s = time.monotonic() + patience_s
        while self._is_ending(job_id) and time.monotonic() < until_s:
            time.sleep(_PAUSE_S)
        with self._alone():
            found = list(self._outcomes([job_id], self._journal.newest(time.time() - LOOKED_BACK_S)))
            if found:
                self._mender.mend()
            return found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the only process that recovers; a dry run may always watch."""
        if not self._apply:
            yield
            return
        with self._journal.alone() as lock:
            self._lock = (lock,)
            yield

    def _doubtful(self, known: Mapping[Run, Entry]) -> list[int]:
        """Return the jobs that were requeued so long ago that slurmctld has saved them, each once."""
        now_s = time.time()
        self._kept &= known.keys()
        due = {
            run: entry.job_id
            for run, entry in known.items()
            if entry.what == "requeued"
            and run not in self._kept
            and self._since_s <= entry.time_s <= now_s - WRITTEN_DOWN_S
        }
        self._kept |= due.keys()
        return list(dict.fromkeys(due.values()))

    def _is_ending(self, job_id: int) -> bool:
        run = self._gate.failed(job_id)
        return run is not None and run.job.ending

    def _outcomes(
        self, jobs: list[int], known: dict[Run, Entry], seen: Mapping[int, str] | None = None
    ) -> Iterator[Outcome]:
        """Look at jobs one by one; what was `seen` of a job is kept, and the job is not looked at again."""
        runs = self._gate.failed_of(jobs)
        begun: dict[int, Entry] = {}
        for entry in known.values():
            run = runs.get(entry.job_id)
            if entry.what == "begun" and is_another(run, entry):
                self._note(entry, "lost", GONE)
            elif entry.what == "begun" or is_forgotten(run, entry):
                begun[entry.job_id] = entry
        # All are judged before any is acted on, so that the journal of decisions is read once for them. Nothing is to
        # be done about most failed jobs, so the call that shows whether a token can be believed comes last.
        judged = {
            job_id: (run, found)
            for job_id, run in runs.items()
            if run is not None
            and job_id not in begun
            and (found := self._judged(run)) is not None
            and self._gate.carries(run.job)
        }
        decided = self._decisions(judged.values())
        for job_id in jobs:
            outcome = None
            if job_id in begun:
                outcome = self._continue(runs[job_id], begun[job_id])
            elif job_id in judged:
                outcome = self._act(*judged[job_id], known, decided)
            if seen and job_id in seen:
                self._left[job_id] = seen[job_id]
            if outcome is not None:
                # Remembered at once: a later job may end the round.
                if not outcome.problem:
                    self._mender.note_back()
                yield outcome

    def _continue(self, run: Failed | None, entry: Entry) -> Outcome | None:
        """Continue what another process began; a job that is gone is no longer begun."""
        if run is None or entry.requeue is None:
            self._note(entry, "lost", GONE)
            return None
        written = self._requeue(entry.requeue)
        self._conclude(entry, written)
        return Outcome(job_id=entry.job_id, run=run, recovery=None, problem=written.problem)

    def _judged(self, run: Failed) -> Requeue | Recovery | None:
        """Return what is left to do for a job that was begun, or how it is recovered; None if it is left alone."""
        left = continued(run, self._terms)
        if left is not None:
            return left
        recovery = judge(run, self._terms)
        if may_say(run, recovery):
            recovery = judge(run, self._terms, self._said(run))
        if isinstance(recovery, str):
            log.debug("job %d is left: %s", run.job.job_id, recovery)
            return None
        return recovery

    def _act(
        self, run: Failed, judged: Requeue | Recovery, known: dict[Run, Entry], decided: Decided
    ) -> Outcome | None:
        if isinstance(judged, Requeue):
            problem = self._requeue(judged).problem
            return Outcome(job_id=run.job.job_id, run=run, recovery=None, problem=problem)
        return self._recover(run, judged, known, witness_of(judged, run.job, decided))

    def _recover(
        self, run: Failed, recovery: Recovery, known: dict[Run, Entry], witness: Witness
    ) -> Outcome | None:
        job = run.job
        if witness == "against":
            log.warning(
                "job %d of %s is left: its token is not that of decision %s; look into the journal, and at who wrote "
                "its AdminComment", job.job_id, job.user, recovery.decision_id,
            )  # fmt: skip
            return None
        entry = entry_of(run, recovery, time.time())
        if witness == "none":
            log.warning(
                "no hours are counted of job %d: decision %s is in no journal",
                job.job_id,
                recovery.decision_id,
            )
            entry = msgspec.structs.replace(entry, cpu_hours=0.0, mem_gib_hours=0.0)
        if recovery.requeue is None:
            if entry.run not in known:
                self._note(entry, "lost", recovery.lost)
                log.warning("job %d of %s failed by us and is lost: %s", job.job_id, job.user, recovery.lost)
            return Outcome(job_id=job.job_id, run=run, recovery=recovery, problem=recovery.lost)
        self._note(entry, "begun")
        written = self._requeue(recovery.requeue)
        self._conclude(entry, written)
        return Outcome(job_id=job.job_id, run=run, recovery=recovery, problem=written.problem)

    def _requeue(self, wanted: Requeue) -> Written:
        return self._gate.requeue(wanted, self._lock, only_hold=self.is_behind)

    def _decisions(self, judged: Iterable[tuple[Failed, Requeue | Recovery]]) -> Decided:
        """Return what the journal of decisions has on the jobs to be recovered; None if it is not asked."""
        recovered = [(run, found.decision_id) for run, found in judged if isinstance(found, Recovery)]
        if self._decided is None or not recovered:
            return None
        submit_s: dict[str, float] = {}
        for run, decision_id in recovered:
            # A job that was requeued, after a node failure or a preemption, has the time of that as its submit time.
            came_s = 0.0 if run.restarts else run.job.submit_s
            # The tasks of an array have one decision.
            submit_s[decision_id] = min(came_s, submit_s.get(decision_id, came_s))
        try:
            decided = self._decided(submit_s)
        except StoreError as error:
            if self._failures.is_new(str(error)):
                log.warning("what was decided about jobs that come back is not known: %s", error)
            return {}
        self._failures.over()
        return decided

    def _said(self, run: Failed) -> Said | None:
        """Return what a job's output says. Whatever its user put there, the other jobs get their turn."""
        try:
            return self._said_by(run) if self._said_by else None
        except (OSError, ValueError) as error:
            log.warning(
                "the output of job %d cannot be looked at, and says nothing: %s", run.job.job_id, error
            )
            return None

    def _conclude(self, entry: Entry, written: Written) -> None:
        if written.problem == ONLY_HELD:
            return
        if written.problem and written.problem not in FINAL:
            self._refused.note(entry.job_id)
            if time.time() - entry.time_s > LOOKED_BACK_S / 2:
                # Rounds look no further back, and the job would stay held for good.
                self._note(entry, "begun")
            return
        self._note(entry, "lost" if written.problem else "requeued", written.problem)

    def _note(self, entry: Entry, what: What, why: str = "") -> None:
        if self._apply:
            done = msgspec.structs.replace(entry, what=what, why=why or entry.why, time_s=time.time())
            self._journal.append(done)


def watch(recoverer: Recoverer, period_s: float, stop: threading.Event) -> None:
    """Run rounds until `stop` is set; a failing one is logged once, and the next one tries again.

    If more jobs have failed than a round takes, the next one follows at once.
    """
    failures = SaidOnce()
    while not stop.is_set():
        pause_s = period_s
        try:
            recoverer.round()
            failures.over()
            pause_s = 0.0 if recoverer.is_behind else period_s
        except Exception as error:  # the loop must go on, whatever happens in a round
            if failures.is_new(repr(error)):
                log.error("%s: %s", TRIES_AGAIN, error, exc_info=not isinstance(error, RightsizerError))  # noqa: TRY400
        stop.wait(pause_s)
