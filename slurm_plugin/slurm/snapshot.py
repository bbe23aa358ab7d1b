"""The cluster as Slurm has it at one moment: jobs, nodes, partitions, QOS, accounts, and how it schedules. Pure.

Both backends read it (scontrol_queue.py, pyslurm_queue.py); what may be changed in it is in queue.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from slurm_plugin.policy.facts import MemoryTerms

# The PreemptType under which each QOS says whose jobs its own preempt.
BY_QOS = "preempt/qos"
# How long a requeued job waits for its credential to expire, if AuthInfo does not say (seconds).
AGAIN_S = 120.0
# How long slurmctld knows of a job that has ended if MinJobAge is the default of 300 s: it looks once a minute, and
# what it clears takes time. Whatever MinJobAge is, we remember such a job for no longer than a day (seconds).
LATE_TO_FORGET_S, MOST_REMEMBERED_S = 120.0, 86_400.0
FORGETS_S = 300.0 + LATE_TO_FORGET_S
# The PriorityType that has SiteFactors.
MULTIFACTOR = "priority/multifactor"


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record of slurmctld's that waits or runs. Times are unix seconds (0: not known), memory is MiB.

    The waiting part of an array is one record: `array_tasks` as Slurm writes them (`9-200%5`), `tasks` their number,
    and `job_id` what `scontrol update JobId=` takes. A running task, and each component of a het job, is a record of
    its own. A job that was requeued, `restarts` times, has the moment of that as `submit_s`.

    CPUs, memory, GPUs and `billing` are those of one task of an array. `gpu_types` says how many of its `gpus` are of
    each type that it names, or that Slurm reports for it. `min_cpus` is what a waiting job asks for in all, else 0:
    its user may set it apart from its tasks' CPUs. `tres_per_task` is what slurmctld says of each task in its own
    words (`cpu=2,gres/gpu=1`), including CPUs from 23.11; only scontrol shows it, and how many CPUs and MiB come with
    each GPU (0: it does not say). A waiting job's `cpus` lack the former.

    `accrues_s` is when a job's age in its priority began (0: not yet, or only pyslurm was asked): not always when it
    became eligible (MaxJobsAccruePU, ACCRUE_ALWAYS). `start_s` of a waiting job is Slurm's estimate. `fixed` says that
    its priority was set directly, so that no factor counts; `nice` is what its user subtracts from it. `fair_share` is
    the factor of 0 to 1, None if it does not count. A job must have ended by `deadline_s`: Slurm gives it up if it
    waits so long that `least_limit_s` (None: its limit) would end later.

    `stopped_s` is when it was last suspended or resumed (0: never); until then it had run for `ran_before_s`.
    `requeues`: its user allows it to be requeued once it has run (`--no-requeue` does not). `has_siblings`: other
    clusters of its federation may run it, and get all that is changed of it here. `other` names constraints of
    placement that the fields here do not express.
    """

    job_id: int
    user: str
    uid: int
    account: str
    partitions: tuple[str, ...]
    qos: str
    name: str
    state: str
    reason: str
    submit_s: float
    eligible_s: float
    start_s: float
    end_s: float
    limit_s: int | None
    priority: int
    site_factor: int
    cpus: int
    mem_mib: int
    gpus: int
    billing: int = 0
    gpu_types: tuple[tuple[str, int], ...] = ()
    array_job_id: int = 0
    array_tasks: str = ""
    tasks: int = 1
    het_job_id: int = 0
    held: bool = False
    fixed: bool = False
    nice: int = 0
    fair_share: float | None = None
    deadline_s: float = 0.0
    least_limit_s: int | None = None
    dependency: str = ""
    reservation: str = ""
    num_tasks: int = 1
    cpus_per_task: int = 1
    tres_per_task: str = ""
    mem_per_node_mib: int | None = None
    mem_per_cpu_mib: int | None = None
    cpus_per_gpu: int = 0
    mem_per_gpu_mib: int = 0
    num_nodes: int = 1
    min_cpus_per_node: int = 1
    min_cpus: int = 0
    nodes: tuple[str, ...] = ()
    exclusive: bool = False
    batch: bool = True
    requeues: bool = True
    has_siblings: bool = False
    other: tuple[str, ...] = ()
    accrues_s: float = 0.0
    comment: str = ""
    admin_comment: str = ""
    restarts: int = 0
    stopped_s: float = 0.0
    ran_before_s: float = 0.0

    @property
    def waits(self) -> bool:
        """Whether it has not started yet."""
        return self.state == "PENDING"

    @property
    def configuring(self) -> bool:
        """Whether it has its nodes but does not run yet: they are powered up or booted, or a prolog prepares them.

        slurmctld counts its limit only from then on, from 0; if nodes were powered up, it also sets `start_s` again.
        """
        return self.state == "CONFIGURING"

    @property
    def ending(self) -> bool:
        """Whether it has ended, and may have been requeued: its nodes only wait for an epilog, or do not answer."""
        return self.state == "COMPLETING"

    @property
    def suspended(self) -> bool:
        """Whether it has its nodes but is stopped: an administrator, or jobs that come first, suspended it."""
        return self.state == "SUSPENDED"

    def ran_s(self, until_s: float) -> float:
        """Return how long it has run until a moment, as Slurm counts it: without the time that it was suspended."""
        if self.configuring:
            return 0.0
        if self.suspended:
            return self.ran_before_s
        if self.stopped_s:
            return self.ran_before_s + max(0.0, until_s - self.stopped_s)
        return max(0.0, until_s - self.start_s) if self.start_s else 0.0


class NodeState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node: what it has for jobs in all, and whether it accepts any now; CPUs are hardware threads, or cores only.

    `gpu_types` says how many of its GPUs are of which type, in its own order; the others have none. `features` are
    those that it has or, booted again, could have. A node that is `asleep` accepts jobs too, but is first powered up
    for them, which takes time. `held` is what jobs hold of it by Slurm's own count: CPUs, MiB and GPUs; None if Slurm
    does not count all of its GPUs.
    """

    name: str
    cpus: int
    mem_mib: int
    gpus: int
    partitions: tuple[str, ...]
    gpu_types: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()
    away: bool = False
    asleep: bool = False
    cpus_per_core: int = 1
    cpus_per_socket: int = 1
    held: tuple[int, int, int] | None = None


class PartitionState(msgspec.Struct, frozen=True, kw_only=True):
    """A partition; Slurm looks at those of a higher tier first. It starts no job with a limit above `longest_s`.

    `whole_sockets`: no two of its jobs share a socket (SelectTypeParameters=CR_Socket). `preempt_mode` is how its
    jobs are preempted (its own PreemptMode, or the cluster's); '' is OFF. It accepts jobs of `accounts` or, without
    these, of all but `denied_accounts`; the same goes for QOS. Without `groups` it accepts all users. No job gets
    more than `most_nodes` there, and all its jobs together get no more CPUs of a node, or of one of its sockets, than
    `most_cpus_per_node` and `most_cpus_per_socket` (None: all). Its jobs may run for `over_limit_s` beyond their
    limits (None: the cluster's value). The limits of its `qos` apply to them too. A job without a limit of its own
    gets `default_s` there (None: `longest_s`); `memory` are the defaults and maximums of memory that apply there.
    """

    name: str
    tier: int = 1
    up: bool = True
    longest_s: float = math.inf
    whole_sockets: bool = False
    preempt_mode: str = ""
    accounts: tuple[str, ...] = ()
    denied_accounts: tuple[str, ...] = ()
    all_qos: tuple[str, ...] = ()
    denied_qos: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    most_nodes: float = math.inf
    most_cpus_per_node: int | None = None
    most_cpus_per_socket: int | None = None
    over_limit_s: float | None = None
    qos: str = ""
    default_s: float | None = None
    memory: MemoryTerms = MemoryTerms()


# GrpTRESRunMins and the like limit what a job has, times the minutes that it may still have it.
RUN_MINUTES = " RunMins"
# GrpTRESMins and GrpWall limit what all jobs have (GrpWall: the jobs themselves), times the minutes that they have
# it.
MINUTES, WALL = " Mins", "GrpWall"


def is_of_time(limit: str) -> bool:
    """Whether a limit, by its name or kind, is one of minutes."""
    return limit.endswith(RUN_MINUTES) or is_budget(limit)


def is_budget(limit: str) -> bool:
    """Whether a limit, by its name or kind, is one of minutes that are used up."""
    return limit.endswith((MINUTES, WALL))


class QosState(msgspec.Struct, frozen=True, kw_only=True):
    """A QOS: the QOS whose jobs its own may preempt, and how its own are preempted; '' is the cluster's mode.

    Its jobs are exempt from preemption for the first `exempt_s` of a run; None: for as long as the cluster says.
    `together` is how much all its jobs may have at a time, `of_user` and `of_account` how much those of each user and
    account may, by kind: `jobs`, `cpu`, `mem` (MiB), `node`, `billing`, `gres/gpu`, `gres/gpu:TYPE`. With RUN_MINUTES
    appended, it is how many minutes of that they may still use.

    `over_partition`: its limits replace the same limits of a partition's QOS (OverPartQOS). The time of its jobs
    counts `usage_factor` times; that of a job that is to start, only with `usage_factor_asked` (UsageFactorSafe).
    `has_budget`: its jobs may use only so much time in all (GrpTRESMins, GrpWall). `account_factor` multiplies what an
    account lets its jobs have at a time, for jobs of this QOS (LimitFactor); None: it says nothing of that.
    """

    preempts: frozenset[str] = frozenset()
    preempt_mode: str = ""
    exempt_s: float | None = None
    together: Mapping[str, int] = {}
    of_user: Mapping[str, int] = {}
    of_account: Mapping[str, int] = {}
    over_partition: bool = False
    usage_factor: float = 1.0
    usage_factor_asked: bool = False
    has_budget: bool = False
    account_factor: float | None = None


class AssociationState(msgspec.Struct, frozen=True, kw_only=True):
    """An account (`user` is ''), or one of its users, only in one partition if `partition` is not ''.

    `parent` is the account above an account. `together` is how much all its jobs may have at a time, as for a QOS,
    and `most_jobs` how many jobs a user may run (None: any number). `has_budget` is as for a QOS.
    """

    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    together: Mapping[str, int] = {}
    most_jobs: int | None = None
    has_budget: bool = False

    @property
    def name(self) -> str:
        """What people call it."""
        return " ".join(filter(None, ("account", self.account, self.user, self.partition)))


class ReservedNodes(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation: which nodes it holds, from when to when (unix seconds), and for whom (none given: for nobody).

    It holds this many CPUs and GPUs of these nodes in all; without CPUs, all that they have. `cores` are those that it
    holds of each node, where Slurm says so.
    """

    name: str
    nodes: tuple[str, ...]
    start_s: float
    end_s: float
    cpus: int = 0
    gpus: int = 0
    cores: tuple[tuple[str, int], ...] = ()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()


class SchedulerTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What slurm.conf says of scheduling. `weights` are the PriorityWeight… by the rest of their names.

    `most_age_s` is the age from which a job's age counts in full; 0 if not set. If memory does not count
    (SelectTypeParameters=CR_Core and the like), jobs get nodes whatever memory they ask for. `counts_threads`: a job
    is given whole cores, but counts as having what it asked for (CR_CPU). `one_task_per_core`: CR_ONE_TASK_PER_CORE.

    Priority for a job's size (JobSize in `weights`) favours small jobs if `favors_small`, and goes by limit if
    `size_by_time`. `tres_weights` are those of PriorityWeightTRES, by their names in lower case: for a partition's
    whole or, if `tres_by_amount`, for each CPU and MiB.

    `preempt_type` decides which jobs preempt which; no job is preempted in the first `preempt_exempt_s` of its run.
    No job is ended before it is `over_limit_s` beyond its limit (OverTimeLimit).

    `limits_hold`: the limits of accounts and QOS apply. slurmctld recounts the time that running jobs may still use
    every `counts_each_s` (PriorityCalcPeriod), the first time when it started, `counts_from_s` (unix). It enforces
    such limits for a QOS's users and accounts only if `counts_for_each`. `safe`: no job starts whose limit is beyond
    what is left of a budget. A requeued job waits for at least `again_s`. A job that has ended may be requeued for
    `forgets_s` (MinJobAge); then slurmctld has forgotten it.
    """

    priority_type: str
    scheduler_type: str
    parameters: tuple[str, ...]
    site_factor_plugin: str = ""
    weights: Mapping[str, int] = {}
    most_age_s: float = 0.0
    memory_counts: bool = True
    counts_threads: bool = False
    one_task_per_core: bool = False
    favors_small: bool = False
    size_by_time: bool = False
    tres_weights: Mapping[str, float] = {}
    tres_by_amount: bool = False
    preempt_type: str = ""
    preempt_mode: str = ""
    preempt_exempt_s: float = 0.0
    over_limit_s: float = 0.0
    limits_hold: bool = False
    counts_from_s: float = 0.0
    counts_each_s: float = 0.0
    counts_for_each: bool = True
    safe: bool = False
    again_s: float = AGAIN_S
    forgets_s: float = FORGETS_S


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment (unix seconds). `qos` is given if Slurm preempts or limits by QOS.

    `account_parents` has the account above each and `user_groups` the groups of users, if partitions depend on them.
    `associations` are given if limits apply. `licences` has how many of each jobs may have at a time, `left` how many
    minutes of what are left of the budgets of an association or a QOS, by its name.
    """

    time_s: float
    jobs: tuple[QueuedJob, ...]
    nodes: tuple[NodeState, ...]
    partitions: tuple[PartitionState, ...]
    reservations: tuple[ReservedNodes, ...]
    terms: SchedulerTerms
    qos: Mapping[str, QosState] = {}
    account_parents: Mapping[str, str] = {}
    user_groups: Mapping[str, frozenset[str]] = {}
    associations: tuple[AssociationState, ...] = ()
    licences: Mapping[str, int] = {}
    left: Mapping[str, Mapping[str, int]] = {}
