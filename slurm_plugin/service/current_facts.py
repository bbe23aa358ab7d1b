"""The site's facts in use: gathered at start and again from time to time; what cannot be had stays as it was."""

from __future__ import annotations

import logging

from accounting.errors import RightsizerError
from slurm_plugin.config import Config
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.slurm.groups import members_of_rules
from slurm_plugin.slurm.limits import (
    read_max_mem_per_cpu,
    read_partition_qos,
    read_qos_minimums,
    read_threads_per_core,
)

log = logging.getLogger(__name__)


class CurrentFacts:
    """Holds the facts; swapped whole by `refresh`."""

    def __init__(self, config: Config) -> None:
        """Look up the rules' groups; ConfigError where one does not exist."""
        self._config = config
        self.facts = SiteFacts(groups=members_of_rules(config))

    def refresh(self) -> None:
        """Gather the facts anew; where that fails the last ones hold, and the log says why."""
        try:
            facts = SiteFacts(
                groups=members_of_rules(self._config),
                qos_minimums=read_qos_minimums(),
                partition_qos=read_partition_qos(),
                threads_per_core=read_threads_per_core(),
                max_mem_per_cpu_mib=read_max_mem_per_cpu(),
            )
        except RightsizerError as error:
            log.warning("what the site allows is not known anew: %s", error)
            return
        if facts != self.facts:
            # Only a real change is swapped in: whoever remembers answers forgets them then.
            self.facts = facts
