"""The advisor's journal of cycles: one file a day, append only; `rightsizer ingest` reads them incrementally.

It decides how long they are kept: old files are removed, read or not, so that no disk fills up.
"""

from __future__ import annotations

from pathlib import Path

from accounting.errors import ServiceError
from accounting.journal.advice import CYCLES, Cycle, encode_cycle
from accounting.owned_files import fix_for
from slurm_plugin.day_files import append_line


def append_cycle(folder: Path, cycle: Cycle) -> None:
    """Append a cycle to the file of its day; raises ServiceError if the disk refuses it."""
    try:
        append_line(folder, CYCLES, cycle.time_s, encode_cycle(cycle))
    except OSError as error:
        fix = fix_for(error, "set advisor.directory to a folder that the advisor's user may write")
        raise ServiceError(f"cannot write cycles to {folder}: {error.strerror}; {fix}") from None
