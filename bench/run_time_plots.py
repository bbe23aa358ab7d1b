"""Plots the results of bench.run_time_table as PNG files. Needs matplotlib (the extra `plots`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib import pyplot
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from bench.panels import finish_panel, write
from bench.run_time_sweep import THETAS, USUAL, WANTED_WMAPE, Learned, Point
from models.run_time.regression import FOREST, XGBOOST

OURS, PEER, FAINT = "#0b6e99", "#d1711f", "#9a9a9a"
PANELS: dict[str, Callable[[Point], float]] = {
    "core hours saved (%)": lambda point: point.saved_cores,
    "GiB hours saved (%)": lambda point: point.saved_memory,
    "predicted change of run time (%)": lambda point: point.changed_share,
    "jobs left below their memory peak (%)": lambda point: point.short_of_memory,
}


def plot_errors(learned: Sequence[Learned], folder: Path) -> Path:
    """Plot the error of each type by both methods, the largest at the top, against the goal."""
    by_error = sorted(learned, key=lambda one: one.judged.errors[XGBOOST].wmape)
    figure, axes = pyplot.subplots(figsize=(8, 1.6 + 0.22 * len(by_error)), layout="constrained")
    for place, one in enumerate(by_error):
        ours, peer = (100 * one.judged.errors[method].wmape for method in (XGBOOST, FOREST))
        axes.plot([ours, peer], [place, place], color=FAINT, linewidth=1, zorder=1)
        axes.scatter(peer, place, color=PEER, s=26, zorder=2)
        axes.scatter(ours, place, color=OURS, s=26, zorder=3)
    axes.axvline(100 * WANTED_WMAPE, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(by_error)), [one.traced.name for one in by_error], fontsize=8)
    axes.set_ylim(-0.7, len(by_error) - 0.3)
    axes.set_xscale("log")
    ticks = [1, 2, 5, 10, 15, 25, 50, 100]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("WMAPE of run time on later jobs (%, logarithmic)")
    axes.set_title("Run time by the resources used, by type of job", loc="left", fontsize=11)
    finish_panel(axes)
    axes.legend(
        handles=[
            Line2D([], [], marker="o", linestyle="", color=OURS, label="XGBoost"),
            Line2D([], [], marker="o", linestyle="", color=PEER, label="random forest"),
            Line2D([], [], color="black", linestyle=":", linewidth=0.8, label="goal: 15 %"),
        ],
        loc="lower right",
        frameon=False,
    )
    return write(figure, folder / "run_time_errors.png")


def plot_sweep(points: Sequence[Point], folder: Path) -> Path:
    """Plot what Algorithm 1 saves and costs over α, one line per θ: as in the paper above, with a floor below."""
    figure, grid = pyplot.subplots(
        2, len(PANELS), figsize=(13, 6.4), sharex=True, sharey="col", layout="constrained"
    )
    colours = pyplot.get_cmap("viridis")([number / len(THETAS) for number in range(len(THETAS))])
    for row, (floor, words) in enumerate(((False, "as in the paper"), (True, "kept above past use"))):
        for axes, (title, figure_of) in zip(grid[row], PANELS.items(), strict=True):
            for theta, colour in zip(THETAS, colours, strict=True):
                line = _line(points, theta, figure_of, floor=floor)
                axes.plot(*zip(*line, strict=True), color=colour, marker="o", markersize=3, linewidth=1.4)
            if not row:
                axes.set_title(title, loc="left", fontsize=10)
            finish_panel(axes)
        grid[row][0].set_ylabel(words)
    for axes in grid[1]:
        axes.set_xlabel("first rate α (share of the request)")
    figure.legend(
        handles=[
            Line2D([], [], color=colour, marker="o", markersize=3, label=f"θ = {theta:g}")
            for theta, colour in zip(THETAS, colours, strict=True)
        ],
        loc="outside lower center",
        ncols=len(THETAS),
        frameon=False,
    )
    figure.suptitle(f"Algorithm 1 on the requests of later jobs (Δα = {USUAL.step:g})", x=0.01, ha="left")
    return write(figure, folder / "adaptive_scaling.png")


def _line(
    points: Sequence[Point], theta: float, figure_of: Callable[[Point], float], *, floor: bool
) -> list[tuple[float, float]]:
    """Return (α, %) for the points of one θ at the usual step."""
    return sorted(
        (point.setting.scaling.alpha, 100 * figure_of(point))
        for point in points
        if point.setting.floor == floor
        and point.setting.scaling.theta == theta
        and point.setting.scaling.step == USUAL.step
    )
