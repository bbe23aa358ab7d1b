"""Why a job waits, according to Slurm: what its reasons mean, and for which of them no priority helps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

_HELD = "it is held"
_ACCOUNT = "a limit of its account holds it"
_QOS = "a limit of its QOS holds it"
# GrpTRESMins and GrpWall; with AccountingStorageEnforce=safe, as much must be left as a job may use until its limit.
_USED_UP = "has used up the time that it may use, or has less left than this job's limit may take"
_PARTITION = "its partition does not take it now"
_NO_NODES = (
    "no nodes are as it asks for: --constraint, --nodelist and the like, or more CPUs of a node than MaxCPUsPerNode of "
    "its partition allows"
)
_IMPOSSIBLE = "Slurm says that it cannot run as it asks"


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
    Reason("None", "Slurm has not looked at it yet"),
    Reason("Priority", "other jobs come first"),
    Reason("Resources", "it is next, and waits until enough is free"),
    Reason(
        "Dependency*",
        "it waits for another job, which has to end first (`scontrol show job` names it)",
        "it waits for another job",
    ),
    Reason(
        "BeginTime", "it was submitted for a later time, or was queued again a moment ago", "it begins later"
    ),
    Reason("JobHeldUser", "it is held; `scontrol release` lets it go", _HELD),
    Reason("JobHeld*", "an administrator holds it; ask there", _HELD),
    Reason("JobHold*", "it was queued again too often and is held; `scontrol release` lets it go", _HELD),
    Reason(
        "job_requeued_in_held_state", "it was queued again and is held; `scontrol release` lets it go", _HELD
    ),
    # From 25.05; before that, such a job ran with the environment that it was given.
    Reason(
        "user?env?retrieval?failed*",
        "its node could not read its user's environment, as `--export=NONE` and `--get-user-env` want: has he a shell "
        "there? It was queued again and is held; `scontrol release` lets it try once more",
        _HELD,
    ),
    Reason(
        "*requeued?held",
        "Slurm could not start it, queued it again and holds it; `scontrol release` lets it try once more",
        _HELD,
    ),
    Reason(
        "JobArrayTaskLimit",
        "as many tasks of its array run as the array allows at a time (the %N of --array)",
        "its array runs as many tasks as it may",
        shared=True,
    ),
    Reason(
        "Reservation*",
        "its reservation has not begun, has ended or is full; `scontrol show reservation` tells",
        "it has a reservation",
    ),
    Reason(
        "Licenses",
        "of a licence that it asks for too few are free: they are in use, or reserved",
        "it waits for licences",
        shared=True,
    ),
    Reason("BurstBuffer*", "its burst buffer is not ready", "it waits for its burst buffer"),
    # Applies to most waiting jobs before a maintenance, and to all of them during one: a plan knows until when.
    Reason(
        "ReqNodeNotAvail*eserved?for*",
        "the nodes that it could have are reserved, or will be before its time limit is over (`scontrol show "
        "reservation` tells when); with less --time it may start before",
    ),
    Reason(
        "ReqNodeNotAvail*",
        "a node that it needs is down, drained, reserved or about to be powered down",
        "the nodes that it asks for are not there",
        of_partition=True,
    ),
    Reason(
        "NodeDown",
        "a node that it needs is down",
        "the nodes that it asks for are not there",
        of_partition=True,
    ),
    Reason("PartitionDown", "its partition starts no jobs now", _PARTITION, of_partition=True),
    Reason("PartitionInactive", "its partition is switched off", _PARTITION, of_partition=True),
    Reason(
        "PartitionNodeLimit",
        "it asks for more nodes, or others, than its partition has",
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
        "it asks for more memory of a node, or for each CPU, than its partition allows (`scontrol show partition`)",
        _PARTITION,
        of_partition=True,
    ),
    Reason("Invalid*", "its account or QOS does not exist, or is not open to it", _IMPOSSIBLE),
    Reason("AccountNotAllowed", "its partition is not open to its account", _IMPOSSIBLE, of_partition=True),
    Reason("QOSNotAllowed", "its partition is not open to its QOS", _IMPOSSIBLE, of_partition=True),
    # Slurm gives these as sentences.
    Reason(
        "*account?not?*use?this?partition*",
        "its partition is not open to its account",
        _IMPOSSIBLE,
        of_partition=True,
    ),
    Reason(
        "*QOS?not?*use?this?partition*",
        "its partition is not open to its QOS",
        _IMPOSSIBLE,
        of_partition=True,
    ),
    Reason(
        "*not?in?group?permitted?to?use?this?partition*",
        "its partition is not open to its user's groups",
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
        "with it, what runs of its account could still use more time than it may",
        _ACCOUNT,
        shared=True,
    ),
    Reason("AssocGrp*Minutes*", f"its account {_USED_UP}", _ACCOUNT, shared=True, budget=True),
    Reason("AssocGrpWall*", f"its account {_USED_UP}", _ACCOUNT, shared=True, budget=True),
    Reason(
        "AssocGrp*", "with it, its account would have more than it may have at a time", _ACCOUNT, shared=True
    ),
    Reason(
        "AssocMaxJobs*", "its user runs as many jobs as his account lets him at a time", _ACCOUNT, shared=True
    ),
    Reason("Assoc*", "it asks for more than its account allows", _ACCOUNT),
    Reason(
        "QOSGrp*RunMin*",
        "with it, what runs of its QOS could still use more time than it may",
        _QOS,
        shared=True,
    ),
    Reason(
        "*RunMinsPerUser",
        "with it, what runs of its user could still use more time than its QOS allows",
        _QOS,
        shared=True,
    ),
    Reason(
        "*RunMinsPerAccount",
        "with it, what runs of its account could still use more time than its QOS allows",
        _QOS,
        shared=True,
    ),
    Reason("QOSGrp*Minutes*", f"its QOS {_USED_UP}", _QOS, shared=True, budget=True),
    Reason("QOSGrpWall*", f"its QOS {_USED_UP}", _QOS, shared=True, budget=True),
    Reason(
        "QOSGrp*",
        "with it, all jobs of its QOS together would have more than they may have at a time",
        _QOS,
        shared=True,
    ),
    Reason("QOS*PerUser*", "its user has as much as the QOS allows at a time", _QOS, shared=True),
    Reason("QOSUsageThreshold", "its account's fair share is below what its QOS demands", _QOS),
    Reason("QOSMin*", "it asks for less than its QOS demands", _QOS),
    Reason("QOS*", "it asks for more than its QOS allows", _QOS),
    Reason("*PerAccount", "its account has as much as the QOS allows at a time", _QOS, shared=True),
    Reason("AccountingPolicy", "a limit of its account or QOS is reached", _ACCOUNT),
    Reason("Cleaning", "what it ran as before is still being cleaned up"),
    Reason("SchedDefer", "Slurm starts nothing right at its submission (SchedulerParameters=defer)"),
    Reason("Prolog", "it was started, and the prolog of slurmctld (PrologSlurmctld) runs"),
    Reason(
        "MaxPoweredUpNodes",
        "as many nodes are powered up as may be (MaxPoweredUpNodes)",
        "as many nodes are powered up as may be",
    ),
    Reason("MpiPortsBusy", "the ports that its MPI library needs are in use"),
    Reason("DeadLine", "it cannot end by its deadline any more", "its deadline has passed"),
    Reason("*", "Slurm gives no other reason"),
)


def reason_of(text: str) -> Reason:
    """Return what a job's reason, as squeue shows it, means."""
    return next(reason for reason in REASONS if fnmatchcase(text, reason.pattern))
