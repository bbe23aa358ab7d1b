"""Why a job waits, according to Slurm: what its reasons mean, and for which of them no priority helps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

_HELD = "it is held"
_ACCOUNT = "a limit of its account holds it"
_QOS = "a limit of its QOS holds it"
# GrpTRESMins and GrpWall; with AccountingStorageEnforce=safe, as much must be left as a job may use until its limit.
_USED_UP = "has used up its time, or has less left than this job's limit may take"
_PARTITION = "its partition does not accept it now"
_NO_NODES = (
    "no node matches its request: --constraint, --nodelist and similar options, or more CPUs per node "
    "than MaxCPUsPerNode of its partition allows"
)
_IMPOSSIBLE = "Slurm says that it cannot run with its present request"


class Reason(NamedTuple):
    """A reason of Slurm's (a pattern), what the job's user is told, and why its place is kept ('' if it need not be).

    A job whose place is kept cannot start now, whatever its priority. But for a reason `of_partition`, Slurm means
    only the partition that it looked at last: it says nothing of a job that lists others too (seen on 22.05). A
    `shared` reason is a limit of what jobs may have at a time: some running jobs have to end first, or to run for a
    while. Running jobs may leave enough of a `budget`.
    """

    pattern: str
    said: str
    kept: str = ""
    of_partition: bool = False
    shared: bool = False
    budget: bool = False

    def holds(self, partitions: Sequence[str]) -> bool:
        """Whether a job that lists these partitions cannot start now."""
        return bool(self.kept) and not (self.of_partition and len(partitions) > 1)


# `src/common/job_state_reason.c`; the first pattern that matches counts, the last one matches all.
REASONS = (
    Reason("None", "Slurm has not considered it yet"),
    Reason("Priority", "other jobs come first"),
    Reason("Resources", "it is next, and waits until enough resources are free"),
    Reason(
        "Dependency*",
        "it waits for another job to end (`scontrol show job` names it)",
        "it waits for another job",
    ),
    Reason("BeginTime", "it was submitted for a later time, or was requeued a moment ago", "it starts later"),
    Reason("JobHeldUser", "it is held; `scontrol release` releases it", _HELD),
    Reason("JobHeld*", "an administrator holds it; ask the administrator", _HELD),
    Reason("JobHold*", "it was requeued too often and is held; `scontrol release` releases it", _HELD),
    Reason(
        "job_requeued_in_held_state", "it was requeued and is held; `scontrol release` releases it", _HELD
    ),
    # From 25.05; before that, such a job ran with the environment that it was given.
    Reason(
        "user?env?retrieval?failed*",
        "its node could not read the user's environment, which `--export=NONE` and `--get-user-env` "
        "need; check that the user has a login shell there. It was requeued and is held; `scontrol "
        "release` tries again",
        _HELD,
    ),
    Reason(
        "*requeued?held",
        "Slurm could not start it, requeued it and holds it; `scontrol release` tries again",
        _HELD,
    ),
    Reason(
        "JobArrayTaskLimit",
        "the array runs as many tasks at a time as it allows itself (the %N of --array)",
        "its array runs as many tasks as it may",
        shared=True,
    ),
    Reason(
        "Reservation*",
        "its reservation has not begun, has ended or is full (see `scontrol show reservation`)",
        "it has a reservation",
    ),
    Reason(
        "Licenses",
        "too few of its licences are free: the others are in use, or reserved",
        "it waits for licences",
        shared=True,
    ),
    Reason("BurstBuffer*", "its burst buffer is not ready", "it waits for its burst buffer"),
    # 26.05 says this of nodes that are down or drained as well, without any reservation.
    Reason(
        "ReqNodeNotAvail*May?be?reserved*",
        "the nodes that it could use are down or drained, or reserved now or before its time limit ends (see "
        "`sinfo -R` and `scontrol show reservation`); before a reservation it may start with a shorter --time",
    ),
    # Applies to most waiting jobs before a maintenance, and to all of them during one: a plan knows until when.
    Reason(
        "ReqNodeNotAvail*eserved?for*",
        "the nodes that it could use are reserved, or will be before its time limit ends (see "
        "`scontrol show reservation`); with a shorter --time it may start before",
    ),
    Reason(
        "ReqNodeNotAvail*",
        "a node that it needs is down, drained, reserved or about to be powered down",
        "the nodes that it needs are not available",
        of_partition=True,
    ),
    Reason(
        "NodeDown",
        "a node that it needs is down",
        "the nodes that it needs are not available",
        of_partition=True,
    ),
    Reason("PartitionDown", "its partition starts no jobs now", _PARTITION, of_partition=True),
    Reason("PartitionInactive", "its partition is down", _PARTITION, of_partition=True),
    Reason(
        "PartitionNodeLimit",
        "it asks for more nodes, or other nodes, than its partition has",
        _PARTITION,
        of_partition=True,
    ),
    Reason(
        "PartitionTimeLimit",
        "it asks for more time than its partition allows; ask for less with --time",
        _PARTITION,
        of_partition=True,
    ),
    Reason("Partition*", "its partition does not allow what it asks for", _PARTITION, of_partition=True),
    Reason("BadConstraints", _NO_NODES, _IMPOSSIBLE),
    Reason("Constraints", _NO_NODES, _IMPOSSIBLE),
    # MaxMemPerNode, once the job waits: slurmctld refuses such a job at submission, except with EnforcePartLimits=NO.
    Reason(
        "MaxMemPerLimit",
        "it asks for more memory per node, or per CPU, than its partition allows (see `scontrol show "
        "partition`)",
        _PARTITION,
        of_partition=True,
    ),
    Reason("Invalid*", "its account or QOS does not exist, or it may not use it", _IMPOSSIBLE),
    Reason("AccountNotAllowed", "its account may not use the partition", _IMPOSSIBLE, of_partition=True),
    Reason("QOSNotAllowed", "its QOS may not use the partition", _IMPOSSIBLE, of_partition=True),
    # Slurm gives these as sentences.
    Reason(
        "*account?not?*use?this?partition*",
        "its account may not use the partition",
        _IMPOSSIBLE,
        of_partition=True,
    ),
    Reason(
        "*QOS?not?*use?this?partition*",
        "its QOS may not use the partition",
        _IMPOSSIBLE,
        of_partition=True,
    ),
    Reason(
        "*not?in?group?permitted?to?use?this?partition*",
        "no group of its user may use the partition",
        _IMPOSSIBLE,
        of_partition=True,
    ),
    Reason(
        "Nodes?required?for?job?are*",
        "nodes that it needs are down or drained, or are kept for jobs of a partition that comes first",
    ),
    Reason("InactiveLimit", "Slurm says that it cannot run now", "Slurm says that it cannot run now"),
    Reason(
        "AssocGrp*RunMin*",
        "if it started, the running jobs of its account could use more time than the account may",
        _ACCOUNT,
        shared=True,
    ),
    Reason("AssocGrp*Minutes*", f"its account {_USED_UP}", _ACCOUNT, shared=True, budget=True),
    Reason("AssocGrpWall*", f"its account {_USED_UP}", _ACCOUNT, shared=True, budget=True),
    Reason(
        "AssocGrp*",
        "if it started, its account would have more than it may have at a time",
        _ACCOUNT,
        shared=True,
    ),
    Reason(
        "AssocMaxJobs*", "its user runs as many jobs at a time as the account allows", _ACCOUNT, shared=True
    ),
    Reason("Assoc*", "it asks for more than its account allows", _ACCOUNT),
    Reason(
        "QOSGrp*RunMin*",
        "if it started, the running jobs of its QOS could use more time than the QOS may",
        _QOS,
        shared=True,
    ),
    Reason(
        "*RunMinsPerUser",
        "if it started, the running jobs of its user could use more time than its QOS allows",
        _QOS,
        shared=True,
    ),
    Reason(
        "*RunMinsPerAccount",
        "if it started, the running jobs of its account could use more time than its QOS allows",
        _QOS,
        shared=True,
    ),
    Reason("QOSGrp*Minutes*", f"its QOS {_USED_UP}", _QOS, shared=True, budget=True),
    Reason("QOSGrpWall*", f"its QOS {_USED_UP}", _QOS, shared=True, budget=True),
    Reason(
        "QOSGrp*",
        "if it started, all jobs of its QOS together would have more than they may have at a time",
        _QOS,
        shared=True,
    ),
    Reason("QOS*PerUser*", "its user has as much as the QOS allows at a time", _QOS, shared=True),
    Reason("QOSUsageThreshold", "its account's fair share is below the minimum of its QOS", _QOS),
    Reason("QOSMin*", "it asks for less than the minimum of its QOS", _QOS),
    Reason("QOS*", "it asks for more than its QOS allows", _QOS),
    Reason("*PerAccount", "its account has as much as the QOS allows at a time", _QOS, shared=True),
    Reason("AccountingPolicy", "a limit of its account or QOS is reached", _ACCOUNT),
    Reason("Cleaning", "its previous run is still being cleaned up"),
    Reason("SchedDefer", "Slurm starts no job right at its submission (SchedulerParameters=defer)"),
    Reason("Prolog", "it was started, and slurmctld's prolog (PrologSlurmctld) is running"),
    Reason(
        "MaxPoweredUpNodes",
        "the largest allowed number of nodes is powered up (MaxPoweredUpNodes)",
        "the largest allowed number of nodes is powered up",
    ),
    Reason("MpiPortsBusy", "the ports that its MPI library needs are in use"),
    Reason("DeadLine", "it can no longer end before its deadline", "its deadline has passed"),
    Reason("*", "Slurm gives no other reason"),
)


def reason_of(text: str) -> Reason:
    """Return what a job's reason, as squeue shows it, means."""
    return next(reason for reason in REASONS if fnmatchcase(text, reason.pattern))
