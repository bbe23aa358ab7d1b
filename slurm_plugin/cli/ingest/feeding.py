"""Feed a running service from `rightsizer ingest`: jobs that ended recently, and corrections to them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accounting.owned_files import fix_for
from accounting.presence import is_folder
from models.past.recent import finished
from models.versions import registry
from models.versions.feed import append_jobs, remove_covered
from slurm_plugin.cli.output import note

if TYPE_CHECKING:
    from accounting.ingest.run import HandOn
    from accounting.records import Attempt


def feed_of(models: Path) -> HandOn:
    """Return a function that appends jobs to the feed of a registry; it does nothing while there is no registry.

    If the feed cannot be written, a note says so once and ingest goes on: those jobs count from the next training on.
    """
    said = False

    def hand_on(new: Sequence[Attempt], changed: Sequence[Attempt]) -> None:
        nonlocal said
        now_s = time.time()
        try:
            if not (new or changed) or not is_folder(models):
                return
            told = [finished(attempt, now_s) for attempt in new]
            told += [finished(attempt, now_s, corrects=True) for attempt in changed]
            append_jobs(models, filter(None, told), now_s)
        except OSError as error:
            if not said:
                fix = fix_for(error, "let the user who ingests write to models.directory")
                note(
                    "new jobs count only from the next training on: cannot write "
                    f"{error.filename or models}: {error.strerror}; {fix}"
                )
            said = True

    return hand_on


def tidy_feed(models: Path) -> None:
    """Remove from a registry's feed what the current model was trained on."""
    try:
        remove_covered(models, registry.current_version(models), time.time())
    except OSError as error:
        note(
            f"cannot remove old days of {models}/recent: {error.strerror}; let the user who ingests write "
            "there"
        )
