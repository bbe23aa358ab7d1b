"""What knowing the current queue brings a forecast: the day ahead, at many moments of two public traces.

    python -m bench.forecast_open_jobs [--traces DIR] [--what cores|jobs] [--moments N] [--format table|json|csv]

The store holds jobs that have ended. At each moment of the later half of Kabré's and MIT Supercloud's accounting
($RIGHTSIZER_TRACES, slurm/), the day ahead is forecast twice: from what had ended by then, and also with what was
pending and running then, as `rightsizer forecast` does with access to a queue. Errors are means over hours and moments,
in % of the error of the value at the moment itself, which nobody knows without the queue. Intervals are at 90 %, and
their widths in the unit. PCA+LSTM is left out: it gains nothing here and takes minutes (decision 0032).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from accounting.frames import Ints, ints
from accounting.store.database import open_store
from accounting.store.records import read_attempt_columns
from bench.arguments import add_traces, folder_with, parser_of
from models.forecast.demand import COLUMNS, Demand, What, demand_of
from models.forecast.forecasting import forecast
from models.forecast.methods import methods
from models.forecast.panel import DAY_S, Floats, Task, season_steps
from slurm_plugin.cli.forecast.command import learned_steps
from slurm_plugin.cli.output import print_rows, progress_bar

STEP_S, AHEAD, LEVEL = 3600, 24, 0.9
# How much of the past is used: the default of `rightsizer forecast`.
HISTORY = 60 * 24
FIRST_DAYS = 40
DUMPS = {
    "Kabré": ("kabre_sacct.psv.gz", ("--zone", "America/Costa_Rica")),
    "MIT Supercloud": ("mit_supercloud_slurmdbd.csv.gz", ("--zone", "UTC", "--gpu-tres", "1001,1002")),
}


class Told(NamedTuple):
    """A forecast of a day: its hourly errors, which hours were within their intervals, and the intervals' widths."""

    errors: Floats
    within: Floats
    widths: Floats


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    add_traces(parser)
    parser.add_argument("--what", choices=("cores", "jobs"), default="cores")
    parser.add_argument("--moments", type=int, default=30)
    arguments = parser.parse_args()
    folder = folder_with(arguments.traces, *(f"slurm/{name}" for name, _ in DUMPS.values())) / "slurm"
    rows: list[dict[str, object]] = []
    for site, (name, options) in DUMPS.items():
        attempts = attempts_of(folder / name, options)
        rows += site_rows(site, attempts, cast("What", arguments.what), arguments.moments)
    print_rows(rows, arguments.format, f"{arguments.what} that wait or run, the day ahead")


def attempts_of(dump: Path, options: tuple[str, ...]) -> pa.Table:
    """Return the attempts of a dump, as ingested."""
    with tempfile.TemporaryDirectory() as folder:
        url, config = f"sqlite:///{folder}/store.db", Path(folder) / "rightsizer.toml"
        config.write_text(f'[store]\nurl = "{url}"\n', encoding="utf-8")
        ingest = ("ingest", "--config", str(config), "--from-file", str(dump), "--cluster", "site", *options)
        subprocess.run((sys.executable, "-m", "slurm_plugin.cli", *ingest), check=True, capture_output=True)
        engine = open_store(url)
        try:
            return read_attempt_columns(engine, COLUMNS, [])
        finally:
            engine.dispose()


def site_rows(site: str, attempts: pa.Table, what: What, moments: int) -> list[dict[str, object]]:
    """Return a row for each way to forecast."""
    submit_s, end_s = ints(attempts["submit_s"]), ints(attempts["end_s"])
    # The true demand is known as far as the trace is complete.
    whole = demand_of(attempts, what, "all", STEP_S, 1)
    came = demand_of(attempts, what, "all", STEP_S, 1, known_until_s=int(end_s.max())).panel
    first_s = max(np.quantile(submit_s, 0.5), came.start_s + FIRST_DAYS * DAY_S)
    chosen = (
        np.linspace(first_s, whole.panel.end_s - AHEAD * STEP_S, moments).astype(np.int64) // STEP_S * STEP_S
    )
    told: dict[str, list[Told]] = {"what has ended": [], "and the queue": []}
    last = []
    with progress_bar(site) as progress:
        for done, now_s in enumerate(chosen.tolist(), start=1):
            place = (now_s - came.start_s) // STEP_S
            then = came.values[place : place + AHEAD, 0]
            last.append(np.abs(came.values[place - 1, 0] - then))
            for name, demand in zip(told, both(attempts, end_s, submit_s, now_s, what), strict=True):
                told[name].append(day_ahead(demand, now_s, then))
            progress(done / moments)
    floor = float(np.mean(last))
    return [
        {
            "site": site,
            "forecast from": name,
            "error in % of the last value's": round(
                100 * float(np.mean([one.errors for one in found])) / floor, 1
            ),
            "within 90 % (%)": round(100 * float(np.mean([one.within for one in found])), 1),
            "width": round(float(np.mean([one.widths for one in found])), 1),
            "mean demand": round(float(came.values.mean()), 1),
        }
        for name, found in told.items()
    ]


def both(attempts: pa.Table, end_s: Ints, submit_s: Ints, now_s: int, what: What) -> tuple[Demand, Demand]:
    """Return the demand as the store knows it at a moment, and with the queue of that moment."""
    ended = attempts.filter(pa.array(end_s <= now_s))
    waits_or_runs = attempts.filter(pa.array((submit_s < now_s) & (end_s > now_s)))
    place = waits_or_runs.column_names.index("end_s")
    now = pa.array(np.full(waits_or_runs.num_rows, now_s, np.int64))
    queue = waits_or_runs.set_column(place, attempts.schema.field("end_s"), now)
    return (
        demand_of(ended, what, "all", STEP_S, 1),
        demand_of(pa.concat_tables([ended, queue]), what, "all", STEP_S, 1, known_until_s=now_s),
    )


def day_ahead(demand: Demand, now_s: int, came: Floats) -> Told:
    """Forecast the day after a moment from a panel that ends there, or earlier."""
    left_out = (now_s - demand.panel.end_s) // STEP_S
    task = Task(left_out + AHEAD, season_steps(STEP_S), 0)
    panel = demand.panel.latest(learned_steps(task, HISTORY))
    found = forecast(panel, task, [one for one in methods() if "LSTM" not in one.name], LEVEL)
    value, low, high = (part[left_out:, 0] for part in (found.value, found.low, found.high))
    return Told(np.abs(value - came), ((low <= came) & (came <= high)).astype(np.float64), high - low)


if __name__ == "__main__":
    main()
