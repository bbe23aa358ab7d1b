"""A queue with state in place of slurmctld: it knows of factors what the real one knows, and refuses the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from accounting.errors import SlurmError
from slurm_plugin.slurm.queue import FactorChange, Relist, Resize, Written
from slurm_plugin.slurm.snapshot import QueuedJob, Snapshot


class FakeQueue:
    """Holds a snapshot; a factor counts in the priority at once, as in Slurm, where a priority is never below 1.

    `failing` makes every question fail; `before_write` is called before each batch of changes.
    """

    name = "fake"

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.own = {job.job_id: job.priority - job.site_factor for job in snapshot.jobs}
        self.failing = ""
        self.before_write: Callable[[], None] = lambda: None
        self.writes: list[FactorChange] = []
        self.resizes: list[Resize] = []
        self.relists: list[Relist] = []

    def cluster(self) -> str:
        return "alpha"

    def read(self) -> Snapshot:
        self._answer()
        return self.snapshot

    def site_factors(self) -> dict[int, int]:
        self._answer()
        shown = (job for job in self.snapshot.jobs if job.waits and not (job.held or job.dependency))
        return {job.job_id: job.site_factor for job in shown}

    def set_site_factors(self, changes: Sequence[FactorChange]) -> list[Written]:
        self.before_write()
        self._answer()
        return [self._set(change) for change in changes]

    def resize(self, change: Resize) -> Written:
        self._answer()
        self.resizes.append(change)
        return Written(job_id=change.job_id)

    def relist(self, change: Relist) -> Written:
        self._answer()
        self.relists.append(change)
        self.change(change.job_id, partitions=change.after)
        return Written(job_id=change.job_id)

    def _set(self, change: FactorChange) -> Written:
        known = {job.job_id for job in self.snapshot.jobs}
        if change.job_id not in known:
            return Written(job_id=change.job_id, problem="gone")
        self.writes.append(change)
        self.change(change.job_id, site_factor=change.after)
        return Written(job_id=change.job_id)

    def change(self, job_id: int, **fields: object) -> None:
        """Change fields of a job."""
        jobs = tuple(self._with(job, fields) if job.job_id == job_id else job for job in self.snapshot.jobs)
        self.snapshot = msgspec.structs.replace(self.snapshot, jobs=jobs)

    def _with(self, job: QueuedJob, fields: dict[str, object]) -> QueuedJob:
        changed = msgspec.structs.replace(job, **fields)
        own = self.own.get(job.job_id, changed.priority)
        return msgspec.structs.replace(changed, priority=max(1, own + changed.site_factor))

    def remove(self, job_id: int) -> None:
        """Remove a job, as if it had ended."""
        jobs = tuple(job for job in self.snapshot.jobs if job.job_id != job_id)
        self.snapshot = msgspec.structs.replace(self.snapshot, jobs=jobs)

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.snapshot = msgspec.structs.replace(self.snapshot, time_s=self.snapshot.time_s + seconds)

    def factors(self) -> dict[int, int]:
        """Return the factors in force that are not 0."""
        return {job.job_id: job.site_factor for job in self.snapshot.jobs if job.site_factor}

    def _answer(self) -> None:
        if self.failing:
            raise SlurmError(f"{self.failing}; check that slurmctld runs")
