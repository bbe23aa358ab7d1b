"""Plays all jobs of workload.py on one release, and holds what ingest made of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accounting.records import Attempt
from tests.cluster.accounting import workload
from tests.cluster.accounting.site import Ingested, Site, started_site
from tests.waiting import wait_until


@dataclass(frozen=True)
class Played:
    """A release after all jobs have ended and were ingested: at once, and in two parts, the first while jobs ran."""

    site: Site
    while_running: Ingested
    first_half: tuple[Attempt, ...]
    second: Ingested
    again: Ingested
    attempts: tuple[Attempt, ...]

    def of(self, name: str) -> list[Attempt]:
        """Return the attempts of a job, or of all tasks of an array, in order."""
        job = self.site.jobs[name]
        found = [one for one in self.attempts if one.row.job_id == job or in_array(one, job)]
        return sorted(found, key=lambda one: (one.row.display_id, one.row.submit_s))

    def only(self, name: str) -> Attempt:
        """Return the only attempt of a job."""
        [attempt] = self.of(name)
        return attempt


def in_array(attempt: Attempt, job: int) -> bool:
    """Whether an attempt belongs to a task of an array."""
    return attempt.row.display_id.startswith(f"{job}_")


@contextlib.contextmanager
def play(folder: Path, prefix: Path | None) -> Iterator[Played]:
    """Start a sandbox of a release below `folder`, play all jobs on it and ingest them; end it afterwards."""
    with started_site(folder, prefix) as site:
        workload.submit_all(site)
        workload.drive(site)
        early = [name for name in workload.EARLY if name in site.jobs]
        wait_until(lambda: all(workload.has_ended(site, name) for name in early), "some jobs have ended")
        # A window ends before the second in which it is asked for.
        time.sleep(1.1)
        while_running = site.ingest("halves")
        first_half = site.attempts("halves") if while_running.status == 0 else []
        workload.let_end(site)
        workload.wait_ended(site)
        time.sleep(1.1)
        second, again, whole = site.ingest("halves"), site.ingest("halves"), site.ingest()
        assert (while_running.status, second.status, whole.status) == (0, 0, 0), whole.said
        yield Played(site, while_running, tuple(first_half), second, again, tuple(site.attempts()))
