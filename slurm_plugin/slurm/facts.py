"""Gathers the site's facts from Slurm and the system: for the service and for `rightsizer predict` alike."""

from __future__ import annotations

from slurm_plugin.config import Config
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.slurm.groups import members_of_rules
from slurm_plugin.slurm.limits import (
    read_memory_terms,
    read_partitions,
    read_qos_minimums,
    read_threads_per_core,
)


def gather(config: Config) -> SiteFacts:
    """Return the facts as they are now; SlurmError where a command does not answer, ConfigError for a lost group."""
    memory = read_memory_terms()
    return SiteFacts(
        groups=members_of_rules(config),
        qos_minimums=read_qos_minimums(),
        partitions=read_partitions(memory),
        memory=memory,
        threads_per_core=read_threads_per_core(),
    )
