"""Remove old versions of models, as `rightsizer train` does at its end; `rightsizer models --prune` shows which."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from accounting.units import counted
from slurm_plugin.cli.output import note, print_rows
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from models.versions.keeping import Keep


def keep_of(config: Config) -> Keep:
    """Return how many versions the site keeps, and for how long."""
    from models.versions.keeping import Keep

    return Keep(config.models.keep_days, config.models.keep_newest)


def show_standing(config: Config, output_format: str) -> None:
    """Print why each version stays, or that it would be removed, and say what else would be removed."""
    from models.versions.pruning import leftovers, size_mib, stays
    from slurm_plugin.service.decide import chain_settings_of

    directory = Path(config.models.directory)
    standing = stays(directory, keep_of(config), chain_settings_of(config), time.time())
    rows = [
        {
            "version": version,
            "goes": "" if why else "yes",
            "why": why or "no longer kept",
            "MiB": round(size_mib(directory / version), 1),
        }
        for version, why in standing.items()
    ]
    print_rows(rows, output_format)
    goes = [row for row in rows if row["goes"]]
    left = leftovers(directory)
    note(
        f"{len(goes)} of {counted(len(rows), 'version')} would be removed, and {counted(len(left), 'leftover')} of "
        "killed processes; --apply removes them now, and each `rightsizer train` does so too"
    )


def remove_old(config: Config) -> None:
    """Remove the versions that are no longer kept, and report that, and what could not be removed."""
    from models.versions.pruning import prune
    from slurm_plugin.service.decide import chain_settings_of

    pruned = prune(Path(config.models.directory), keep_of(config), chain_settings_of(config))
    if pruned.versions:
        note(f"{len(pruned.versions)} old models were removed: {', '.join(pruned.versions)}")
    if pruned.leftovers:
        note(f"{len(pruned.leftovers)} leftovers of killed processes were removed")
    for problem in pruned.problems:
        note(problem)
