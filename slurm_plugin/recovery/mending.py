"""Lets jobs that Slurm gave up wait on for a job that is back. dependents.py decides which dependency is set again."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from slurm_plugin.log_lines import SaidOnceOfEach
from slurm_plugin.recovery.dependents import Named, failed_by, mended, stuck_by
from slurm_plugin.recovery.entries import is_another
from slurm_plugin.recovery.journal import Entry, Journal
from slurm_plugin.recovery.refused import Refused
from slurm_plugin.slurm.array_tasks import tasks_in
from slurm_plugin.slurm.job_lines import ALIVE
from slurm_plugin.slurm.queue import Dependent, Failed, Written

log = logging.getLogger(__name__)

# slurmctld forgets an ended job after MinJobAge, usually five minutes.
LOOKED_BACK_S = 2 * 86_400.0
# States of a job that came back in which jobs that need its success may still wait for it.
_HOPEFUL = ALIVE | {"COMPLETED"}


class Gate(Protocol):
    """What this needs of the one gate (slurm_plugin/slurm/gateway.py)."""

    def failed_of(self, job_ids: Sequence[int]) -> dict[int, Failed | None]:
        """Return jobs as slurmctld has them; None if gone, or odd. A token counts only if `carries` holds."""

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
        self._revived: dict[int, set[Named]] = {}

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
        back = self._all_back(
            {number for job in given_up for number, _ in failed_by(job.dependency, job.tasks)}
        )
        for job in given_up:
            self._tell_stuck(job, stuck_by(job.dependency) & {number for number, _ in back})
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
                self._revived[job.job_id] = _names(job.job_id, job.array_job_id, job.tasks)
                back |= self._revived[job.job_id]
        self._is_due = bool(due)

    def _due(
        self, given_up: list[Dependent], back: Collection[Named], tried: Collection[Dependent]
    ) -> list[tuple[Dependent, str]]:
        """Return the jobs whose turn it is, and what each is to wait for."""
        wanted = {job: anew for job in given_up if (anew := mended(job.dependency, job.tasks, back))}
        return [(job, wanted[job]) for job in self._refused.whose_turn(wanted) if job not in tried]

    def _all_back(self, numbers: set[int]) -> set[Named]:
        """Return what came back of the jobs and arrays with these numbers, by the journal or because of this object."""
        revived = {
            job_id: names
            for job_id, names in self._revived.items()
            if not numbers.isdisjoint(number for number, _ in names)
        }
        known = self._journal.newest(time.time() - LOOKED_BACK_S).values() if numbers else ()
        requeued = [
            entry
            for entry in known
            if entry.what == "requeued" and not numbers.isdisjoint((entry.job_id, entry.array_job_id))
        ]
        job_ids = [*{*revived, *(entry.job_id for entry in requeued)}]
        runs = self._gate.failed_of(job_ids) if job_ids else {}
        return set[Named]().union(
            *(names for job_id, names in revived.items() if _is_hopeful(runs[job_id])),
            *(_back(entry, runs[entry.job_id]) for entry in requeued),
        )

    def _tell_stuck(self, job: Dependent, arrays: set[int]) -> None:
        """Log once that a job waits for all of an array of which a task came back."""
        if arrays and not job.cancelled and self._stuck.is_new(job.job_id, job.dependency):
            log.warning(
                "job %d waits by afterok for all of array %s, which Slurm grants no more since a task failed; when all "
                "have run well, start it by scontrol update JobId=%d Dependency=",
                job.job_id, ", ".join(map(str, sorted(arrays))), job.job_id,
            )  # fmt: skip


def _back(entry: Entry, run: Failed | None) -> set[Named]:
    """Return the names of a run that was requeued and has neither failed nor been forgotten since."""
    if run is None or run.restarts <= entry.restarts or not _is_hopeful(run) or is_another(run, entry):
        return set()
    return _names(run.job.job_id, run.job.array_job_id, run.job.array_tasks)


def _names(job_id: int, array_job_id: int, tasks: str) -> set[Named]:
    """Return how dependencies name a job, and all tasks that it is."""
    return {(job_id, ""), *((array_job_id or job_id, task) for task in tasks_in(tasks))}


def _is_hopeful(run: Failed | None) -> bool:
    return run is not None and run.job.state in _HOPEFUL
