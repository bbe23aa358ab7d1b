"""From the store to the groups of a report, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from accounting.energy import EnergySite
from accounting.records import GpuUse
from accounting.report.energy import energy_columns
from accounting.report.groups import FamilyOf, Gathering, Groups
from accounting.report.selection import Selection, usage_query
from accounting.store.batches import count_rows, read_batches
from accounting.store.records import read_gpu_use

# Hears the share done (0..1) and how many rows that is.
Progress = Callable[[float, int], None]


def gather(
    engine: Engine,
    selection: Selection,
    keys: Sequence[str],
    family_of: FamilyOf,
    site: EnergySite | None = None,
    progress: Progress = lambda _done, _rows: None,
) -> Groups | None:
    """Return the selected attempts in groups of `keys` and family, with energy where `site` is given; None for none."""
    query = usage_query(selection, energy=site is not None)
    rows, read = count_rows(engine, query), 0
    gathering = Gathering(keys, family_of)
    for batch in read_batches(engine, query):
        gathering.add(batch, energy_columns(batch, _gpu_use(engine, batch), site) if site else None)
        read += batch.num_rows
        progress(min(1.0, read / max(1, rows)), read)
    return gathering.groups()


def _gpu_use(engine: Engine, batch: pa.Table) -> dict[int, list[GpuUse]]:
    with_gpus = batch.filter(pc.fill_null(pc.greater(batch["alloc_gpus"], 0), False))
    with engine.connect() as connection:
        return read_gpu_use(connection, with_gpus["job_id"].to_pylist())
