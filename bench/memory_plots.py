"""Plots the result of bench.memory_sizing as a PNG file. Needs matplotlib (the extra `plots`)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.lines import Line2D

from bench.memory_peers import ORACLE, PEERS
from bench.panels import FAINT, finish_panel, panels, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bench.measured import Sizing

OURS_NAME, COLD = "rightsizer", "nothing"
OURS, PEER, FLOOR = "#0b6e99", "#d1711f", "#9a9a9a"
LETTERS = {"max+15%": "o", "Witt p99": "s", "Tovar": "^", "VPA": "D"}
MOST_FAILED_PCT = 1.0


def plot_sizings(sizings: Sequence[Sizing], folder: Path, decide_at: str) -> Path:
    """Plot waste against failed jobs, one panel per trace: left of the line and low is good."""
    traces = list(dict.fromkeys(one.trace for one in sizings))
    warm = [False, True] if any(one.known != COLD for one in sizings) else [False]
    figure, grid = panels(len(warm), traces, "failed jobs (%)")
    for row, is_warm in enumerate(warm):
        for axes, trace in zip(grid[row], traces, strict=True):
            _panel(axes, [one for one in sizings if one.trace == trace and (one.known != COLD) == is_warm])
        grid[row][0].set_ylabel("waste (% of the request's)" + (", warm" if is_warm else ""))
    title = f"Memory sized at {decide_at}, by what had ended before"
    return save(figure, title, _legend(), folder / f"memory_sizing_{decide_at}.png")


def _panel(axes: Axes, sizings: Sequence[Sizing]) -> None:
    """Draw one trace: the mean over seeds if there are several."""
    for method in (*PEERS, ORACLE, OURS_NAME):
        found = [one for one in sizings if one.method == method]
        waste = 100 * statistics.mean(one.waste for one in found)
        failed = 100 * statistics.mean(one.failed for one in found)
        if method == ORACLE:
            axes.axhline(waste, color=FLOOR, linewidth=1.2, linestyle="--", zorder=1)
            continue
        ours = method == OURS_NAME
        axes.scatter(
            failed,
            waste,
            marker="*" if ours else LETTERS[method],
            s=150 if ours else 38,
            color=OURS if ours else PEER,
            zorder=3 if ours else 2,
        )
    axes.axvline(MOST_FAILED_PCT, color="black", linewidth=0.8, linestyle=":")
    axes.axhline(100, color=FAINT, linewidth=1.2)
    # Linear up to the limit, so that zero failures has a place too.
    axes.set_xscale("symlog", linthresh=MOST_FAILED_PCT, linscale=1.2)
    axes.set_xlim(-0.05, 25)
    axes.set_xticks([0, 0.5, 1, 2, 5, 10, 20], ["0", "½", "1", "2", "5", "10", "20"])
    axes.set_xticks([], minor=True)
    axes.set_ylim(0, None)
    finish_panel(axes)


def _legend() -> list[Line2D]:
    peers = [
        Line2D([], [], marker=LETTERS[name], linestyle="", color=PEER, markersize=6, label=name)
        for name in PEERS
    ]
    return [
        Line2D([], [], marker="*", linestyle="", color=OURS, markersize=12, label=OURS_NAME),
        *peers,
        Line2D([], [], color=FLOOR, linestyle="--", label="oracle"),
        Line2D([], [], color="black", linestyle=":", linewidth=0.8, label="1 % failed"),
    ]
