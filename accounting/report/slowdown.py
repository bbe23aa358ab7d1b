"""Whether cut jobs run longer: compares a family's cut jobs with those that had everything they asked for.

With fewer CPUs a job takes longer than foreseen if they were busy only for moments, and less memory leaves less for
the cache of files. No figure of a single job shows that.
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import pyarrow as pa
from sqlalchemy import Engine, select

from accounting.report.groups import FamilyOf
from accounting.report.selection import RAN, Selection
from accounting.store.batches import read_batches
from accounting.store.schema import attempts

COLUMNS = (
    "cluster", "user", "job_name", "script_signature", "partition", "wall_s", "asked_cpus", "alloc_cpus",
    "asked_mem_mib", "alloc_mem_mib", "asked_gpus", "alloc_gpus",
)  # fmt: skip
# The columns for what was asked and what was allocated, by resource.
AMOUNTS = {
    "CPUs": ("asked_cpus", "alloc_cpus"),
    "memory": ("asked_mem_mib", "alloc_mem_mib"),
    "GPUs": ("asked_gpus", "alloc_gpus"),
}
# With fewer on either side a median says little; of more, the latest are enough.
LEAST_JOBS, MOST_JOBS = 5, 1000
# The chance that a report calls any family slower by chance alone: one report in twenty.
CHANCE = 0.05
S_A_MINUTE, S_AN_HOUR = 60.0, 3600.0
# Had less of nothing.
ALL = frozenset[str]()


class Alike(NamedTuple):
    """What compared jobs have in common: their user, family, cluster and partition, and the CPUs that they asked for.

    Clusters have other machines, even if their partitions have the same names, and only one may be cutting.
    """

    user: str
    family: str
    cluster: str
    partition: str
    cpus: int


class Ran(NamedTuple):
    """A completed job: how long it ran (seconds), and of which resources it had less than it had asked for."""

    of: Alike
    wall_s: float
    less: frozenset[str]


class SlowdownRow(msgspec.Struct, frozen=True, kw_only=True):
    """A family's `cut` jobs, with the resources that were cut, and its `whole` ones: medians of their run times.

    `times` is the cut jobs' median run time divided by that of the others, `lost_h` the difference over all cut
    jobs, in hours of run time; `chance` is the probability of such a difference by chance, and `slower` says that
    this is too unlikely, given how many families are looked at.
    """

    user: str
    family: str
    cluster: str
    partition: str
    cpus: int
    less: str
    cut: int
    whole: int
    cut_min: float
    whole_min: float
    times: float
    lost_h: float
    chance: float
    slower: bool


def read_runs(engine: Engine, selection: Selection, family_of: FamilyOf) -> Iterator[Ran]:
    """Yield the selected attempts that completed, in the order of their ends."""
    query = (
        select(*(attempts.c[name] for name in COLUMNS))
        .where(*selection.conditions(), RAN, attempts.c.outcome == "completed")
        .order_by(attempts.c.end_s)
    )
    for batch in read_batches(engine, query):
        yield from runs_in(batch, family_of)


def runs_in(batch: pa.Table, family_of: FamilyOf) -> Iterator[Ran]:
    """Yield the runs in a table with COLUMNS; jobs whose request is not known are left out."""
    for row in batch.to_pylist():
        if row["asked_cpus"]:
            family = family_of(row["job_name"], row["script_signature"])
            alike = Alike(row["user"], family, row["cluster"], row["partition"], row["asked_cpus"])
            yield Ran(alike, float(row["wall_s"]), _less(row))


def _less(row: Mapping[str, int | None]) -> frozenset[str]:
    return frozenset(
        what
        for what, (asked, had) in AMOUNTS.items()
        if (row[asked] or 0) > (row[had] or 0) and row[had] is not None
    )


def slowdown_rows(runs: Iterable[Ran]) -> list[SlowdownRow]:
    """Return a row per family with enough jobs of both kinds, and per set of cut resources: slower ones first.

    Within that, the largest loss comes first. The longer run times are tested by ranks (Mann and Whitney, 1947),
    against all families that are looked at (Holm, 1979).
    """
    ran_s: defaultdict[tuple[Alike, frozenset[str]], deque[float]] = defaultdict(
        lambda: deque(maxlen=MOST_JOBS)
    )
    for run in runs:
        ran_s[run.of, run.less].append(run.wall_s)
    found = [
        _row(alike, less, cut_s, whole_s)
        for (alike, less), cut_s in ran_s.items()
        if less and len(cut_s) >= LEAST_JOBS and len(whole_s := ran_s.get((alike, ALL), ())) >= LEAST_JOBS
    ]
    slower, rows = True, []
    for place, row in enumerate(sorted(found, key=lambda row: row.chance)):
        slower = slower and row.chance * (len(found) - place) < CHANCE
        rows.append(msgspec.structs.replace(row, slower=slower))
    return sorted(rows, key=lambda row: (not row.slower, -row.lost_h, row.user, row.family))


def _row(alike: Alike, less: frozenset[str], cut_s: Iterable[float], whole_s: Iterable[float]) -> SlowdownRow:
    from scipy.stats import mannwhitneyu  # type: ignore[import-untyped]

    with_less, with_all = list(cut_s), list(whole_s)
    cut_median_s, whole_median_s = statistics.median(with_less), statistics.median(with_all)
    chance = float(mannwhitneyu(with_less, with_all, alternative="greater").pvalue)
    return SlowdownRow(
        user=alike.user,
        family=alike.family,
        cluster=alike.cluster,
        partition=alike.partition,
        cpus=alike.cpus,
        less=" and ".join(what for what in AMOUNTS if what in less),
        cut=len(with_less),
        whole=len(with_all),
        cut_min=round(cut_median_s / S_A_MINUTE, 2),
        whole_min=round(whole_median_s / S_A_MINUTE, 2),
        times=round(cut_median_s / whole_median_s, 3) if whole_median_s else 1.0,
        lost_h=round(len(with_less) * (cut_median_s - whole_median_s) / S_AN_HOUR, 2),
        chance=float(f"{chance:.2g}"),
        slower=False,
    )
