"""Panels side by side: a row per view, a column per trace. Needs matplotlib (the extra `plots`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

PANEL_INCHES, EDGE_INCHES, LEGEND_INCHES = 2.4, 1.1, 1.7
FAINT = "#e6e6e6"
DPI = 150


def panels(rows: int, traces: Sequence[str], x_label: str) -> tuple[Figure, Any]:
    """Return a figure and its grid of axes (rows × traces) with shared scales."""
    figure, grid = pyplot.subplots(
        rows,
        len(traces),
        figsize=(EDGE_INCHES + PANEL_INCHES * len(traces), EDGE_INCHES + PANEL_INCHES * rows),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    for axes, trace in zip(grid[0], traces, strict=True):
        axes.set_title(trace, loc="left", fontsize=11)
    for axes in grid[-1]:
        axes.set_xlabel(x_label)
    return figure, grid


def finish_panel(axes: Axes) -> None:
    """Draw faint grid lines, and no frame at the top and right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="both", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def save(figure: Figure, title: str, legend: Sequence[Line2D], file: Path) -> Path:
    """Write a figure with its title and legend."""
    columns = min(len(legend), max(1, int(figure.get_figwidth() / LEGEND_INCHES)))
    figure.legend(handles=list(legend), loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, wrap=True)
    return write(figure, file)


def write(figure: Figure, file: Path) -> Path:
    """Write a figure as it is."""
    figure.savefig(file, dpi=DPI)
    pyplot.close(figure)
    return file
