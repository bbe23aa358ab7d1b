"""Who may report on which job's GPUs: those whom the site trusts on all, a user on the user's own jobs.

A user's lines wait until sacct shows whose the job is: by a stored attempt with that number at that time. Names in
the store may be pseudonyms; a uid's name is then hidden in the same way.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sqlalchemy import Engine

from accounting.gpu_spool.files import Owners
from accounting.records import GpuUse
from accounting.store.records import Ran, read_runs
from accounting.unnamed import nobody

# By how much a node's clock may be off when a job starts and ends.
SLACK_S = 300


def owners_of(engine: Engine, ours: Iterable[Path], hide: Callable[[str], str]) -> Owners:
    """Return who is trusted, and whose jobs are whose. `ours` are folders that the site gave to those it trusts."""
    trusted = {0, os.geteuid(), *filter(None, map(_owner, ours))} - {nobody()}

    def verdicts(uid: int, uses: Sequence[GpuUse]) -> list[bool | None]:
        name = "" if uid == nobody() else _name(uid)
        if not name:
            return [False] * len(uses)
        with engine.connect() as connection:
            runs = read_runs(connection, sorted({use.job_id for use in uses}))
        return [is_his(use, runs.get(use.job_id, ()), hide(name)) for use in uses]

    return Owners(frozenset(trusted), verdicts)


def is_his(use: GpuUse, runs: Sequence[Ran], user: str) -> bool | None:
    """Whether a use is of a user's job, given the runs known under its number; None if none was at that time.

    Numbers recur: after a requeue, in another cluster, and when slurmctld starts numbering anew.
    """
    then = [run for run in runs if use.may_be_of(run.cluster) and _is_during(use, run)]
    return all(run.user == user for run in then) if then else None


def _is_during(use: GpuUse, run: Ran) -> bool:
    return run.start_s - SLACK_S <= use.first_s and use.last_s <= run.end_s + SLACK_S


def _owner(folder: Path) -> int | None:
    try:
        return folder.stat().st_uid
    except OSError:
        return None


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return ""
