"""The decisions behind the jobs that wait, out of the journals of the service: read on, never all of it again."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path

from accounting.decisions import Decision
from accounting.errors import StoreError
from accounting.journal import PATTERN, read_journal

log = logging.getLogger(__name__)

# A decision is journalled before its job is in the queue, and for no longer than this.
NOT_QUEUED_YET_S = 600.0
DAY_S = 86400.0
_DAY = re.compile(r"-(\d{8})\.jsonl\Z")


class Decided:
    """Holds the decisions that waiting jobs name, and those that are too new to be named yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[str, int] = {}
        self._by_id: dict[str, Decision] = {}
        self._complaint = ""

    def of(self, named: Mapping[str, float], now_s: float) -> Mapping[str, Decision]:
        """Return the decisions by id. `named` are the ids that waiting jobs name, and when each was submitted.

        What cannot be read is said once; its jobs are then as those whose decision is not known.
        """
        self._skip(min(named.values(), default=now_s))
        try:
            parts = read_journal(self._folder, self._offsets)
        except StoreError as error:
            self._complain(str(error))
            parts = []
        for part in parts:
            self._offsets[part.file] = part.read_bytes
            self._by_id |= {
                one.id: one
                for one in part.decisions
                if one.id in named or now_s - one.time_s < NOT_QUEUED_YET_S
            }
        self._by_id = {
            name: one
            for name, one in self._by_id.items()
            if name in named or now_s - one.time_s < NOT_QUEUED_YET_S
        }
        return self._by_id

    def _skip(self, since_s: float) -> None:
        """Pass over the files of days before the oldest of these jobs was submitted."""
        first = time.strftime("%Y%m%d", time.gmtime(since_s - DAY_S))
        for file in self._folder.glob(PATTERN):
            day = _DAY.search(file.name)
            if file.name not in self._offsets and day and day[1] < first:
                self._offsets[file.name] = file.stat().st_size

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            log.warning("what was decided before is not known: %s", complaint)
