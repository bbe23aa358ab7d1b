"""Whether Slurm is set up so that a SiteFactor orders its queue, and stays ours. Pure."""

from __future__ import annotations

from slurm_plugin.slurm.queue import SchedulerTerms

NO_PLUGIN = ("", "(null)", "site_factor/none")


def unfit(terms: SchedulerTerms) -> list[str]:
    """Return what has to be set in slurm.conf before anything may be reordered; nothing where all is well."""
    options = {option.partition("=")[0].strip() for option in terms.parameters}
    wrong = []
    if terms.priority_type != "priority/multifactor":
        wrong.append("PriorityType=priority/multifactor: no other knows a SiteFactor")
    if terms.scheduler_type != "sched/backfill":
        wrong.append("SchedulerType=sched/backfill: a plan counts on it")
    if "bf_continue" not in options:
        wrong.append("SchedulerParameters=…,bf_continue: without it a change ends a backfill cycle")
    if terms.site_factor_plugin not in NO_PLUGIN:
        wrong.append(f"no PrioritySiteFactorPlugin: {terms.site_factor_plugin} owns the factor")
    return wrong
