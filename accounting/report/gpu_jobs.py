"""What jobs with GPUs were given, with counts, and what jobs with one GPU did with it.

The first is the usual mix of jobs, as Slurm has to place it; the second shows who would do with a part of a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import ColumnElement, Engine, and_, case, func, or_, select

from accounting.labels.gpus import SLURM
from accounting.report.groups import FamilyOf
from accounting.report.selection import RAN, Selection
from accounting.store.batches import read_batches
from accounting.store.schema import attempts, gpu_use


class Given(NamedTuple):
    """How many attempts were given these CPUs, this memory (MiB) and these GPUs, in total over `nodes` nodes."""

    cpus: int
    mem_mib: int
    gpus: int
    nodes: int
    attempts: int


def read_given(engine: Engine, selection: Selection) -> list[Given]:
    """Return what the selected attempts with GPUs were given; those that never ran, or lack amounts, are left out."""
    column = attempts.c
    amounts = (column.alloc_cpus, column.alloc_mem_mib, column.alloc_gpus, column.nodes)
    query = (
        select(*amounts, func.count())
        .where(*selection.conditions(), RAN, column.alloc_gpus > 0, column.nodes > 0)
        .where(column.alloc_cpus.is_not(None), column.alloc_mem_mib.is_not(None))
        .group_by(*amounts)
        .order_by(*amounts)
    )
    with engine.connect() as connection:
        return [Given(*row) for row in connection.execute(query)]


class OnOneGpu(NamedTuple):
    """An attempt that was given one GPU, when it ran (unix s), and what a meter saw of that GPU.

    `mem_mib` is the most memory used, `busy` the share of time (0..1) in which the GPU computed; None if not known.
    `is_measured`: it completed, and was watched all the time.
    """

    user: str
    family: str
    start_s: int
    end_s: int
    mem_mib: float | None
    busy: float | None
    is_measured: bool


def read_on_one_gpu(engine: Engine, selection: Selection, family_of: FamilyOf) -> Iterator[OnOneGpu]:
    """Yield the selected attempts that ran with one GPU, in no particular order.

    Slurm's own figures (gres/gpuutil) are maxima of a step: they do not show for how long a GPU was busy.
    """
    column = attempts.c
    names = (
        "user", "job_name", "script_signature", "outcome", "start_s", "end_s", "gpu_mem_mib", "gpu_quality",
        "gpu_source",
    )  # fmt: skip
    query = select(*(column[name] for name in names), _busy_pct()).where(
        *selection.conditions(), RAN, column.alloc_gpus == 1
    )
    for batch in read_batches(engine, query):
        for row in batch.to_pylist():
            is_metered = row["gpu_source"] not in ("", SLURM)
            busy_pct = row["busy_pct"]
            yield OnOneGpu(
                user=row["user"],
                family=family_of(row["job_name"], row["script_signature"]),
                start_s=row["start_s"],
                end_s=row["end_s"],
                mem_mib=row["gpu_mem_mib"],
                busy=busy_pct / 100 if is_metered and busy_pct is not None else None,
                is_measured=is_metered and row["outcome"] == "completed" and row["gpu_quality"] == "sampled",
            )


def _busy_pct() -> ColumnElement[float | None]:
    """Return the mean utilisation of an attempt's GPU over all samples; null if any samples lack it.

    If a meter saw the attempt on several GPUs, one of them did the work and the others idled: the busiest counts.
    """
    use, attempt = gpu_use.c, attempts.c
    mean = func.sum(use.util_mean_pct * use.samples) / func.sum(use.samples)
    seen = and_(
        use.job_id == attempt.job_id,
        or_(use.cluster == "", use.cluster == attempt.cluster),
        use.first_s <= attempt.end_s,
        use.last_s >= attempt.start_s,
    )
    untold = func.count() - func.count(use.util_mean_pct)
    by_gpu = select(case((untold == 0, mean))).where(seen).group_by(use.node, use.gpu, use.instance)
    busiest = by_gpu.order_by(untold.desc(), mean.desc()).limit(1)
    return busiest.correlate(attempts).scalar_subquery().label("busy_pct")
