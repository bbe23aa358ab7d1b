"""Looks at the brakes' folder, and changes nothing of it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from accounting.damage import UNREADABLE
from slurm_plugin.brakes.pulled import pulled_file
from slurm_plugin.brakes.watch import EVIDENCE, Kept
from slurm_plugin.config import Brakes
from slurm_plugin.doctor.seen import BrakesSeen


def look_at_brakes(settings: Brakes) -> BrakesSeen:
    """Return what there is to see; OSError where that is hidden."""
    folder = Path(settings.directory)
    stopped = pulled_file(settings).read()
    try:
        kept = msgspec.json.decode((folder / EVIDENCE).read_bytes(), type=Kept)
    except (FileNotFoundError, NotADirectoryError):
        kept = Kept()
    except UNREADABLE:
        return BrakesSeen(stopped=stopped, lost=f"what was counted is lost ({folder / EVIDENCE} is damaged)")
    everything = kept.evidence.of_all
    counts = everything.tally.counts
    for portion in everything.portions.values():
        counts += portion.counts
    return BrakesSeen(stopped=stopped, counts=counts)
