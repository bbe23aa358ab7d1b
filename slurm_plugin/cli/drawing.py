"""Pictures of commands: a missing library or a file that cannot be written is one line, not a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from accounting.errors import RightsizerError
from slurm_plugin.cli.output import note

if TYPE_CHECKING:
    from models.simulation.results import Results


def check_plots() -> None:
    """End here, before anything is computed, where there is nothing to plot with."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise RightsizerError(
            "--plot needs matplotlib, which is not installed: pip install 'slurm-rightsizer[plots]'"
        ) from None


def draw(ran: Mapping[str, Results], file: Path) -> None:
    """Draw utilisation over time, one line for each name; RightsizerError where the file cannot be written."""
    from slurm_plugin.cli.simulated_picture import draw_utilisation

    try:
        draw_utilisation(ran, file)
    except (OSError, ValueError) as error:
        raise RightsizerError(
            f"{file} is not drawn: {error}; give a file ending in .png, .svg or .pdf"
        ) from None
    note(f"drawn: {file}")
