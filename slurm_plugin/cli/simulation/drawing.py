"""Draw the plot of a simulation; a file that cannot be written is a one-line error, not a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from accounting.errors import RightsizerError
from slurm_plugin.cli.output import note

if TYPE_CHECKING:
    from models.simulation.results import Results


def draw(ran: Mapping[str, Results], file: Path) -> None:
    """Draw utilisation over time, one line for each name; RightsizerError if the file cannot be written."""
    from slurm_plugin.cli.simulation.picture import draw_utilisation

    try:
        draw_utilisation(ran, file)
    except (OSError, ValueError) as error:
        raise RightsizerError(
            f"cannot draw {file}: {error}; give a file whose name ends in .png, .svg or .pdf"
        ) from None
    note(f"drawn: {file}")
