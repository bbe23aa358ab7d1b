"""The demand from which `rightsizer forecast` forecasts, out of the store or a CSV file, with notes about it."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from accounting.errors import SeriesError
from accounting.units import counted
from slurm_plugin.cli.output import note
from slurm_plugin.cli.simulation.replay_past import one_cluster
from slurm_plugin.cli.spans import DAY_S
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from accounting.report.selection import Selection
    from models.forecast.demand import By, Demand, What
    from models.forecast.panel import Panel

# If the store ends longer ago, a note says that the forecast is not about the future.
OLD_S = DAY_S


class Past(NamedTuple):
    """The demand to forecast from, and how many steps after it are in the past and so not shown."""

    panel: Panel
    left_out: int


def from_csv(file: Path, step_s: int) -> Past:
    """Return the demand in a CSV file, and say what was filled in or left out; SeriesError names the file."""
    from models.forecast.series import panel_of, read_table

    try:
        with file.open(encoding="utf-8", newline="") as lines:
            read = panel_of(read_table(lines), step_s)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise SeriesError(f"cannot read {file}: {why}; give a CSV of times and demand") from None
    except (SeriesError, csv.Error) as error:
        raise SeriesError(f"{file}: {error}") from None
    for line in read.notes:
        note(line)
    return Past(read.panel, 0)


def from_store(
    config: Config,
    selection: Selection,
    what: What,
    by: By,
    step_s: int,
    top: int,
    most_steps: Callable[[int], int],
) -> Past:
    """Return the demand in the configured store and the queue, and say where it ends.

    If the queue cannot be counted, say how much of the end was left out. `most_steps` is that of `demand_of`. Raises
    RightsizerError if the store has several clusters and none is named: their partitions may have the same names.
    """
    import pyarrow as pa

    from accounting.ingest.ingesting import SACCT
    from accounting.store.records import read_attempt_columns, submissions, windows_read
    from models.forecast.demand import COLUMNS, demand_of
    from slurm_plugin.cli.forecast.open_jobs import open_jobs

    with opened_store(config) as engine:
        with engine.connect() as connection:
            submitted, read_until_s = submissions(connection), windows_read(connection, SACCT)
        if submitted:
            cluster = one_cluster(submitted, selection.cluster)
            selection = msgspec.structs.replace(selection, cluster=cluster)
        attempts = read_attempt_columns(engine, COLUMNS, selection.conditions())
    if submitted and not attempts.num_rows:
        raise SeriesError("the store has no attempt of this selection; select differently, or a longer time")
    found = open_jobs(config, selection, step_s, read_until_s)
    if isinstance(found, str):
        if found:
            note(f"the jobs that wait and run now are not counted: {found}")
        demand = demand_of(attempts, what, by, step_s, top, most_steps)
    else:
        note(f"counted too: {counted(found.attempts.num_rows, 'job')} waiting or running now")
        attempts = pa.concat_tables([attempts, found.attempts.cast(attempts.schema)])
        demand = demand_of(attempts, what, by, step_s, top, most_steps, found.known_until_s, found.missed_s)
        if demand.left_out:
            note(_missed_in_words(demand.left_out * step_s, found.missed_s))
            return Past(demand.panel, demand.left_out)
    tell_end(demand, step_s, time.time(), is_chosen=selection.until_s is not None)
    return Past(demand.panel, demand.left_out)


def _missed_in_words(span_s: int, missed_s: float) -> str:
    from models.forecast.demand import KNOWN_SHARE
    from models.forecast.forecasting import span_text

    return (
        f"the last {span_text(span_s)} are forecast again and not shown: accounting was last read "
        f"{span_text(round(missed_s))} ago, and more than {1 - KNOWN_SHARE:.0%} of what waited and ran then has "
        "probably ended since; run `rightsizer ingest` first"
    )


def tell_end(demand: Demand, step_s: int, now_s: float, *, is_chosen: bool) -> None:
    """Say how much of the end is forecast again, and, unless the user chose the end, if the end is long past."""
    from models.forecast.demand import KNOWN_SHARE
    from models.forecast.forecasting import span_text

    if demand.left_out:
        span = span_text(demand.left_out * step_s)
        note(
            f"the last {span} of the store are forecast again and not shown: less than {KNOWN_SHARE:.0%} "
            "of the jobs that waited and ran then are likely to have ended, and jobs are stored only "
            "after they have ended"
        )
    end_s = demand.panel.end_s + demand.left_out * step_s
    if now_s - end_s > OLD_S + step_s and not is_chosen:
        at = datetime.fromtimestamp(end_s, timezone.utc)
        note(
            f"the store ends {span_text(int(now_s - end_s))} ago, at {at:%Y-%m-%dT%H:%MZ}: this is what followed then, "
            "not what comes now; run `rightsizer ingest` first for that"
        )
