"""Find which families would run longer with less, from the model in use.

The measured use of an attempt is a mean, and cannot show this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_plugin.cli.output import note
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from accounting.report.usage import Slowed
    from models.versions.artefact import StoredFamily


def slowed_by_model(config: Config) -> Mapping[tuple[str, str], Slowed]:
    """Return what would slow jobs, by user and family; empty without a model in use, or (with a note) if unreadable."""
    from accounting.damage import UNREADABLE
    from accounting.errors import ModelError
    from models.demand.slowed_families import slowed_families
    from models.past.families import renamed
    from models.versions.registry import current_version

    directory = Path(config.models.directory)
    version = current_version(directory)
    if version is None:
        return {}
    try:
        known = ((renamed(one.family), one.jobs, one.beside) for one in _families(directory / version))
        return slowed_families(known, config.policy.most_slowdown)
    except (ModelError, *UNREADABLE) as error:
        note(f"right sizes are computed from use alone: {error}")
        return {}


def _families(folder: Path) -> Iterator[StoredFamily]:
    from models.versions.artefact import HISTORY, read_part, stored_history

    _, families = stored_history(read_part(folder, HISTORY) or b"")
    return families
