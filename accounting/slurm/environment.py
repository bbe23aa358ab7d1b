"""The environment of Slurm's commands: makes them speak of this machine's own cluster, whatever the caller has set.

With FederationParameters=fed_display, squeue, scontrol, sprio and sacct also show jobs of a federation's other
clusters. Each accepts a `…_LOCAL` variable in place of its option `--local` (22.05 to 26.05), so that one place is
enough.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

# Prefixes of users' defaults for options: another cluster, another format, fewer jobs.
_PREFIXES = ("SACCT_", "SCANCEL_", "SCONTROL_", "SINFO_", "SPRIO_", "SQUEUE_")
_OTHER_CLUSTERS = "SLURM_CLUSTERS"
_LOCAL = {f"{name}_LOCAL": "1" for name in ("SACCT", "SCONTROL", "SINFO", "SPRIO", "SQUEUE")}


def slurm_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a whole environment for a Slurm command: our own, without defaults for its options, plus `variables`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != _OTHER_CLUSTERS and not name.startswith(_PREFIXES)
    }
    return {**kept, **_LOCAL, **(variables or {})}
