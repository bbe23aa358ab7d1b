"""Look at the journal's links and at recovery; changes nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from accounting.journal.chain_check import HARMLESS
from accounting.journal.chains import chains_in, check_chain
from accounting.key_file import journal_key
from slurm_plugin.config.settings import Config
from slurm_plugin.doctor.seen import ChainSeen, RecoverySeen
from slurm_plugin.recovery.journal import LAST_ROUND, Journal
from slurm_plugin.recovery.mending import LOOKED_BACK_S

# Yesterday's and today's; `rightsizer audit` reads all of them.
LATEST_FILES = 2


def look_at_chains(config: Config) -> ChainSeen:
    """Return what is wrong with the newest files of the journal.

    Raises ConfigError if their key cannot be read, OSError if their folder cannot.
    """
    key, folder = journal_key(config.service.journal_key), Path(config.service.journal)
    with suppress(FileNotFoundError):
        os.scandir(folder).close()  # raises for a closed folder; a glob there would silently find nothing
    lines, broken, linked_by_key = 0, list[str](), True
    for name, files in chains_in(folder).items():
        check = check_chain(name, files, key, latest=LATEST_FILES)
        found = [one for one in check.finish() if one.kind not in HARMLESS]
        broken += [f"{one.place.file}:{one.place.line} {one.kind}" for one in found]
        lines += check.lines
        linked_by_key = linked_by_key and check.newest_is_keyed
    return ChainSeen(lines=lines, broken=tuple(broken), has_key=bool(key), linked_by_key=linked_by_key)


def look_at_recovery(config: Config, now_s: float) -> RecoverySeen:
    """Return when recovery's last round was, and which recoveries are not finished.

    Raises OSError or StoreError if its folder may not be read.
    """
    folder = Path(config.recovery.directory)
    enforced = "enforce" in (config.mode, *(rule.mode for rule in config.rules))
    try:
        last_s = (folder / LAST_ROUND).stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        last_s = None
    entries = Journal(folder).newest(now_s - LOOKED_BACK_S).values() if last_s is not None else ()
    return RecoverySeen(
        folder=str(folder),
        enforced=enforced,
        period_s=config.recovery.period_s,
        last_round_s=last_s,
        begun_s=tuple(entry.time_s for entry in entries if entry.what == "begun"),
    )
