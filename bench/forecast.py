"""Forecasts of the GPUs that eight virtual clusters of SenseTime's Earth asked for, an hour and a day ahead.

    python -m bench.forecast [--traces DIR] [--what gpus|jobs] [--seed N]
        [--show errors|goals|choice] [--format table|json|csv]

Hourly means of what was running and pending in May 2020 ($RIGHTSIZER_TRACES, queue/helios_earth_*.csv.gz). The
origin rolls hour by hour over the last seventeen days; models are fitted again every other day, on what is known
then. The method that forecasts each series, and its weight against seasonal naive, is chosen again at every origin
by errors known there (models/forecast/choice.py).

Errors are mean absolute errors, in % of that of seasonal naive (the same hour a day before) at the same origins: a
series with a mean of 0.1 GPUs counts as much as one of 200, for which WMAPE would divide by hardly anything. An
hour ahead, nothing beats the last value, which a day ahead is seasonal naive itself: its row is the second floor.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.arguments import add_traces, folder_with, parser_of, print_tables
from bench.figures import goal
from models.forecast.backtest import Backtest, backtest
from models.forecast.choice import Choice, choose, forecasts_of, margins
from models.forecast.methods import Method, methods
from models.forecast.panel import DAY_S, Floats, Panel, Task, season_steps
from models.forecast.series import panel_of, read_table
from slurm_plugin.cli.output import progress_bar

FILES = "queue/helios_earth_*.csv.gz"
STEP_S = 3600
LEADS = (1, 24)
FIRST_TRIAL, FIRST_JUDGED = 7 * DAY_S // STEP_S, 14 * DAY_S // STEP_S
REFIT_EVERY = 48
LEVEL = 0.9
CHOSEN = "chosen"
COLUMN = {"gpus": ("running_gpu_num", "pending_gpu_num"), "jobs": ("running_job_num", "pending_job_num")}


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    add_traces(parser)
    parser.add_argument("--what", choices=list(COLUMN), default="gpus")
    parser.add_argument(
        "--show", choices=("errors", "goals", "choice"), help="one table; else all, of json and csv errors"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    files = sorted(folder_with(arguments.traces, FILES).glob(FILES))
    judged = Judged(read_panel(files, arguments.what), methods(), arguments.seed)
    tables = {
        "errors": (
            "Mean absolute error in % of that of seasonal naive, from every hour of the last 17 days",
            judged.error_rows(),
        ),
        "goals": ("Goals", judged.goal_rows()),
        "choice": ("How much each counts in what is chosen, in %, mean of all origins", judged.choice_rows()),
    }
    print_tables(tables, arguments)


def read_panel(files: list[Path], what: str) -> Panel:
    """Return what was running and pending in each cluster, as hourly means."""
    columns = []
    for file in files:
        with gzip.open(file, "rt") as lines:
            read = panel_of(read_table(lines, COLUMN[what]), STEP_S)
        columns.append(read.panel.values.sum(axis=1))
    names = tuple(file.name.removeprefix("helios_earth_").removesuffix(".csv.gz") for file in files)
    return Panel(names, np.column_stack(columns), read.panel.start_s, STEP_S)


class Judged:
    """All forecasts of all origins, and the chosen methods' at each: origins × leads × series, with two ends each."""

    def __init__(self, panel: Panel, methods: Sequence[Method], seed: int = 0) -> None:
        self.names = panel.names
        self.missing = {method.name: method.missing for method in methods if method.missing}
        task = Task(horizon=max(LEADS), season=season_steps(STEP_S), seed=seed)
        origins = np.arange(FIRST_TRIAL, len(panel.values))
        with progress_bar("trying models") as progress:
            self.test = backtest(panel, task, methods, origins, REFIT_EVERY, progress)
        self.of_judged = origins >= FIRST_JUDGED
        self.chosen, self.low, self.high, self.counts = _chosen(self.test, self.of_judged)
        self.came = self.test.came[self.of_judged]

    def errors(self, lead: int) -> dict[str, Floats]:
        """Return each method's mean absolute error at a lead, by series; NaN if it cannot run."""
        found = dict(zip(self.test.methods, self.test.forecasts[:, self.of_judged], strict=True))
        came = self.came[:, lead - 1]
        there = ~np.isnan(came[:, 0])
        errors = {}
        for name, forecasts in {**found, CHOSEN: self.chosen}.items():
            errors[name] = np.abs(forecasts[there, lead - 1] - came[there]).mean(axis=0)
        return errors

    def covered(self, lead: int) -> Floats:
        """Return the share of values within their interval, by series."""
        came = self.came[:, lead - 1]
        there = ~np.isnan(came[:, 0])
        low, high = self.low[there, lead - 1], self.high[there, lead - 1]
        shares: Floats = ((low <= came[there]) & (came[there] <= high)).mean(axis=0)
        return shares

    def error_rows(self) -> list[dict[str, object]]:
        """Return a row for each lead and method: its error relative to the floor's in each series, and the means."""
        rows: list[dict[str, object]] = []
        for lead in LEADS:
            errors = self.errors(lead)
            floor = errors[self.test.methods[0]]
            share = 100 / np.where(floor > 0, floor, np.nan)
            for name, error in errors.items():
                words = f"{name} {self.missing[name]}" if name in self.missing else name
                rows.append(_row(lead, words, share * error, self.names))
            rows.append(_row(lead, "its mean absolute error itself", floor, self.names))
            rows.append(
                _row(lead, f"chosen: came within {LEVEL:.0%}, %", 100 * self.covered(lead), self.names)
            )
        return rows

    def goal_rows(self) -> list[dict[str, object]]:
        """Return a row for each goal."""
        rows = []
        for lead in LEADS:
            errors = self.errors(lead)
            ratios = 100 * errors[CHOSEN] / errors[self.test.methods[0]]
            where = f"{lead} h ahead"
            rows.append(
                goal("the chosen, in % of seasonal naive", where, float(ratios.mean()), 100, at_most=True)
            )
            rows.append(goal("… its worst series", where, float(ratios.max()), 100, at_most=True))
            rows.append(
                goal(
                    "came within its interval (%)",
                    where,
                    100 * float(self.covered(lead).mean()),
                    100 * LEVEL - 5,
                    at_most=False,
                )
            )
        return rows

    def choice_rows(self) -> list[dict[str, object]]:
        """Return a row for each lead and method: its weight, as the mean over all origins."""
        return [
            {"lead": f"{lead} h", "method": name}
            | {
                series: round(100 * float(self.counts[:, number, lead - 1, place].mean()))
                for place, series in enumerate(self.names)
            }
            for lead in LEADS
            for number, name in enumerate(self.test.methods)
        ]


def _chosen(test: Backtest, of_judged: np.ndarray) -> tuple[Floats, Floats, Floats, np.ndarray]:
    """Return the choice at each origin by what was known there, the ends of its interval, and the methods' weights."""
    value, low, high, counts = [], [], [], []
    for place in np.flatnonzero(of_judged):
        known = int(test.origins[place])
        choice = choose(test, known)
        forecast = forecasts_of(choice, test.forecasts[:, place])
        below, above = margins(test, choice, known, LEVEL)
        value.append(forecast)
        low.append(np.maximum(forecast + np.minimum(below, 0), 0))
        high.append(forecast + np.maximum(above, 0))
        counts.append(_counts(choice, len(test.methods)))
    return np.array(value), np.array(low), np.array(high), np.array(counts)


def _counts(choice: Choice, methods: int) -> Floats:
    """Return the weight of each method: methods × leads × series, summing to 1."""
    counts = np.zeros((methods, *choice.methods.shape))
    np.put_along_axis(counts, choice.methods[None], choice.weights[None], axis=0)
    counts[0] = 1 - counts[1:].sum(axis=0)
    return counts


def _row(lead: int, name: str, figures: Floats, names: tuple[str, ...]) -> dict[str, object]:
    """Return a row of figures and their means; None for unknown ones."""
    geometric = np.exp(np.log(figures).mean()) if (figures > 0).all() else np.nan
    columns = {**dict(zip(names, figures, strict=True)), "mean": figures.mean(), "geometric": geometric}
    told = {
        column: None if np.isnan(figure) else round(float(figure), 3) for column, figure in columns.items()
    }
    return {"lead": f"{lead} h", "method": name, **told}


if __name__ == "__main__":
    main()
