"""`rightsizer forecast`: forecast the demand of the next hours or days, from the store or from a CSV file."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from slurm_plugin.cli.forecast.past import from_csv, from_store
from slurm_plugin.cli.given_options import refuse_given
from slurm_plugin.cli.number_range import NumberRange
from slurm_plugin.cli.output import config_option, format_option, note, print_rows, progress_bar
from slurm_plugin.cli.plot_check import check_plots
from slurm_plugin.cli.report.options import SELECTING, selection_options
from slurm_plugin.cli.spans import DAY_S, span_option
from slurm_plugin.cli.stored import check_store
from slurm_plugin.config.file import load_config

if TYPE_CHECKING:
    from accounting.report.selection import Selection
    from models.forecast.demand import By, What
    from models.forecast.forecasting import Forecast
    from models.forecast.panel import Panel, Task

MOST_STEPS = 2000
COLUMN = {"jobs": "jobs", "cores": "cores", "gpus": "gpus", "memory": "memory_mib"}


@click.command("forecast")
@click.option(
    "--by",
    type=click.Choice(["all", "partition", "account"]),
    default="all",
    show_default=True,
    help="What each series stands for.",
)
@click.option(
    "--what",
    type=click.Choice(list(COLUMN)),
    default="cores",
    show_default=True,
    help="The demand to forecast.",
)
@span_option("horizon", "24h", "How far ahead to forecast.")
@span_option("step", "1h", "The length of a step; values are means over a step.")
@span_option("history", "60d", "Learn from at most this much of the past.")
@click.option(
    "--level",
    type=NumberRange(0.5, 0.99),
    default=0.9,
    show_default=True,
    help="The probability that a value lies within its interval.",
)
@click.option(
    "--top", type=click.IntRange(1), default=10, show_default=True, help="Show only this many groups."
)
@click.option(
    "--from-csv",
    "csv_file",
    type=click.Path(path_type=Path),
    help="Read a CSV file instead of the store: a column of times, then one column per series.",
)
@click.option(
    "--plot", "plot_file", type=click.Path(path_type=Path), help="Also draw the forecast (PNG, SVG or PDF)."
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the models' random numbers."
)
@selection_options
@config_option
@format_option
def forecast(
    by: str,
    what: str,
    horizon_s: int,
    step_s: int,
    history_s: int,
    level: float,
    top: int,
    csv_file: Path | None,
    plot_file: Path | None,
    seed: int,
    config_file: str | None,
    output_format: str,
    selection: Selection,
) -> None:
    """Forecast demand: the jobs, cores, GPUs or memory (MiB) that wait or run, as means over each step.

    Every model is tried from many points of the past. For each series and each distance, the model that was best there
    is used. The column "weight" says how much it counts, which depends on how reliably it was better; the rest is
    seasonal naive: the value of a day before (of a week before, with steps of a day). A model that does not beat
    seasonal naive is not used. Intervals are computed from the errors made in the past.

    The forecast starts at the end of the store or of the selected attempts: with --until it forecasts what followed
    some day of the past. If the store has several clusters, name one.

    \b
    Example:
      rightsizer forecast --by partition --what gpus --horizon 24h --plot gpus.png
      rightsizer forecast --cluster alpha --partition gpu --until 2026-01-01
    """
    if DAY_S % step_s and step_s % DAY_S:
        raise click.UsageError("--step must divide a day, or be a whole number of days: 5m, 1h, 6h, 1d")
    if horizon_s % step_s:
        raise click.UsageError("--horizon must be a whole number of --step")
    if plot_file:
        check_plots(plot_file)
    config = load_config(config_file)
    if csv_file:
        refuse_given(
            "by",
            "what",
            "top",
            *SELECTING,
            why="cannot be combined with --from-csv, because the CSV file defines its own series",
        )
    else:
        check_store(config)
    from models.forecast.panel import Task, season_steps

    def task_of(left_out: int) -> Task:
        return Task(left_out + horizon_s // step_s, season_steps(step_s), seed)

    def learned(left_out: int) -> int:
        return learned_steps(task_of(left_out), history_s // step_s)

    past = (
        from_csv(csv_file, step_s)
        if csv_file
        else from_store(config, selection, cast("What", what), cast("By", by), step_s, top, learned)
    )
    task, panel = task_of(past.left_out), past.panel.latest(learned(past.left_out))
    found = forecast_panel(panel, task, level)
    unit = "value" if csv_file else COLUMN[what]
    print_rows(rows_of(panel, found, past.left_out, unit), output_format)
    for line in choice_lines(panel, found, past.left_out):
        note(line)
    if plot_file:
        from slurm_plugin.cli.forecast.plot import plot

        note(f"wrote {plot(panel, found, unit, level, plot_file)}")


def learned_steps(task: Task, history: int) -> int:
    """Return how many past steps to learn from: at least what is needed, and few enough to take only minutes."""
    return max(task.least_steps, min(history, max(MOST_STEPS, 2 * task.least_steps)))


def forecast_panel(panel: Panel, task: Task, level: float) -> Forecast:
    """Return the forecast, and say which models cannot run here."""
    from models.forecast.forecasting import forecast as forecast_all_of
    from models.forecast.methods import methods

    with progress_bar("trying out models") as progress:
        found = forecast_all_of(panel, task, methods(), level, progress)
    for method in methods():
        if method.missing:
            note(f"{method.name} is not used: it {method.missing}")
    return found


def rows_of(panel: Panel, found: Forecast, left_out: int, unit: str) -> list[dict[str, object]]:
    """Return a row for each series and step ahead."""
    return [
        {
            "series": name,
            "time": _time(panel.end_s + lead * panel.step_s),
            unit: round(float(found.value[lead, series]), 2),
            "low": round(float(found.low[lead, series]), 2),
            "high": round(float(found.high[lead, series]), 2),
            "model": found.method(lead, series),
            "weight": round(found.weight(lead, series), 2),
        }
        for series, name in enumerate(panel.names)
        for lead in range(left_out, len(found.value))
    ]


def choice_lines(panel: Panel, found: Forecast, left_out: int) -> list[str]:
    """Return a line for each series: its models, at how many steps each is used, and its past error there."""
    return [
        f"{name}: {_models(found, range(left_out, len(found.value)), series)}"
        for series, name in enumerate(panel.names)
    ]


def _models(found: Forecast, leads: range, series: int) -> str:
    """Return the models of a series in words; the one that is used at most steps comes first."""
    floor, told = found.methods[0], dict[str, list[float]]()
    for lead in leads:
        ratio = float(found.choice.chosen_ratios[lead, series])
        told.setdefault(found.method(lead, series), []).append(ratio)
    if list(told) == [floor]:
        return f"{floor} at all {len(leads)} steps: no model was reliably better"
    words = [
        f"{model} at {len(ratios)}" + (f" ({sum(ratios) / len(ratios):.0%})" if model != floor else "")
        for model, ratios in sorted(told.items(), key=lambda one: -len(one[1]))
    ]
    return f"{', '.join(words)} of {len(leads)} steps (%: its past error as a share of that of {floor})"


def _time(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, timezone.utc).strftime("%Y-%m-%dT%H:%MZ")
