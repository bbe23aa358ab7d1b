"""The site's facts in use: gathered at start and again from time to time; what cannot be had stays as it was."""

from __future__ import annotations

import logging
import time

from accounting.errors import RightsizerError
from slurm_plugin.config import Config
from slurm_plugin.policy.facts import SiteFacts
from slurm_plugin.slurm.facts import gather
from slurm_plugin.slurm.groups import members_of_rules

log = logging.getLogger(__name__)

CHECK_S = 600.0
# A service that starts before slurmctld must not go without the limits for ten minutes.
RETRY_S = 10.0


class CurrentFacts:
    """Holds the facts; swapped whole by `refresh`."""

    def __init__(self, config: Config) -> None:
        """Look up the rules' groups; ConfigError where one does not exist."""
        self._config = config
        self.facts = SiteFacts(groups=members_of_rules(config))
        self._due_s = 0.0
        self._complaint = ""

    def refresh_when_due(self) -> None:
        """Gather the facts anew if they are old, or were not to be had a moment ago."""
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + (CHECK_S if self.refresh() else RETRY_S)

    def refresh(self) -> bool:
        """Gather the facts anew; where that fails (False) the last ones hold; the log says why, once."""
        try:
            facts = gather(self._config)
        except RightsizerError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("what the site allows is not known anew: %s", error)
            return False
        self._complaint = ""
        if facts != self.facts:
            # Only a real change is swapped in: whoever remembers answers forgets them then.
            self.facts = facts
        return True
