"""Pictures of commands: a missing library or a file that cannot be written is one line, not a traceback."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accounting.errors import RightsizerError
from slurm_plugin.cli.output import note

if TYPE_CHECKING:
    from models.simulation.results import Results


# What each of our pictures can be, by the end of its file's name.
SUFFIXES = (".png", ".svg", ".pdf")


def check_plots(file: Path) -> None:
    """End here, before anything is computed, where there is nothing to plot with, or no way to write this file."""
    if file.suffix.lower() not in SUFFIXES:
        raise click.UsageError(f"--plot {file}: give a file ending in {', '.join(SUFFIXES)}")
    folder = file.absolute().parent
    if not os.access(f"{folder}/.", os.X_OK, effective_ids=True):
        raise click.UsageError(
            f"--plot {file}: there is no folder {folder} that you may enter; choose another"
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise RightsizerError(
            "--plot needs matplotlib, which is not installed: pip install 'slurm-rightsizer[plots]'"
        )


def draw(ran: Mapping[str, Results], file: Path) -> None:
    """Draw utilisation over time, one line for each name; RightsizerError where the file cannot be written."""
    from slurm_plugin.cli.simulation.picture import draw_utilisation

    try:
        draw_utilisation(ran, file)
    except (OSError, ValueError) as error:
        raise RightsizerError(
            f"{file} is not drawn: {error}; give a file ending in .png, .svg or .pdf"
        ) from None
    note(f"drawn: {file}")
