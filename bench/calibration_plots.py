"""Plots the result of bench.calibration as a PNG file. Needs matplotlib (the extra `plots`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from bench.panels import finish_panel, panels, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bench.measured import Point

WORDS = {
    "spread": "spread bound",
    "tail": "spread and streak",
    "mapped": "spread, risk mapped",
    "growth": "growth model",
    "granted": "jobs that were cut",
}
COLOURS = {"1-4": "#d1711f", "5-19": "#0b6e99", "20+": "#3b3b3b"}
SHUFFLED = " shuffled"
# A share of fewer jobs than this is mostly chance; anything below LEAST_PCT is drawn at the edge.
LEAST_JOBS, LEAST_PCT, MOST_PCT = 50, 0.05, 60.0
TICKS = [0.05, 0.1, 0.5, 1, 2, 5, 10, 50]


def plot_bounds(points: Sequence[Point], folder: Path) -> Path:
    """Plot observed against nominal shares: a row per bound, a column per trace; above the line is unsafe."""
    traces = list(dict.fromkeys(point.trace for point in points if not point.trace.endswith(SHUFFLED)))
    figure, grid = panels(len(WORDS), traces, "nominal (%)")
    for row, (bound, words) in enumerate(WORDS.items()):
        for axes, trace in zip(grid[row], traces, strict=True):
            of_panel = [p for p in points if p.bound == bound and p.trace.removesuffix(SHUFFLED) == trace]
            _panel(axes, of_panel)
        grid[row][0].set_ylabel(f"{words}\nobserved (%)")
    title = "Jobs that exceeded their bound, by the size of their family when they were submitted"
    return save(figure, title, _legend(), folder / "calibration.png")


def _panel(axes: Axes, points: Sequence[Point]) -> None:
    axes.plot([0.3, 8], [0.3, 8], color="black", linewidth=0.8, linestyle=":")
    for size, colour in COLOURS.items():
        for shuffled in (False, True):
            line = [
                point
                for point in points
                if point.size == size
                and point.trace.endswith(SHUFFLED) == shuffled
                and point.jobs >= LEAST_JOBS
            ]
            [drawn] = axes.plot(
                [100 * point.nominal for point in line],
                [_drawn(point.observed) for point in line],
                color=colour,
                linewidth=0.9 if shuffled else 1.5,
                linestyle="--" if shuffled else "-",
                marker="o",
                markersize=3.5,
                markerfacecolor="white" if shuffled else colour,
                clip_on=False,
                zorder=2 if shuffled else 3,
            )
            told = [point for point in line if point.expected is not None]
            [true] = axes.plot(
                [100 * point.nominal for point in told],
                [_drawn(point.expected or 0.0) for point in told],
                color=colour,
                linestyle="",
                marker="x",
                markersize=6,
                clip_on=False,
                zorder=4,
            )
            # Points on the edge must not push the panels apart.
            for artist in (drawn, true):
                artist.set_in_layout(False)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.35, 7)
    axes.set_ylim(LEAST_PCT, MOST_PCT)
    axes.set_xticks([0.5, 1, 2, 5], ["½", "1", "2", "5"])
    axes.set_yticks(TICKS, ["≤ 0.05", "0.1", "½", "1", "2", "5", "10", "50"])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    finish_panel(axes)


def _drawn(share: float) -> float:
    return math.nan if math.isnan(share) else min(max(100 * share, LEAST_PCT), MOST_PCT)


def _legend() -> list[Line2D]:
    sizes = [
        Line2D([], [], color=colour, marker="o", markersize=4, label=f"{size} earlier jobs")
        for size, colour in COLOURS.items()
    ]
    return [
        *sizes,
        Line2D(
            [], [], color="black", marker="o", markersize=4, markerfacecolor="white", linestyle="--",
            label="the same, shuffled",
        ),
        Line2D([], [], color="black", marker="x", linestyle="", label="by the true tails"),
        Line2D([], [], color="black", linestyle=":", linewidth=0.8, label="as it says"),
    ]  # fmt: skip
