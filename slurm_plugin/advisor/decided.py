"""The decisions behind waiting jobs, read from the service's journals incrementally, never all of them again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from accounting.decisions.decision import Decision
from accounting.errors import StoreError
from accounting.journal.files import PATTERN, is_older, read_journal
from slurm_plugin.day_files import DAY_S
from slurm_plugin.log_lines import SaidOnce

log = logging.getLogger(__name__)

# A decision is journalled before its job is in the queue, in the same call of slurmctld. If the decision is older
# than this when the queue is read, its job is there or does not exist. All decisions of these seconds are held, even
# if hundreds come a second.
NOT_QUEUED_YET_S = 10.0


class Decided:
    """Holds the decisions that waiting jobs name, and those that are too new to be named yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[str, int] = {}
        self._by_id: dict[str, Decision] = {}
        self._failures = SaidOnce()

    def of(self, named: Mapping[str, float], now_s: float) -> Mapping[str, Decision]:
        """Return the decisions by id. `named` maps the ids that waiting jobs name to the jobs' submit times.

        A failure to read is logged once; the decisions of those jobs then count as not known.
        """

        def may_be_named(one: Decision) -> bool:
            # A cycle takes time: what was decided since the queue was read belongs to the next cycle.
            return one.id in named or now_s - one.time_s < NOT_QUEUED_YET_S

        self._skip(min(named.values(), default=now_s))
        try:
            for part in read_journal(self._folder, self._offsets):
                self._offsets[part.file] = part.read_bytes
                self._by_id |= {one.id: one for one, _ in part.taken if may_be_named(one)}
        except StoreError as error:
            if self._failures.is_new(str(error)):
                log.warning("what was decided before is not known: %s", error)
        else:
            self._failures.over()
        self._by_id = {name: one for name, one in self._by_id.items() if may_be_named(one)}
        return self._by_id

    def _skip(self, since_s: float) -> None:
        """Skip the files of days before the oldest of these jobs was submitted."""
        for file in self._folder.glob(PATTERN):
            if file.name not in self._offsets and is_older(file, since_s - DAY_S):
                self._offsets[file.name] = file.stat().st_size
