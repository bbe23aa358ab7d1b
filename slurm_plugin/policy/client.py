"""What differs for a direct srun or salloc, which asks before it submits. Pure.

The client knows only what its user typed. After it has asked, slurmctld fills in the default account and QOS, and
raises the CPUs if a limit of memory per CPU requires that.
"""

from __future__ import annotations

import msgspec

from slurm_plugin.config.settings import Config
from slurm_plugin.policy.facts import MemoryTerms, SiteFacts
from slurm_plugin.policy.submission import NOT_SAID, ClientSubmission, job_request


def claims_another(job: ClientSubmission, uid: int, user: str) -> bool:
    """Whether a request claims to be of another user than the one at the other end of its socket."""
    return job.user not in ("", user) or job.uid not in (NOT_SAID, uid)


def as_known(
    job: ClientSubmission, uid: int, user: str, config: Config, facts: SiteFacts
) -> ClientSubmission:
    """Return a client's request as that of its user; `other` also names what cannot be known yet."""
    unknown = [
        *(["default_account"] if not job.account and any(rule.account for rule in config.rules) else []),
        *(["default_qos"] if not job.qos and depends_on_qos(config, facts) else []),
        *(["max_mem_per_cpu"] if would_be_raised(job, facts) else []),
    ]
    return msgspec.structs.replace(job, user=user, uid=uid, batch=False, other=(*job.other, *unknown))


def depends_on_qos(config: Config, facts: SiteFacts) -> bool:
    """Whether any rule or minimum depends on the QOS."""
    return bool(facts.qos_minimums) or any(rule.qos for rule in config.rules)


def would_be_raised(job: ClientSubmission, facts: SiteFacts) -> bool:
    """Whether a partition limits memory per CPU so that fewer CPUs might not carry the memory asked for."""
    memory = facts.memory_for(job_request(job)) or MemoryTerms()
    return 0 < memory.max_per_cpu_mib < (job.mem_per_node_mib or 0)
