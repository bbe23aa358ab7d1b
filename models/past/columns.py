"""Past attempts in columns: all that training and judging need of them, without a Python object for each. Pure.

`attempts.py` and `history.py` do the same job by job, for lookups by a service; tests keep the two alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from accounting.frames import Flags, Floats, Ints, floats, ints
from accounting.records import Attempt, JobRow, Use
from models.past.attempts import COMPLETE, FAILED
from models.past.families import GENERIC_NAMES, Family
from models.past.job_names import normal_name
from models.past.jobs import LEAST_CORES, LEAST_MIB, LEAST_WALL_S, Learned
from models.past.texts import Texts, texts_of

# The columns that are read from a table of attempts (accounting/frames.py).
COLUMNS = (
    "cluster", "job_id", "submit_s", "start_s", "end_s", "num_tasks", "asked_cpus", "asked_mem_mib", "asked_gpus",
    "limit_s", "user", "account", "partition", "qos", "job_name", "script_signature", "state", "outcome",
    "peak_mem_mib", "memory_quality", "nodes", "cores_per_task", "wall_s", "wall_quality", "gpus", "gpu_source",
    "alloc_cpus", "alloc_gpus", "alloc_mem_mib", "gpu_mem_mib", "gpu_quality", "input_mib", "step_cpus", "step_mem_mib",
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """One way to group jobs: the group of each, by its place in `names`; -1 if it is in none."""

    codes: Ints
    names: Sequence[Family]

    def part(self, rows: Flags) -> Kind:
        """Return the groups of some of the jobs."""
        return Kind(self.codes[rows], self.names)


@dataclass(frozen=True)
class PastColumns:
    """Attempts in columns, one row each, as `PastJob` and `JobRequest` have them; NaN = not known or not asked.

    `families` are the kinds of family, the narrowest first; `cohort` are the groups of `cohort_key` (families.py), and
    `by_limit` groups by limit. A text that is not known is ''.
    """

    cluster: Texts
    job_id: Ints
    submit_s: Ints
    start_s: Ints
    end_s: Ints
    started: Flags
    num_tasks: Ints
    asked_cpus: Floats
    asked_mem_mib: Floats
    asked_gpus: Floats
    limit_s: Floats
    complete: Flags
    mem_mib: Floats
    mem_at_least: Flags
    mem_short: Flags
    cores_per_task: Floats
    wall_s: Ints
    wall_at_least: Flags
    gpus: Floats
    gpu_source: Texts
    given_cpus: Floats
    given_gpus: Floats
    given_mem_mib: Floats
    gpu_mem_mib: Floats
    gpu_short: Flags
    user: Texts
    account: Texts
    partition: Texts
    qos: Texts
    job_name: Texts
    input_mib: Floats
    step_cpus: Floats
    step_mem_mib: Floats
    failed: Flags
    script: Texts
    families: tuple[Kind, ...]
    cohort: Kind
    by_limit: Kind

    def __len__(self) -> int:
        """Return the number of attempts."""
        return len(self.submit_s)

    def part(self, rows: Flags) -> PastColumns:
        """Return some of the attempts; the lists of names and words that codes refer to stay as they are."""
        columns = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "families"}
        some: dict[str, Any] = {
            name: column[rows] if isinstance(column, np.ndarray) else column.part(rows)
            for name, column in columns.items()
        }
        return replace(self, families=tuple(kind.part(rows) for kind in self.families), **some)

    @property
    def cpus_per_task(self) -> Floats:
        """CPUs per task that were asked for, at least 1; NaN if the job did not ask."""
        return np.maximum(self.asked_cpus // self.num_tasks, 1)

    @property
    def cpus(self) -> Floats:
        """CPUs that were asked for in all; a task that asks for none counts as one."""
        return np.nan_to_num(self.cpus_per_task, nan=1.0) * self.num_tasks

    def asked(self, dimension: Learned) -> Floats:
        """Return what each asked of a dimension, in the unit of `use`, at least 1; NaN if it did not ask."""
        columns: dict[Learned, Floats] = {
            "memory": self.asked_mem_mib,
            "cores": self.cpus_per_task,
            "wall": self.limit_s,
            "gpu_mem": np.full(len(self), np.nan),
        }
        return np.maximum(columns[dimension], 1)

    def use(self, dimension: Learned) -> Floats:
        """Return what each used of a dimension (MiB, cores per task, seconds), at least the smallest; NaN = unknown."""
        columns: dict[Learned, Floats] = {
            "memory": np.maximum(self.mem_mib, LEAST_MIB),
            "cores": np.maximum(self.cores_per_task, LEAST_CORES),
            "wall": np.maximum(self.wall_s.astype(np.float64), LEAST_WALL_S),
            "gpu_mem": np.maximum(self.gpu_mem_mib, LEAST_MIB),
        }
        return columns[dimension]

    def shows_need(self, dimension: Learned) -> Flags:
        """Return whether what each used is its need (`shows_need` in jobs.py)."""
        short = {"memory": self.mem_short, "gpu_mem": self.gpu_short}.get(dimension)
        return self.complete if short is None else self.complete & ~short

    @property
    def kinds(self) -> Ints:
        """The kind of each by what it had (`kind_of` in beside.py); -1 if not known."""
        fewer_cpus = self.given_cpus < self.asked_cpus
        less_memory = np.where(
            np.isnan(self.asked_mem_mib), fewer_cpus, self.given_mem_mib < self.asked_mem_mib
        )
        _, bits = np.frexp(np.ceil(np.nan_to_num(self.given_cpus) / self.num_tasks))
        told = self.complete & ~np.isnan(self.cores_per_task) & (self.given_cpus > 0)
        return np.where(told, 2 * fewer_cpus * bits + less_memory, -1)

    def metered_by(self, rows: Ints | slice = slice(None)) -> tuple[str, ...]:
        """Return which meters measured the GPUs of some attempts, or of all."""
        codes, words = self.gpu_source.codes[rows], self.gpu_source.words
        return tuple(sorted({words[code] for code in np.unique(codes)} - {""}))

    def by_end(self) -> Ints:
        """Return the rows that ever started, in the order in which they ended."""
        order = np.lexsort((np.arange(len(self)), self.end_s))
        return order[self.started[order]]


def columns_of(table: pa.Table) -> PastColumns:
    """Read COLUMNS from a table of attempts."""
    outcome, quality = texts_of(table["outcome"]), texts_of(table["memory_quality"])
    user, job_name, script = (texts_of(table[name]) for name in ("user", "job_name", "script_signature"))
    start_s = ints(table["start_s"])
    # As `is_counted_in_part` (attempts.py) says of one attempt.
    in_part = quality.is_any(("censored",)) & outcome.is_any(COMPLETE) & (ints(table["nodes"]) > 1)
    return PastColumns(
        cluster=texts_of(table["cluster"]),
        job_id=ints(table["job_id"]),
        submit_s=ints(table["submit_s"]),
        start_s=start_s,
        end_s=ints(table["end_s"]),
        started=(start_s > 0) & ~texts_of(table["wall_quality"]).is_any(("absent",)),
        num_tasks=ints(table["num_tasks"]),
        asked_cpus=floats(table["asked_cpus"]),
        asked_mem_mib=floats(table["asked_mem_mib"]),
        asked_gpus=floats(table["asked_gpus"]),
        limit_s=floats(table["limit_s"]),
        complete=outcome.is_any(COMPLETE),
        mem_mib=_finite(table["peak_mem_mib"]),
        mem_at_least=quality.is_any(("censored",)) & ~in_part,
        mem_short=quality.is_any(("short",)) | in_part,
        cores_per_task=_finite(table["cores_per_task"]),
        wall_s=ints(table["wall_s"]),
        wall_at_least=outcome.is_any(("timeout",)),
        gpus=floats(table["gpus"]),
        gpu_source=texts_of(table["gpu_source"]),
        given_cpus=floats(table["alloc_cpus"]),
        given_gpus=floats(table["alloc_gpus"]),
        given_mem_mib=floats(table["alloc_mem_mib"]),
        gpu_mem_mib=_finite(table["gpu_mem_mib"]),
        gpu_short=texts_of(table["gpu_quality"]).is_any(("short", "censored")),
        user=user,
        account=texts_of(table["account"]),
        partition=texts_of(table["partition"]),
        qos=texts_of(table["qos"]),
        job_name=job_name,
        input_mib=_finite(table["input_mib"]),
        step_cpus=floats(table["step_cpus"]),
        step_mem_mib=floats(table["step_mem_mib"]),
        failed=texts_of(table["state"]).is_any((FAILED,)),
        script=script,
        families=_families(user, job_name, script),
        cohort=Kind(user.codes, [("user", word) for word in user.words]),
        by_limit=_limits(floats(table["limit_s"])),
    )


def _limits(limit_s: Floats) -> Kind:
    different_s, codes = np.unique(np.nan_to_num(limit_s, nan=0.0), return_inverse=True)
    return Kind(codes, [("limit", str(int(one_s))) for one_s in different_s])


def _finite(column: pa.ChunkedArray) -> Floats:
    """Return figures; an infinite one is not known (NaN)."""
    found = floats(column)
    return np.where(np.isfinite(found), found, np.nan)


def columns_of_attempts(attempts: Sequence[Attempt]) -> PastColumns:
    """Return attempts in columns."""
    return columns_of(pa.table({name: _column(attempts, name) for name in COLUMNS}))


def _column(attempts: Sequence[Attempt], name: str) -> pa.Array:
    values: list[Any]
    if name in JobRow.__struct_fields__:
        values = [getattr(attempt.row, name) for attempt in attempts]
    elif name in Use.__struct_fields__:
        values = [getattr(attempt.use, name) for attempt in attempts]
    else:
        values = [getattr(attempt, name) for attempt in attempts]
    if any(isinstance(value, str) for value in values):
        return pa.array([value.encode(errors="surrogatepass") for value in values], pa.binary())
    return pa.array(values, pa.float64() if any(isinstance(value, float) for value in values) else pa.int64())


def _families(user: Texts, job_name: Texts, script: Texts) -> tuple[Kind, ...]:
    """Return the kinds of family_keys: by user, name and script, and by user and name."""
    normal = list(map(normal_name, job_name.words))
    names = list(dict.fromkeys(normal))
    places = {name: place for place, name in enumerate(names)}
    name = np.array([places[one] for one in normal], np.int64)[job_name.codes]
    told = np.array([word not in GENERIC_NAMES for word in names])[name]
    both = user.codes * len(names) + name
    pairs, pair = np.unique(both, return_inverse=True)
    triples, triple = np.unique(pair * len(script.words) + script.codes, return_inverse=True)

    def words(pair: int) -> tuple[str, str]:
        user_place, name_place = divmod(int(pairs[pair]), len(names))
        return user.words[user_place], names[name_place]

    narrow: list[Family] = [
        ("user+name+script", *words(code // len(script.words)), script.words[code % len(script.words)])
        for code in triples.tolist()
    ]
    wide: list[Family] = [("user+name", *words(code)) for code in range(len(pairs))]
    return (
        Kind(np.where(script.codes > 0, triple, -1), narrow),
        Kind(np.where(told, pair, -1), wide),
    )
