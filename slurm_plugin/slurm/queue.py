"""What may be changed in the queue, and what became of it: the words that both backends and the gate share. Pure.

scontrol_queue.py is the reference backend, pyslurm_queue.py the fast one; gateway.py is the one gate for changes. What
is read of a cluster stands in snapshot.py.
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
    """What one pending record is to get, in the kind that its user asked; None stays. `uid` is its owner's.

    `admin_comment` is the whole new comment, in place of `before`: where that does not stand there any more, nothing
    is changed. CPUs are changed together with everything of the job that repeats them.
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


class Relist(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions that one pending record lists, and is to list, and why. `uid` is its owner's.

    One is `added` behind the others, or, where that is '', one is taken out.
    """

    job_id: int
    uid: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    reason: str
    added: str = ""


class GiveBack(Resize, frozen=True, kw_only=True):
    """What a record is to get that failed and is queued again: its GPUs can be changed too (gpu_fields.py)."""

    gpus_per_node: int | None = None
    gpus_per_job: int | None = None
    gpus_per_task: int | None = None
    mem_per_gpu_mib: int | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A record with what slurmctld still knows of its last run.

    `exit_codes` are its own, and the highest of its steps'; `requeues` says whether its user lets it be queued again.
    `outputs` are the paths of what it wrote, errors first, as its user named them.
    `gpu_fields` is how it asks for GPUs, in slurmctld's words. `steps_elsewhere` says that slurmctld knows none of its
    steps (enable_stepmgr, from 24.05 on): accounting alone tells how they ended. `busy_share` is the share of its CPUs
    it kept busy, in the mean; None where that was not asked, or is not known.
    """

    job: QueuedJob
    requeues: bool
    exit_codes: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    gpu_fields: Mapping[str, str] = {}
    steps_elsewhere: bool = False
    busy_share: float | None = None

    @property
    def restarts(self) -> int:
        """How often it was queued again."""
        return self.job.restarts

    @property
    def waits_again(self) -> bool:
        """Whether it was queued again, and waits for its turn; nobody holds it."""
        return self.job.waits and self.job.restarts > 0 and not self.job.held

    @property
    def failed_at(self) -> int:
        """How often it had been queued again when its last run began."""
        return self.job.restarts - 1 if self.job.waits else self.job.restarts


class Requeue(msgspec.Struct, frozen=True, kw_only=True):
    """What a record that failed is to ask when it is queued again; `restarts` is how often it had been before.

    Its admin comment is `before`, until that of `change` tells it from one that was queued again by anybody else. A
    SiteFactor is written with that, where it is not 0. `by_others` says that it waits already, queued again by others.
    """

    change: GiveBack
    before: str
    restarts: int
    site_factor: int = 0
    by_others: bool = False


class Dependent(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits for others, as squeue prints it, and whose it is; Slurm may have `cancelled` it for them.

    `array_job_id` is the array of which it is a task, 0 where it is none.
    """

    job_id: int
    uid: int
    dependency: str
    array_job_id: int = 0
    cancelled: bool = False


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a change: '' where slurmctld has it now, else why not (`gone`, `started`, `not kept`, …)."""

    job_id: int
    problem: str = ""


class Queue(Protocol):
    """A way to ask slurmctld and to tell it; SlurmError where it does not answer."""

    name: str

    def read(self) -> Snapshot:
        """Return the cluster as it is now."""

    def site_factors(self) -> dict[int, int]:
        """Return the SiteFactor of each job that waits, as Slurm has it now."""

    def set_site_factors(self, changes: Sequence[FactorChange]) -> list[Written]:
        """Set them, in this order; what is wrong with one keeps none of the others."""

    def resize(self, change: Resize) -> Written:
        """Change what a pending job asks for; all of it or nothing."""

    def relist(self, change: Relist) -> Written:
        """Change which partitions a pending job lists, in its user's name."""
