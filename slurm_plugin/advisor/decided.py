"""The decisions behind the jobs that wait, out of the journals of the service: read on, never all of it again."""

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

# A decision is journalled before its job is in the queue, in the same call of slurmctld: what is older than this when
# the queue is read has its job there, or none. Where hundreds come a second, all of so many seconds are held.
NOT_QUEUED_YET_S = 10.0


class Decided:
    """Holds the decisions that waiting jobs name, and those that are too new to be named yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[str, int] = {}
        self._by_id: dict[str, Decision] = {}
        self._failures = SaidOnce()

    def of(self, named: Mapping[str, float], now_s: float) -> Mapping[str, Decision]:
        """Return the decisions by id. `named` are the ids that waiting jobs name, and when each was submitted.

        What cannot be read is said once; its jobs are then as those whose decision is not known.
        """

        def may_be_named(one: Decision) -> bool:
            # A cycle takes its time: what was decided since the queue was read is in its next one.
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
        """Pass over the files of days before the oldest of these jobs was submitted."""
        for file in self._folder.glob(PATTERN):
            if file.name not in self._offsets and is_older(file, since_s - DAY_S):
                self._offsets[file.name] = file.stat().st_size
