"""Check that a command can draw its picture, before anything is computed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import click

from accounting.errors import RightsizerError, install_with

# The file formats of our pictures, by suffix.
SUFFIXES = (".png", ".svg", ".pdf")


def check_plots(file: Path) -> None:
    """Raise UsageError for an unknown suffix or an unusable folder, RightsizerError if matplotlib is missing."""
    if file.suffix.lower() not in SUFFIXES:
        raise click.UsageError(f"--plot {file}: give a file whose name ends in {', '.join(SUFFIXES)}")
    folder = file.absolute().parent
    if not os.access(f"{folder}/.", os.W_OK | os.X_OK, effective_ids=True):
        raise click.UsageError(
            f"--plot {file}: the folder {folder} does not exist, or you may not write there; choose another"
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise RightsizerError(f"--plot needs matplotlib, which is not installed: {install_with('plots')}")
