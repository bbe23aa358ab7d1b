"""What may be changed in the queue, and the result: the types that both backends and the gate share. Pure.

scontrol_queue.py is the reference backend, pyslurm_queue.py the fast one; gateway.py is the one gate for changes.
What is read of a cluster is in snapshot.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from slurm_plugin.slurm.snapshot import QueuedJob, Snapshot


class FactorChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job's SiteFactor, as it is and as it is to be, and why."""

    job_id: int
    before: int
    after: int
    reason: str


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """What one pending record is to get, in the kind of request that its user used; None stays. `uid` is its owner's.

    `admin_comment` is the whole new comment, in place of `before`: if the job has another comment by then, nothing is
    changed. Nor is it if its user has changed what the job asks for, or the user's comment, since the record `seen`.
    CPUs are changed together with everything in the job that repeats them.
    """

    job_id: int
    uid: int
    num_tasks: int
    reason: str
    cpus_per_task: int | None = None
    mem_per_node_mib: int | None = None
    mem_per_cpu_mib: int | None = None
    admin_comment: str | None = None
    before: str | None = None
    seen: QueuedJob | None = None


class Relist(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions that one pending record lists, and is to list, and why. `uid` is its owner's.

    `added` is appended to the others; if it is '', one partition is taken out.
    """

    job_id: int
    uid: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    reason: str
    added: str = ""


class GiveBack(Resize, frozen=True, kw_only=True):
    """What a record that failed is to get when it is requeued: its GPUs can be changed too (gpu_fields.py)."""

    gpus_per_node: int | None = None
    gpus_per_job: int | None = None
    gpus_per_task: int | None = None
    mem_per_gpu_mib: int | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A record with what slurmctld still knows of its last run.

    `exit_codes` are its own, and the highest of its steps'; `requeues` says whether its user allows requeueing.
    `outputs` are the paths of its output, errors first, as its user named them. `gpu_fields` is how it asks for GPUs,
    in slurmctld's words. `steps_elsewhere` says that slurmctld knows none of its steps (enable_stepmgr, from 24.05):
    only accounting knows how they ended. `stopped` says that its user meant the steps to be killed that were.
    `busy_share` is the mean share of its CPUs that was busy; None if that was not asked for, or is not known.
    """

    job: QueuedJob
    requeues: bool
    exit_codes: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    gpu_fields: Mapping[str, str] = {}
    steps_elsewhere: bool = False
    stopped: bool = False
    busy_share: float | None = None

    @property
    def restarts(self) -> int:
        """How often it was requeued."""
        return self.job.restarts

    @property
    def waits_again(self) -> bool:
        """Whether it was requeued and waits for its turn, without being held."""
        return self.job.waits and self.job.restarts > 0 and not self.job.held

    @property
    def failed_at(self) -> int:
        """How often it had been requeued when its last run began."""
        return self.job.restarts - 1 if self.job.waits else self.job.restarts


class Requeue(msgspec.Struct, frozen=True, kw_only=True):
    """What a failed record is to ask for when it is requeued; `restarts` is how often it had been requeued before.

    Its admin comment is `before`, until that of `change` distinguishes it from a job that was requeued by anything
    else. A SiteFactor other than 0 is written together with that. `by_others` says that it waits already, requeued by
    others.
    """

    change: GiveBack
    before: str
    restarts: int
    site_factor: int = 0
    by_others: bool = False


class Dependent(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits for others, as squeue prints it, and its owner; Slurm may have `cancelled` it because of them.

    `array_job_id` is the array of which it is a task, 0 if it has the array's own number or is none; `tasks` are the
    tasks of an array that it is, '' for none.
    """

    job_id: int
    uid: int
    dependency: str
    array_job_id: int = 0
    tasks: str = ""
    cancelled: bool = False


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a change: '' if slurmctld has it now, else why not (`gone`, `started`, `not kept`, …)."""

    job_id: int
    problem: str = ""


class Queue(Protocol):
    """A way to read from and write to slurmctld; raises SlurmError if it does not answer."""

    name: str

    def read(self) -> Snapshot:
        """Return the cluster as it is now."""

    def site_factors(self) -> dict[int, int]:
        """Return the SiteFactor of each job that waits, as Slurm has it now."""

    def set_site_factors(self, changes: Sequence[FactorChange]) -> list[Written]:
        """Set them, in this order; a problem with one does not stop the others."""

    def resize(self, change: Resize) -> Written:
        """Change what a pending job asks for; all of it or nothing."""

    def relist(self, change: Relist) -> Written:
        """Change which partitions a pending job lists, in its user's name."""
