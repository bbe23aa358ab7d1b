"""A history of all that columns hold, as if added job by job; objects that are never looked up are not made. Pure."""

from __future__ import annotations

import itertools

import numpy as np

from accounting.frames import Floats, Ints
from models.past.beside import BESIDE
from models.past.columns import PastColumns
from models.past.families import Family
from models.past.held import HeldByUsers
from models.past.history import History
from models.past.jobs import LEARNED, Learned, PastJob
from models.past.rows import past_jobs
from models.past.texts import Texts

# A family, and the rows of its last jobs and of older ones to remember.
Group = tuple[Family, list[int], list[int]]


def history_of(past: PastColumns, recent_jobs: int) -> History:
    """Return the history that all of `past` leaves, as if it had been added job by job."""
    history, by_end = History(recent_jobs), past.by_end()
    for dimension in LEARNED:
        counted = by_end[~np.isnan(past.gpu_mem_mib[by_end])] if dimension == "gpu_mem" else by_end
        _count(history.held[dimension], past.user, counted, _held(past, dimension)[counted])
    groups = _groups(past, by_end, recent_jobs)
    jobs = _jobs_in(past, groups)
    for family, rows, beside in groups:
        history.load(family, [jobs[row] for row in rows], [jobs[row] for row in beside])
    history.keep_recent()
    return history


def _jobs_in(past: PastColumns, groups: list[Group]) -> dict[int, PastJob]:
    """Return the jobs of all groups by their rows, each made once: most are in several groups."""
    rows = list(dict.fromkeys(row for _, kept, beside in groups for row in (*beside, *kept)))
    return dict(zip(rows, past_jobs(past, np.array(rows, np.int64)), strict=True))


def _count(site: HeldByUsers, users: Texts, rows: Ints, held: Floats) -> None:
    """Count what these rows held, by user; summed in the order of a replay."""
    codes = users.codes[rows]
    jobs, amounts = np.bincount(codes), np.bincount(codes, weights=held)
    for code in np.flatnonzero(jobs).tolist():
        site.add(users.words[code], float(amounts[code]), int(jobs[code]))


def _held(past: PastColumns, dimension: Learned) -> Floats:
    """Return `held_by` of each attempt."""
    asked = {
        "memory": past.asked_mem_mib,
        "cores": past.asked_cpus,
        "wall": np.ones(len(past)),
        "gpu_mem": np.full(len(past), np.nan),
    }[dimension]
    used = np.nan_to_num(past.use(dimension), nan=0.0)
    return np.where(np.isnan(asked), used, asked) * past.use("wall")


def _groups(past: PastColumns, by_end: Ints, recent_jobs: int) -> list[Group]:
    """Return the last rows of every group, and older ones to remember, in the order a history meets the groups."""
    found: list[tuple[tuple[int, int], Family, list[int], list[int]]] = []
    kinds = past.kinds
    for place, kind in enumerate((*past.families, past.cohort, past.by_limit)):
        codes = kind.codes[by_end]
        ranks = np.flatnonzero(codes >= 0)
        ranks = ranks[np.argsort(codes[ranks], kind="stable")]
        bounds = [*np.flatnonzero(np.diff(codes[ranks], prepend=-1)).tolist(), len(ranks)]
        for begin, end in itertools.pairwise(bounds):
            first = int(ranks[begin])
            middle = max(begin, end - recent_jobs)
            older = by_end[ranks[begin:middle]] if place < len(past.families) else by_end[:0]
            kept, beside = by_end[ranks[middle:end]].tolist(), _last_of_each(older, kinds[older])
            found.append(((first, place), kind.names[codes[first]], kept, beside))
    return [(family, rows, beside) for _, family, rows, beside in sorted(found, key=lambda one: one[0])]


def _last_of_each(rows: Ints, kinds: Ints) -> list[int]:
    """Return the last rows of each kind."""
    # Most families have no older rows, and there may be a million families.
    different = np.unique(kinds[kinds >= 0]) if len(rows) else ()
    return [row for kind in different for row in rows[kinds == kind][-BESIDE:].tolist()]
