"""The environment in which Slurm's commands run: they speak of this machine's own cluster, whatever our caller has set.

With FederationParameters=fed_display, squeue, scontrol, sprio and sacct show the jobs of a federation's other clusters
too. Each takes its `…_LOCAL` variable for its option `--local` (22.05 to 26.05), which is all it needs, in one place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

# Defaults for options that somebody has set for himself: another cluster, another format, fewer jobs.
_PREFIXES = ("SACCT_", "SCANCEL_", "SCONTROL_", "SINFO_", "SPRIO_", "SQUEUE_")
_OTHER_CLUSTERS = "SLURM_CLUSTERS"
_LOCAL = {f"{name}_LOCAL": "1" for name in ("SACCT", "SCONTROL", "SINFO", "SPRIO", "SQUEUE")}


def slurm_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a whole environment for one of Slurm's commands: our own without defaults for its options, `variables`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != _OTHER_CLUSTERS and not name.startswith(_PREFIXES)
    }
    return {**kept, **_LOCAL, **(variables or {})}
