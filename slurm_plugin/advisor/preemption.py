"""Which jobs Slurm considers first whatever their priority, and which running jobs yield: its preemption. Pure.

With preempt/partition_prio, jobs of a partition with a higher PriorityTier preempt those of a lower one. With
preempt/qos, those of a QOS preempt those of the QOS in its Preempt list, and come before them in the queue, whatever
their tiers and priorities (`sort_job_queue2`, 22.05 to 26.05). A suspended job keeps its memory and GPUs: suspension
is not simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from models.planning.problem import Yields
from slurm_plugin.slurm.snapshot import BY_QOS, PartitionState, QosState, QueuedJob, Snapshot

BY_PARTITION = "preempt/partition_prio"
# More than any PriorityTier: a QOS that may preempt another comes before it.
LEVEL = 1 << 16
REQUEUE, CANCEL, SUSPEND = "REQUEUE", "CANCEL", "SUSPEND"
MAY_BE_PREEMPTED = "it may be preempted by jobs that come first; then it does not end as estimated"
MAY_SUSPEND = (
    "running jobs may be suspended for it; that is not simulated, so it may start sooner than estimated"
)


class Ranks:
    """Which jobs are considered first, and which yield, according to one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._terms, self._qos = snapshot.terms, snapshot.qos
        self._partitions = {partition.name: partition for partition in snapshot.partitions}
        by_qos = snapshot.terms.preempt_type == BY_QOS
        self._levels = levels_of(snapshot.qos) if by_qos else {}
        self._waiting = {job.qos for job in snapshot.jobs if job.waits}

    def tier(self, qos: str, names: Sequence[str]) -> int:
        """Return the tier of jobs of a QOS that may start, or run, in these partitions: higher ones come first."""
        return self._levels.get(qos, 0) * LEVEL + tier_of(names, self._partitions)

    def yields(self, qos: str, names: Sequence[str]) -> Yields | None:
        """Return to which jobs those of a QOS yield once they run in one of these partitions; None: to none."""
        mode = self.mode(qos, names)
        if REQUEUE not in mode and CANCEL not in mode:
            return None
        above = tier_of(names, self._partitions)
        if self._terms.preempt_type == BY_QOS:
            level = self._levels.get(qos, 0)
            higher = [name for name in self._waiting if self._levels.get(name, 0) > level]
            # A level only says which QOS comes first: if one above may not preempt this one, it is taken to yield to
            # none.
            if not all(qos in self._qos[name].preempts for name in higher):
                return None
            above = level * LEVEL + LEVEL - 1
        exempt_s = self._qos[qos].exempt_s if qos in self._qos else None
        return Yields(
            above=above,
            exempt_s=self._terms.preempt_exempt_s if exempt_s is None else exempt_s,
        )

    def mode(self, qos: str, names: Sequence[str]) -> str:
        """Return how jobs of a QOS that run in one of these partitions are preempted; '' if they are not."""
        terms = self._terms
        if terms.preempt_type == BY_PARTITION:
            modes = {self._partitions[name].preempt_mode for name in names if name in self._partitions}
            return modes.pop() if len(modes) == 1 else ""
        if terms.preempt_type == BY_QOS:
            return (self._qos[qos].preempt_mode if qos in self._qos else "") or terms.preempt_mode
        return ""


def preemption_in_words(job: QueuedJob, snapshot: Snapshot) -> str:
    """Return in words how preemption may change a job's predicted start or end; '' if it does not."""
    ranks = Ranks(snapshot)
    tier = ranks.tier(job.qos, job.partitions)
    if not job.waits:
        return MAY_BE_PREEMPTED if _has_one_above(job, snapshot, ranks) else ""
    nodes = {node.name for node in snapshot.nodes if not {*job.partitions}.isdisjoint(node.partitions)}
    others = [one for one in snapshot.jobs if not (one.waits or nodes.isdisjoint(one.nodes))]
    yields = [ranks.yields(one.qos, one.partitions) for one in others]
    found = sum(one is not None and tier > one.above for one in yields)
    if found:
        return (
            f"it may preempt {found} of the running jobs. Its likely start includes that, but not the "
            "GraceTime for which they may run on"
        )
    lower = [one for one in others if tier > ranks.tier(one.qos, one.partitions)]
    suspends = any(SUSPEND in ranks.mode(one.qos, one.partitions) for one in lower)
    return MAY_SUSPEND if suspends else ""


def _has_one_above(job: QueuedJob, snapshot: Snapshot, ranks: Ranks) -> bool:
    """Whether jobs of any partition, or QOS, may preempt a running job."""
    yields = ranks.yields(job.qos, job.partitions)
    names = [partition.name for partition in snapshot.partitions]
    highest = max(ranks.tier(qos, names) for qos in snapshot.qos or ("",))
    return yields is not None and highest > yields.above


def tier_of(names: Iterable[str], partitions: Mapping[str, PartitionState]) -> int:
    """Return the highest tier of some partitions."""
    return max((partitions[name].tier for name in names if name in partitions), default=1)


def levels_of(qos: Mapping[str, QosState]) -> dict[str, int]:
    """Return how many QOS, one below the other, each may preempt; any number for a cycle, which Slurm refuses."""
    found: dict[str, int] = {}

    def level(name: str, above: frozenset[str]) -> int:
        if name not in found:
            below = [
                each for each in qos[name].preempts if each in qos and each != name and each not in above
            ]
            found[name] = 1 + max((level(each, above | {name}) for each in below), default=-1)
        return found[name]

    for name in qos:
        level(name, frozenset())
    return found
