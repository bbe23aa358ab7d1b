"""The site's facts in use: gathered at start and again from time to time. What cannot be read stays as it was."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

import msgspec

from accounting.decisions.decision import Decision
from accounting.errors import RightsizerError
from accounting.request import JobRequest
from slurm_plugin.brakes.pulled import pulled_file
from slurm_plugin.config.settings import Config
from slurm_plugin.log_lines import SaidOnce
from slurm_plugin.policy.braked import Brake
from slurm_plugin.policy.facts import SLURM_PARTS, SiteFacts
from slurm_plugin.service.decide import SITE_NOT_KNOWN, memory_comes_with_cpus
from slurm_plugin.slurm.facts import gather
from slurm_plugin.slurm.groups import members_of_rules

log = logging.getLogger(__name__)

CHECK_S = 600.0
# A service that starts before slurmctld must not go without the limits for ten minutes.
RETRY_S = 10.0


class CurrentFacts:
    """Holds the facts; `refresh` swaps them as a whole."""

    def __init__(self, config: Config) -> None:
        """Look up the groups that rules name; raises ConfigError if one does not exist."""
        self._config = config
        self._pulled = pulled_file(config.brakes)
        self._swapping = threading.Lock()
        self.facts = SiteFacts(groups=members_of_rules(config), missing=SLURM_PARTS)
        # From here on, held brakes are dropped only when the file of pulled brakes changes.
        self._pulled_seen: object = None
        self.refresh_brakes()
        self._due_s, self._gathered_s = 0.0, 0.0
        self._failures = SaidOnce()

    def retune(self, config: Config, groups: Mapping[str, frozenset[str]]) -> None:
        """Use another configuration, whose groups are given; the rest is gathered again at the next look."""
        with self._swapping:
            self._config = config
            self.facts = msgspec.structs.replace(self.facts, groups=groups)
            self._due_s = 0.0

    def refresh_when_due(self) -> None:
        """Gather the facts again if they are old, or could not be read a moment ago."""
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + (CHECK_S if self.refresh() else RETRY_S)
            self._gathered_s = time.monotonic()

    def learn_from(self, decision: Decision) -> None:
        """Gather the facts again at the next look if they did not tell what this job may have.

        A partition that does not exist is named as easily as one that is new, so this is at most every RETRY_S.
        """
        if decision.reason == SITE_NOT_KNOWN:
            self._due_s = min(self._due_s, self._gathered_s + RETRY_S)

    def refresh(self) -> bool:
        """Gather the facts again. If some cannot be read (False), the last ones stay, and the reason is logged once."""
        config, groups, complaints = self._config, self.facts.groups, []
        try:
            groups = members_of_rules(config)
        except RightsizerError as error:
            complaints.append(str(error))
        gathered = gather(self.facts)
        complaints += gathered.complaints
        if complaints and self._failures.is_new("; ".join(complaints)):
            log.warning("what the site allows is not known anew: %s", "; ".join(complaints))
        if not complaints:
            self._failures.over()
        with self._swapping:
            if config is not self._config:
                return False  # replaced meanwhile, together with its groups
            brakes = self.facts.brakes
            self._swap(msgspec.structs.replace(gathered.facts, groups=groups, brakes=brakes))
        return not complaints

    def refresh_brakes(self) -> None:
        """Check which brakes are pulled; called several times a second."""
        seen = self._pulled.changed()
        if seen != self._pulled_seen:
            with self._swapping:
                found = self._pulled.read()
                # Everything is stopped while the file cannot be read, and that may be over soon: file handles may
                # have run out.
                self._pulled_seen = None if found.damaged else seen
                self._swap(msgspec.structs.replace(self.facts, brakes=found.brakes))

    def hold(self, brake: Brake) -> None:
        """Apply a brake at once, whether or not a disk takes it: until the file of pulled brakes next changes."""
        with self._swapping:
            self._swap(msgspec.structs.replace(self.facts, brakes=self.facts.brakes | {brake}))

    def memory_comes_with_cpus(self, request: JobRequest) -> bool:
        """Whether, by what is known now, such a job gets a fixed amount of memory per CPU if it asks for none."""
        return memory_comes_with_cpus(request, self._config, self.facts)

    def _swap(self, facts: SiteFacts) -> None:
        if facts != self.facts:
            # Only a real change is swapped in, because then remembered answers are forgotten.
            self.facts = facts
