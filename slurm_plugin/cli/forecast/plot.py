"""The plot of `rightsizer forecast`: the past, the forecast, its interval. Needs matplotlib (the extra `plots`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from numpy.typing import NDArray

from accounting.errors import SeriesError
from models.forecast.forecasting import Forecast
from models.forecast.panel import Ints, Panel

matplotlib.use("Agg")
from matplotlib import pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, FAINT = "#0b6e99", "#9a9a9a"
DPI = 150
PANEL_INCHES = 2.0
# The number of past steps that are drawn for each step ahead; at least a season is drawn.
PAST_SHARE = 3


def plot(panel: Panel, found: Forecast, unit: str, level: float, file: Path) -> Path:
    """Draw the series one below the other; SeriesError if the file cannot be written."""
    count = len(panel.names)
    figure, grid = pyplot.subplots(
        count, 1, figsize=(9, 1 + PANEL_INCHES * count), sharex=True, squeeze=False, layout="constrained"
    )
    for series, axes in enumerate(grid[:, 0]):
        _draw(axes, panel, found, series)
        axes.set_title(panel.names[series], loc="left", fontsize=10)
        axes.set_ylabel(unit)
    grid[-1, 0].set_xlabel("UTC")
    figure.suptitle(f"Demand: the past, the forecast, and its {level:.0%} interval", fontsize=11)
    figure.autofmt_xdate()
    try:
        figure.savefig(file, dpi=DPI)
    except (OSError, ValueError) as error:
        raise SeriesError(f"cannot write the plot: {error}; give a PNG, SVG or PDF file") from None
    finally:
        pyplot.close(figure)
    return file


def _draw(axes: Axes, panel: Panel, found: Forecast, series: int) -> None:
    steps, ahead = len(panel.values), len(found.value)
    begin = max(0, steps - max(PAST_SHARE * ahead, 48))
    axes.plot(
        _times(panel, np.arange(begin, steps)), panel.values[begin:, series], color=FAINT, linewidth=1.2
    )
    times = _times(panel, np.arange(steps, steps + ahead))
    axes.fill_between(times, found.low[:, series], found.high[:, series], color=OURS, alpha=0.2, linewidth=0)
    axes.plot(times, found.value[:, series], color=OURS, linewidth=1.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(bottom=0)


def _times(panel: Panel, steps: Ints) -> NDArray[np.datetime64]:
    return (panel.start_s + steps * panel.step_s).astype("datetime64[s]")
