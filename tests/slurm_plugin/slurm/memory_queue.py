"""A queue in memory that behaves like slurmctld where it matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from accounting.errors import SlurmError
from slurm_plugin.slurm.queue import FactorChange, Relist, Resize, Written
from slurm_plugin.slurm.snapshot import QueuedJob, Snapshot
from tests.slurm_plugin.slurm.queued import TERMS, waiting


class Killed(BaseException):
    """The process ends here: no handler of errors may see it."""


@dataclass
class MemoryQueue:
    """SiteFactors by job, as slurmctld keeps them; that of a hidden job is shown to nobody.

    It refuses unknown jobs, and dies or falls silent at the write with a chosen number. `forgotten` says for which jobs
    backfill reverts the next changes, and how many; `refusing` has the words with which some are refused; `array_of`
    has the arrays of tasks with their own records; `submitted` says when jobs were submitted, and how often they were
    requeued.
    """

    factors: dict[int, int]
    hidden: set[int] = field(default_factory=set)
    forgotten: dict[int, int] = field(default_factory=dict)
    refusing: dict[int, str] = field(default_factory=dict)
    die_at: int | None = None
    silent_at: int | None = None
    array_of: dict[int, int] = field(default_factory=dict)
    submitted: dict[int, tuple[float, int]] = field(default_factory=dict)
    partitions: dict[int, tuple[str, ...]] = field(default_factory=dict)
    writes: list[tuple[int, int]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    name: str = "memory"

    def read(self) -> Snapshot:
        """Return all jobs."""
        jobs = tuple(self._job(job) for job in self.factors)
        return Snapshot(time_s=1.0, jobs=jobs, nodes=(), partitions=(), reservations=(), terms=TERMS)

    def _job(self, job: int) -> QueuedJob:
        submit_s, restarts = self.submitted.get(job, (1.0, 0))
        return waiting(
            job,
            site_factor=0 if job in self.hidden else self.factors[job],
            array_job_id=self.array_of.get(job, 0),
            partitions=self.partitions.get(job, ("batch",)),
            submit_s=submit_s,
            restarts=restarts,
        )

    def site_factors(self) -> dict[int, int]:
        """Return the factors that sprio would show."""
        return {job: factor for job, factor in self.factors.items() if job not in self.hidden}

    def set_site_factors(self, changes: Sequence[FactorChange]) -> list[Written]:
        """Change the factors one by one."""
        self.batches.append(len(changes))
        return [self._set(change) for change in changes]

    def resize(self, change: Resize) -> Written:
        """Refuse it, or do nothing."""
        self.writes.append((change.job_id, 0))
        return Written(job_id=change.job_id, problem=self.refusing.get(change.job_id, ""))

    def relist(self, change: Relist) -> Written:
        """Refuse the change, or set the job's other partitions."""
        problem = self.refusing.get(change.job_id, "")
        if not problem:
            self.partitions[change.job_id] = change.after
        if self.die_at == 0:
            raise Killed
        return Written(job_id=change.job_id, problem=problem)

    def _set(self, change: FactorChange) -> Written:
        if self.die_at is not None and len(self.writes) == self.die_at:
            raise Killed
        if self.silent_at is not None and len(self.writes) == self.silent_at:
            raise SlurmError("slurmctld does not answer; check that it runs")
        if change.job_id not in self.factors:
            return Written(job_id=change.job_id, problem="gone")
        self.writes.append((change.job_id, change.after))
        if change.job_id in self.refusing:
            return Written(job_id=change.job_id, problem=self.refusing[change.job_id])
        if self.forgotten.get(change.job_id, 0):
            self.forgotten[change.job_id] -= 1
        else:
            self.factors[change.job_id] = change.after
        return Written(job_id=change.job_id)
