"""Reads a report's groups from the store, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine, Select

from accounting.labels.energy import EnergySite
from accounting.records import GpuUse
from accounting.report.energy import energy_columns
from accounting.report.groups import SEPARATOR, FamilyOf, Gathering, Groups, group_keys
from accounting.report.selection import Selection, usage_query
from accounting.report.spreads import Percentiles, Spreading
from accounting.store.batches import count_rows, read_batches
from accounting.store.records import read_gpu_use
from accounting.store.schema import KEYS_A_QUERY, attempts

# Called with the share done (0..1) and the number of rows read.
Progress = Callable[[float, int], None]


def silent(_done: float, _rows: int) -> None:
    """Report nothing."""


def gather(
    engine: Engine,
    selection: Selection,
    keys: Sequence[str],
    family_of: FamilyOf,
    site: EnergySite | None = None,
    progress: Progress = silent,
) -> Groups | None:
    """Return the selected attempts by `keys` and family, with energy if `site` is given; None if there are none."""
    gathering = Gathering(keys, family_of)
    for batch in counted_batches(engine, usage_query(selection, energy=site is not None), progress):
        gathering.add(batch, energy_columns(batch, _gpu_use(engine, batch), site) if site else None)
    return gathering.groups()


def read_percentiles(
    engine: Engine,
    selection: Selection,
    keys: Sequence[str],
    family_of: FamilyOf | None,
    wanted: Sequence[str],
    shares: Sequence[float],
    progress: Progress = silent,
) -> Percentiles:
    """Read the selected attempts again, for percentiles of the groups with the keys `wanted`.

    Keys consist of the columns `keys`, and the family if `family_of` is given.
    """
    query = usage_query(selection)
    firsts = {key.split(SEPARATOR, 1)[0] for key in wanted}
    if len(firsts) <= KEYS_A_QUERY:
        query = query.where(attempts.c[keys[0]].in_(sorted(firsts)))
    spreading = Spreading(wanted)
    for batch in counted_batches(engine, query, progress):
        spreading.add(batch, group_keys(batch, keys, family_of))
    return spreading.percentiles(shares)


def counted_batches(
    engine: Engine, query: Select[tuple[object, ...]], progress: Progress
) -> Iterator[pa.Table]:
    """Yield a query's rows in tables of bounded size, and report progress after each."""
    rows, read = count_rows(engine, query), 0
    for batch in read_batches(engine, query):
        yield batch
        read += batch.num_rows
        progress(min(1.0, read / max(1, rows)), read)


def _gpu_use(engine: Engine, batch: pa.Table) -> dict[int, list[GpuUse]]:
    # Slurm records no GPUs if AccountingStorageTRES does not name them; a meter's record shows in what was used.
    on_gpus = pc.or_kleene(pc.greater(batch["alloc_gpus"], 0), pc.is_valid(batch["gpus"]))
    with engine.connect() as connection:
        return read_gpu_use(connection, batch.filter(on_gpus)["job_id"].to_pylist())
