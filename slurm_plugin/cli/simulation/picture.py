"""Plot what was in use over the time of a simulation. Needs matplotlib (the extra `plots`); writes one file.

A file that cannot be written is a one-line error, not a traceback.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy

from accounting.errors import RightsizerError
from models.simulation.results import Results
from slurm_plugin.cli.output import note

matplotlib.use("Agg")
from matplotlib import pyplot

RESOURCES = ("CPU", "memory", "GPU")
WAITING = "waiting jobs"


def draw(ran: Mapping[str, Results], file: Path) -> None:
    """Draw utilisation over time, one line for each name; RightsizerError if the file cannot be written."""
    try:
        _draw(ran, file)
    except (OSError, ValueError) as error:
        raise RightsizerError(
            f"cannot draw {file}: {error}; give a file whose name ends in .png, .svg or .pdf"
        ) from None
    note(f"drawn: {file}")


def _draw(ran: Mapping[str, Results], file: Path) -> None:
    """Draw how much of each resource was allocated, in per cent, and how many jobs waited, a line for each name."""
    there = [any(amounts) for amounts in zip(*(results.total for results in ran.values()), strict=True)]
    rows = [*(name for name, is_there in zip(RESOURCES, there, strict=True) if is_there), WAITING]
    figure, grid = pyplot.subplots(
        len(rows), 1, figsize=(9, 2 * len(rows)), layout="constrained", sharex=True
    )
    for name, results in ran.items():
        hours = numpy.array([moment.at_s for moment in results.moments]) / 3600
        allocated = numpy.array([moment.allocated for moment in results.moments], dtype=float).T
        total = numpy.maximum(numpy.array(results.total, dtype=float), 1)[:, None]
        shares = (100 * allocated / total)[there]
        waiting = numpy.array([moment.waiting for moment in results.moments])
        for axes, values in zip(grid, (*shares, waiting), strict=True):
            axes.step(hours, values, where="post", label=name, linewidth=1)
    for axes, label in zip(grid, rows, strict=True):
        axes.set_ylabel(label if label == WAITING else f"{label} (%)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0)
    grid[-1].set_xlabel("hours")
    grid[0].legend(loc="upper right", frameon=False, ncols=len(ran))
    figure.savefig(file, dpi=150)
    pyplot.close(figure)
