"""Look at the brakes' folder; changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from accounting.damage import UNREADABLE
from slurm_plugin.brakes.pulled import pulled_file
from slurm_plugin.brakes.watch import EVIDENCE, Kept
from slurm_plugin.config.settings import Brakes
from slurm_plugin.doctor.seen import BrakesSeen


def look_at_brakes(settings: Brakes) -> BrakesSeen:
    """Return the pulled brakes and the counts of failed jobs; OSError if they are hidden."""
    folder = Path(settings.directory)
    stopped, closed = pulled_file(settings).read(), "" if _may_write(folder) else str(folder)
    try:
        kept = msgspec.json.decode((folder / EVIDENCE).read_bytes(), type=Kept)
    except (FileNotFoundError, NotADirectoryError):
        kept = Kept()
    except UNREADABLE:
        lost = f"the counts of failed jobs are lost ({folder / EVIDENCE} is damaged)"
        return BrakesSeen(stopped=stopped, lost=lost, closed=closed)
    everything = kept.evidence.of_all
    counts = everything.tally.counts
    for portion in everything.portions.values():
        counts += portion.counts
    return BrakesSeen(stopped=stopped, counts=counts, closed=closed)


def _may_write(folder: Path) -> bool:
    """Whether a folder may be read and written or, if it does not exist, created in its parent.

    If its parent does not exist either, the service creates both at its first start.
    """
    there = next((one for one in (folder, folder.parent) if one.exists()), None)
    return there is None or os.access(there, os.R_OK | os.W_OK | os.X_OK)
