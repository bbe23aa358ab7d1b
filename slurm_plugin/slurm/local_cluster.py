"""Which cluster this machine's Slurm is: several may share a store, and have jobs with the same numbers."""

from __future__ import annotations

from accounting.errors import SlurmError
from slurm_plugin.config.settings import Config
from slurm_plugin.slurm.cluster_lines import parse_cluster_name
from slurm_plugin.slurm.command import run


def local_cluster(config: Config) -> str:
    """Return the cluster's name in slurmdbd: as configured, else as slurmctld says; '' if neither does."""
    # slurmdbd knows clusters only in lower case.
    if config.accounting.cluster:
        return config.accounting.cluster.lower()
    try:
        return parse_cluster_name(run("scontrol", "show", "config")).lower()
    except SlurmError:
        return ""
