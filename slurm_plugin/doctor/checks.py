"""The table of checks, which judge what was seen of an installation. Pure: it asks nothing.

A check is one function from what was seen to (state, what, fix), and one line in CHECKS. The state `unknown` means
that something could not be determined. That is no problem by itself: its cause, if it is a problem, has its own check.
"""

from __future__ import annotations

from collections.abc import Callable

from slurm_plugin.doctor import (
    advisor_checks,
    audit_checks,
    brake_checks,
    disk_checks,
    hook_checks,
    installation_checks,
    model_checks,
    permission_checks,
    service_checks,
    store_checks,
)
from slurm_plugin.doctor.finding import Finding, Judged
from slurm_plugin.doctor.seen import Complaint, Seen

CHECKS: dict[str, Callable[[Seen], Judged]] = {
    "configuration": service_checks.configuration,
    "kill-switch": service_checks.kill_switch,
    "brakes": brake_checks.brakes,
    "service": service_checks.service,
    "model": model_checks.model,
    "model-age": model_checks.model_age,
    "gate": model_checks.gate,
    "drift": model_checks.drift,
    "calibration": model_checks.calibration,
    "poisoning": model_checks.poisoning,
    "store": store_checks.store,
    "ingest": store_checks.ingest,
    "newest-job": store_checks.newest_job,
    "labels": store_checks.labels,
    "measured": store_checks.measured,
    "retention": disk_checks.retention,
    "journal": store_checks.journal,
    "journal-chain": audit_checks.journal_chain,
    "advisor": advisor_checks.advisor,
    "advisor-journal": advisor_checks.advisor_journal,
    "recovery": audit_checks.recovery,
    "slurm.conf": installation_checks.slurm_conf,
    "controllers": installation_checks.controllers,
    "limits": installation_checks.limits,
    "hook": hook_checks.hook,
    "asked": hook_checks.asked,
    "tokens": hook_checks.tokens,
    "timers": installation_checks.timers,
    "permissions": permission_checks.permissions,
    "owners": disk_checks.owners,
    "space": disk_checks.space,
}


def judge(seen: Seen) -> list[Finding]:
    """Return the finding of every check."""
    return [_finding(name, check(seen)) for name, check in CHECKS.items()]


def not_configured(why: Complaint) -> list[Finding]:
    """Return the findings if the configuration does not load: that problem, and `unknown` for every other check."""
    unseen: Judged = "unknown", "not checked: the configuration does not load", ""
    judged: dict[str, Judged] = dict.fromkeys(CHECKS, unseen)
    judged["configuration"] = "problem", why.what, why.fix
    return [_finding(name, one) for name, one in judged.items()]


def _finding(check: str, judged: Judged) -> Finding:
    state, what, fix = judged
    return Finding(check=check, state=state, what=what, fix=fix)
