"""Whether Slurm is set up so that a SiteFactor orders its queue, and stays ours. Pure."""

from __future__ import annotations

from slurm_plugin.slurm.snapshot import BY_QOS, Snapshot

NO_PLUGIN = ("", "(null)", "site_factor/none")
# With these in PreemptMode (WITHIN from 22.05, PRIORITY from 25.05), priorities decide which job preempts which: a
# waiting job that is given a factor would end a running one (seen on 22.05, for WITHIN).
BY_PRIORITY = ("WITHIN", "PRIORITY")


def unfit(snapshot: Snapshot) -> list[str]:
    """Return what has to be set in Slurm before anything may be reordered; empty if all is well."""
    terms = snapshot.terms
    options = {option.partition("=")[0].strip() for option in terms.parameters}
    wrong = []
    if terms.priority_type != "priority/multifactor":
        wrong.append("PriorityType=priority/multifactor, because only that uses a SiteFactor")
    if terms.scheduler_type != "sched/backfill":
        wrong.append("SchedulerType=sched/backfill, because plans assume it")
    if "bf_continue" not in options:
        wrong.append("SchedulerParameters=…,bf_continue, because without it a change stops a backfill cycle")
    if terms.site_factor_plugin not in NO_PLUGIN:
        wrong.append(
            f"no PrioritySiteFactorPlugin, because {terms.site_factor_plugin} sets the SiteFactor itself"
        )
    wrong += [
        f"{whose} without {word}, because a changed SiteFactor would make Slurm preempt running jobs"
        for whose, mode in preempt_modes(snapshot).items()
        for word in BY_PRIORITY
        if word in mode.split(",")
    ]
    return wrong


def is_untold(snapshot: Snapshot) -> bool:
    """Whether Slurm preempts by QOS, but no QOS is known: one of them may preempt by priority (BY_PRIORITY)."""
    return snapshot.terms.preempt_type == BY_QOS and not snapshot.qos


def preempt_modes(snapshot: Snapshot) -> dict[str, str]:
    """Return each PreemptMode by its owner; partitions with the cluster's mode are left out."""
    terms = snapshot.terms
    partitions = {
        f"PreemptMode of partition {partition.name}": partition.preempt_mode
        for partition in snapshot.partitions
        if partition.preempt_mode != terms.preempt_mode
    }
    qos = {f"PreemptMode of QOS {name}": one.preempt_mode for name, one in snapshot.qos.items()}
    return {"PreemptMode": terms.preempt_mode, **partitions, **qos}
