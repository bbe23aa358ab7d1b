"""Accounting rows as this project keeps them: attempts at running a job."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from accounting.states import Outcome

# How far a figure can be trusted:
#   exact         counted by the kernel over the whole run
#   sampled       the highest of samples: a shorter peak may have been missed
#   short         the run was too short to be sampled: no figure, or one that is a lower bound
#   censored      cut off at a limit, or only partly counted: a lower bound
#   contaminated  near the limit, where this release and plugin count the page cache: an upper bound
#   absent        not recorded
Quality = Literal["exact", "sampled", "short", "censored", "contaminated", "absent"]


# Cluster, job id, submit time and start time (unix seconds); also the key of the store's table.
Key = tuple[str, int, int, int]


class Meter(NamedTuple):
    """What measured a stored attempt: Slurm's release and plugins; `is_known` is false if that was a guess."""

    slurm_release: str
    gather: str
    is_known: bool


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """sacct's own row of an attempt, before anything is concluded from it.

    `start_s` is 0 if it never started. `req_*` is ReqTRES, which shows the request after our own rewrite;
    `alloc_*` is AllocTRES. Both are totals of the job; memory is in MiB.
    """

    cluster: str
    job_id: int
    display_id: str
    user: str
    account: str
    partition: str
    qos: str
    job_name: str
    comment: str
    admin_comment: str
    state: str
    submit_s: int
    start_s: int
    end_s: int
    elapsed_s: int
    limit_s: int | None
    nodes: int
    req_cpus: int | None
    req_mem_mib: int | None
    req_gpus: int | None
    alloc_cpus: int | None
    alloc_mem_mib: int | None
    alloc_gpus: int | None

    @property
    def key(self) -> Key:
        """What identifies this attempt among all others."""
        return self.cluster, self.job_id, self.submit_s, self.start_s


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt really used, and how far each figure can be trusted; None means not known.

    `peak_mem_mib` is the peak of the whole job in MiB, `peak_node_mib` the most that any one of its nodes can
    have held. `cores` is the mean number of busy cores during the run, `cores_per_task` the same for its
    busiest task. `gpus` is how many GPUs were ever busy, over all nodes; `gpu_mem_mib` the most used on any one
    of them. `read_mib` and `written_mib` are over all tasks, `energy_j` over all nodes. `step_cpus` and
    `step_mem_mib` are the most held at one time by steps that asked for a part of the job; None if no step did.
    """

    outcome: Outcome
    peak_mem_mib: float | None
    memory_quality: Quality
    cores: float | None
    cores_per_task: float | None
    wall_s: int
    peak_node_mib: float | None = None
    cores_quality: Quality = "absent"
    wall_quality: Quality = "exact"
    gpus: int | None = None
    gpu_mem_mib: float | None = None
    gpu_quality: Quality = "absent"
    gpu_source: str = ""
    read_mib: float | None = None
    written_mib: float | None = None
    io_quality: Quality = "absent"
    energy_j: float | None = None
    energy_quality: Quality = "absent"
    step_cpus: int | None = None
    step_mem_mib: int | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at running a job: sacct's row, the original request if our token records it, and its use.

    `asked_*` are totals of the job as its user asked for them, before any rewrite of ours. `input_mib` is the size of
    the files that its script named, if the service looked at them (None means not known). `slurm_release` (`24.11`) and
    `gather` (`jobacct_gather/cgroup cgroup/v2`) say what measured; '' if not recorded.
    """

    row: JobRow
    num_tasks: int
    asked_cpus: int | None
    asked_mem_mib: int | None
    asked_gpus: int | None
    decision_id: str
    script_signature: str
    use: Use
    slurm_release: str = ""
    gather: str = ""
    input_mib: float | None = None

    @property
    def ran(self) -> bool:
        """Whether it ever ran. Slurm shows a job cancelled while pending as started and ended at that moment."""
        return self.row.start_s > 0 and self.use.wall_quality != "absent"


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU did for one job on one node, over all samples of one source.

    `instance` is the MIG instance, -1 for the whole GPU. NVML does not know an instance's utilisation: None.
    Power is that of the whole GPU, in watts; None if the GPU is shared or not metered. `cluster` is the job's,
    '' if not recorded.
    """

    job_id: int
    node: str
    gpu: int
    source: str
    samples: int
    first_s: int
    last_s: int
    util_max_pct: float | None
    util_mean_pct: float | None
    mem_max_mib: float
    instance: int = -1
    power_mean_w: float | None = None
    cluster: str = ""

    def may_be_of(self, cluster: str) -> bool:
        """Whether its job may be on this cluster: job numbers repeat between clusters."""
        return self.cluster in ("", cluster)


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """Input that was rejected (a line, or a job's lines), why, and where it came from.

    `path` is the file's full path if `source` is only its name, which other files may share.
    """

    line: str
    reason: str
    source: str = ""
    path: str = ""
