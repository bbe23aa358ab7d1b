"""The queue, with the jobs read by pyslurm (25.11): no text stands between slurmctld's record and ours.

It is imported only if pyslurm is there (backends.py). Everything else is done by the reference backend: pyslurm has
no priority factors to read, never sends a SiteFactor of 0 (`if self.site_factor:`), and a write takes longer than a
line to scontrol. A text that is not UTF-8 raises an error when it is read.
"""

from __future__ import annotations

import os

import pyslurm

from accounting.errors import SlurmError
from slurm_plugin.slurm.job_lines import ALIVE, HELD
from slurm_plugin.slurm.pyslurm_job import Loaded, job_of
from slurm_plugin.slurm.scontrol_queue import VARIABLES, ScontrolQueue
from slurm_plugin.slurm.snapshot import QueuedJob
from slurm_plugin.slurm.targets import target_of


class PyslurmQueue(ScontrolQueue):
    """pyslurm for the jobs, Slurm's commands for the rest."""

    name = "pyslurm"

    def _jobs(self) -> list[QueuedJob]:
        # libslurm reads this when it writes out an array's tasks.
        os.environ["SLURM_BITSTR_LEN"] = VARIABLES["SLURM_BITSTR_LEN"]
        try:
            loaded = pyslurm.Jobs.load()
        except pyslurm.RPCError as error:
            raise SlurmError(f"slurmctld does not answer pyslurm ({error}); check that it runs") from None
        found = [self._job(job) for job in loaded.values() if job.state in ALIVE or job.state in HELD]
        jobs = [job for job in found if job is not None]
        self._targets = {job.job_id: target_of(job) for job in jobs}
        return jobs

    def _job(self, job: Loaded) -> QueuedJob | None:
        try:
            return job_of(job)
        except UnicodeDecodeError:
            return self._apart(job.id, job.user_id)
