"""Lets jobs that Slurm gave up wait on for a job that is back. dependents.py decides which dependency is set again."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Protocol

import msgspec

from slurm_plugin.log_lines import SaidOnceOfEach
from slurm_plugin.recovery.dependents import failed_by, mended, stuck_by
from slurm_plugin.recovery.entries import is_another
from slurm_plugin.recovery.journal import Entry, Journal
from slurm_plugin.recovery.refused import Refused
from slurm_plugin.slurm.job_lines import ALIVE
from slurm_plugin.slurm.queue import Dependent, Failed, Written

log = logging.getLogger(__name__)

# slurmctld forgets an ended job after MinJobAge, usually five minutes.
LOOKED_BACK_S = 2 * 86_400.0
# States of a job that came back in which jobs that need its success may still wait for it.
_HOPEFUL = ALIVE | {"COMPLETED"}


class Gate(Protocol):
    """What this needs of the one gate (slurm_plugin/slurm/gateway.py)."""

    def failed(self, job_id: int) -> Failed | None:
        """Return one job as slurmctld has it; None if it is gone, or not plain."""

    def given_up(self) -> list[Dependent]:
        """Return the jobs that waited for one that failed, and that Slurm will no longer start, or has cancelled."""

    def depend(self, change: Dependent) -> Written:
        """Set a job's dependency; one that was cancelled waits again."""


class Mender:
    """Mends each dependency once."""

    def __init__(self, gate: Gate, journal: Journal, most: int) -> None:
        """`most` bounds the dependents of a round."""
        self._gate, self._journal, self._most = gate, journal, most
        self._refused, self._stuck = Refused[Dependent](), SaidOnceOfEach()
        self._is_due = True
        # Jobs that Slurm had cancelled, and that wait again: others may have been cancelled because of them.
        self._revived = set[int]()

    def begin_round(self) -> None:
        """Count a round."""
        self._refused.begin_round()

    def note_back(self) -> None:
        """Remember that a job came back."""
        self._is_due = True

    def mend(self) -> None:
        """Let jobs wait on that Slurm gave up for a job that is back, as their users had set it.

        They are looked for at first, and after each job that came back; those beyond a round's bound are left to the
        next one.
        """
        if not self._is_due:
            return
        given_up = self._gate.given_up()
        back = self._all_back(set[int]().union(*(failed_by(job.dependency) for job in given_up)))
        for job in given_up:
            self._tell_stuck(job, stuck_by(job.dependency) & back)
        tried = set[Dependent]()
        while due := self._due(given_up, back, tried):
            if len(tried) == self._most:
                break
            # One after the other: a job that waits again may itself be waited for.
            job, dependency = due[0]
            tried.add(job)
            if self._gate.depend(msgspec.structs.replace(job, dependency=dependency)).problem:
                self._refused.note(job)
            elif job.cancelled:
                numbers = {job.job_id, job.array_job_id or job.job_id}
                self._revived |= numbers
                back |= numbers
        self._is_due = bool(due)

    def _due(
        self, given_up: list[Dependent], back: Collection[int], tried: Collection[Dependent]
    ) -> list[tuple[Dependent, str]]:
        """Return the jobs whose turn it is, and what each is to wait for."""
        wanted = {job: anew for job in given_up if (anew := mended(job.dependency, back))}
        return [(job, wanted[job]) for job in self._refused.whose_turn(wanted) if job not in tried]

    def _all_back(self, named: Collection[int]) -> set[int]:
        """Return those of the jobs and arrays that came back, according to the journal or because of this object."""
        known = self._journal.newest(time.time() - LOOKED_BACK_S).values() if named else ()
        back = {job for job in self._revived.intersection(named) if _is_hopeful(self._gate.failed(job))}
        for entry in known:
            back |= self._back(entry, {*named} - back)
        return back

    def _back(self, entry: Entry, named: set[int]) -> set[int]:
        """Return the numbers of a run that was requeued and has neither failed nor been forgotten since."""
        numbers = {entry.job_id, entry.array_job_id} & named
        run = self._gate.failed(entry.job_id) if numbers and entry.what == "requeued" else None
        back = run and run.restarts > entry.restarts and _is_hopeful(run)
        return numbers if back and not is_another(run, entry) else set()

    def _tell_stuck(self, job: Dependent, arrays: set[int]) -> None:
        """Log once that a job waits for all of an array of which a task came back."""
        if arrays and not job.cancelled and self._stuck.is_new(job.job_id, job.dependency):
            log.warning(
                "job %d waits by afterok for all of array %s, which Slurm grants no more since a task failed; when all "
                "have run well, start it by scontrol update JobId=%d Dependency=",
                job.job_id, ", ".join(map(str, sorted(arrays))), job.job_id,
            )  # fmt: skip


def _is_hopeful(run: Failed | None) -> bool:
    return run is not None and run.job.state in _HOPEFUL
