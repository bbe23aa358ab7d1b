"""Plots the results of `python -m bench.paper_experiments`. Needs matplotlib (the extra `plots`).

Every picture says that its load is made up from published averages.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy
from matplotlib.lines import Line2D

from bench.panels import finish_panel, panels, save
from bench.paper_cases import MAIN_MIX, MOST_LOAD, PREMISES, WAYS, Case, Measured, Way, of_way
from bench.paper_load import ALIKE, HOUR_S, MIXES
from models.simulation.results import Outcome, Results

COLOURS = ("#888888", "#4477aa", "#66ccee", "#ee6677", "#aa3377")
MADE_UP = "load made up from published averages"
Cases = Mapping[Case, Measured]


def draw(first: Cases, second: Cases, third: Cases, folder: Path) -> list[Path]:
    """Plot the three experiments into a folder and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        draw_completion(first, "premise", PREMISES, folder / "experiment_1.png", "Experiment 1: FIFO"),
        draw_completion(
            second,
            "mix",
            tuple(MIXES),
            folder / "experiment_2.png",
            "Experiment 2",
        ),
        draw_orders(third, folder / "experiment_3.png"),
    ]


def legend() -> list[Line2D]:
    """Return a line for each way of sizing."""
    return [
        Line2D([], [], color=colour, marker="o", label=way) for way, colour in zip(WAYS, COLOURS, strict=True)
    ]


def draw_completion(cases: Cases, field: str, values: tuple[str, ...], file: Path, title: str) -> Path:
    """Plot completion over load, one panel for each value of a field."""
    figure, grid = panels(1, values, "jobs an hour")
    for axes, value in zip(grid[0], values, strict=True):
        for way, colour in zip(WAYS, COLOURS, strict=True):
            found = of_way(cases, way, habits=ALIKE, **{field: value})
            axes.plot(
                [case.load for case, _ in found],
                [100 * one.completion for _, one in found],
                color=colour,
                marker="o",
            )
        finish_panel(axes)
    grid[0][0].set_ylabel("finished / (finished + queued), %")
    return save(figure, f"{title} ({MADE_UP})", legend(), file)


def draw_orders(cases: Cases, file: Path) -> Path:
    """Plot completion and allocation at the highest load, one panel per figure, one group per order."""
    figures = {"completion": "completion", "CPU": "cpu", "GPU": "gpu", "memory": "mem"}
    orders = list(dict.fromkeys(case.ordering for case in cases))
    figure, grid = panels(1, tuple(figures), "")
    for axes, name in zip(grid[0], figures.values(), strict=True):
        for place, (way, colour) in enumerate(zip(WAYS, COLOURS, strict=True)):
            values = [
                100
                * getattr(
                    cases[Case(load=MOST_LOAD, way=way, ordering=order, premise=PREMISES[1], mix=MAIN_MIX)],
                    name,
                )
                for order in orders
            ]
            axes.bar([at + 0.17 * place for at in range(len(orders))], values, width=0.15, color=colour)
        axes.set_xticks([at + 0.34 for at in range(len(orders))], [order.upper() for order in orders])
        finish_panel(axes)
    grid[0][0].set_ylabel("%")
    return save(figure, f"Experiment 3 at {MOST_LOAD} jobs an hour ({MADE_UP})", legend(), file)


def draw_over_time(ran: Mapping[Way, Results], folder: Path) -> Path:
    """Plot allocation and completion rate of one load from hour to hour, one line per way."""
    names = ("CPU", "memory", "GPU")
    figure, grid = panels(1, (*names, "completion"), "hours")
    for (way, results), colour in zip(ran.items(), COLOURS, strict=True):
        hours = [moment.at_s / HOUR_S for moment in results.moments]
        for part, axes in enumerate(grid[0][: len(names)]):
            shares = [100 * moment.allocated[part] / results.total[part] for moment in results.moments]
            axes.plot(hours, shares, color=colour, drawstyle="steps-post", label=way)
        grid[0][len(names)].plot(hours, completion_over_time(results), color=colour, drawstyle="steps-post")
    for axes in grid[0]:
        finish_panel(axes)
    grid[0][0].set_ylabel("%")
    title = f"{MOST_LOAD} jobs an hour, FIFO, {PREMISES[1]} ({MADE_UP})"
    return save(figure, title, legend(), folder / "experiment_1_over_time.png")


def completion_over_time(results: Results) -> list[float]:
    """Return for each moment what had finished, in per cent of that plus what was waiting."""
    ends_s = numpy.sort(results.end_s[results.outcome == Outcome.COMPLETED])
    finished = [int(numpy.searchsorted(ends_s, moment.at_s, side="right")) for moment in results.moments]
    return [
        100 * done / max(1, done + moment.waiting)
        for done, moment in zip(finished, results.moments, strict=True)
    ]
