"""Look at the advisor's folder; changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from accounting.journal.advice import CYCLES
from slurm_plugin.config.settings import Advisor
from slurm_plugin.doctor.seen import AdvisorSeen
from slurm_plugin.slurm.factor_log import FactorLog, now
from slurm_plugin.slurm.factor_state import in_force
from slurm_plugin.slurm.lease import is_over

# Written at the end of each cycle by advisor/state_file.py, which is not imported because it imports the planner.
STATE = "state.json"


def look_at_advisor(settings: Advisor) -> AdvisorSeen:
    """Return the advisor's state; StoreError if the state of its factors is damaged, OSError if it is hidden."""
    folder = Path(settings.directory)
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return AdvisorSeen(folder=str(folder), period_s=settings.period_s)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return AdvisorSeen(folder=str(folder), period_s=settings.period_s, is_there=True)
    state = FactorLog(folder, "").read()
    kept = folder / STATE
    return AdvisorSeen(
        folder=str(folder),
        period_s=settings.period_s,
        is_there=True,
        is_ours=True,
        factors=len(in_force(state)),
        lease_is_over=is_over(state.lease, now()),
        last_cycle_s=kept.stat().st_mtime if kept.exists() else None,
        sizes={file.name: file.stat().st_size for file in folder.glob(CYCLES)},
    )
