"""`rightsizer audit`: check that the journal is as it was written, and agrees with store, tokens and Slurm."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accounting.errors import StoreError
from accounting.units import counted
from slurm_plugin.cli.output import (
    EXIT_PROBLEMS,
    config_option,
    format_option,
    note,
    print_rows,
    progress_bar,
)
from slurm_plugin.cli.spans import span_option
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.file import load_config
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from accounting.audit.agreement import Disagreement
    from accounting.audit.jobs import Compared
    from accounting.audit.journal import ChainReport

Row = dict[str, object]
COLUMNS = ("state", "where", "what", "journal", "token", "store", "Slurm")


@click.command("audit")
@click.option(
    "--journal",
    "only_journal",
    is_flag=True,
    help="Check only the links of the journal; read neither the store nor Slurm.",
)
@span_option("last", "7d", "Compare the jobs that ended within this time.")
@config_option
@format_option
def audit(only_journal: bool, last_s: int, config_file: str | None, output_format: str) -> None:
    """Check the decision journal, and compare it with the store, the jobs' tokens and Slurm's figures.

    Every line of the journal is linked to the line before it. The command names the file and line that was changed,
    removed, inserted or moved; a write that a crash cut off counts as none of these. It asks Slurm for the jobs anew.
    If the sources disagree about a field, it shows the value that each of them has. It changes nothing.

    Exit code 3: there are problems. If only Slurm's figures differ, that is a warning: Slurm rounds, and people change
    waiting jobs.

    \b
    Example:
      rightsizer audit
      rightsizer audit --journal --format json
      rightsizer audit --last 30d
    """
    from accounting.key_file import journal_key

    config = load_config(config_file)
    key = journal_key(config.service.journal_key)
    chains, jobs = read_all(config, key, last_s, only_journal=only_journal)
    rows = [*chain_rows(chains), *(job_rows(jobs.found) if jobs else ())]
    if rows or output_format != "table":
        print_rows(rows, output_format, columns=COLUMNS)
    say(chains, jobs, keyed=bool(key))
    problems = sum(row["state"] == "problem" for row in rows)
    if problems:
        note(f"{problems} problems")
        sys.exit(EXIT_PROBLEMS)
    note("everything that was compared agrees" if not rows else "no problem")


def read_all(
    config: Config, key: bytes, last_s: int, *, only_journal: bool
) -> tuple[list[ChainReport], Compared | None]:
    """Return the findings about the journal and about jobs; the latter are None with `only_journal`.

    With `only_journal`, raises StoreError if the journal's folder does not exist or cannot be read.
    """
    from accounting.audit.journal import audit_journal, refuse_closed

    folder = Path(config.service.journal)
    if only_journal:
        refuse_closed(folder)
        return audit_journal(folder, key, None), None
    from accounting.audit.jobs import compare_jobs
    from accounting.audit.journal import journalled_from_s
    from accounting.ingest.ingesting import source_of
    from accounting.store.records import earliest_end_s
    from slurm_plugin.cli.ingest.settings import settings_of

    now_s = int(time.time())
    with opened_store(config) as engine:
        # A host that only ingests has no journal, but its jobs can be compared all the same.
        try:
            refuse_closed(folder)
        except StoreError as error:
            note(str(error))
        settings = settings_of(config)
        with engine.connect() as connection, progress_bar("comparing jobs") as progress:
            chains = audit_journal(folder, key, connection, settings.pseudonyms, settings.reader)
            # Begin no earlier than the oldest stored job: before it nothing can be compared, and Slurm would be asked
            # for every single day.
            since_s = max(now_s - last_s, (earliest_end_s(connection) or 1) - 1)
            jobs = compare_jobs(
                connection,
                source_of(settings, now_s),
                since_s,
                now_s,
                settings.pseudonyms,
                journalled_from_s(folder),
                progress,
            )
    return chains, jobs


def chain_rows(chains: Sequence[ChainReport]) -> Iterator[Row]:
    """Yield a row for each thing that is wrong with the journal."""
    from accounting.journal.chain_check import HARMLESS

    for chain in chains:
        for one in chain.found:
            yield {
                "state": "warning" if one.kind in HARMLESS else "problem",
                "where": f"{one.place.file}:{one.place.line}" if one.place.line else one.place.file,
                "what": one.kind,
                "journal": one.what,
                "token": None,
                "store": None,
                "Slurm": None,
            }


def job_rows(found: Sequence[Disagreement]) -> Iterator[Row]:
    """Yield a row for each field of a job on which the sources differ."""
    for one in found:
        yield {
            "state": one.state,
            "where": f"job {one.job}",
            "what": one.field,
            "journal": None,
            "token": one.token,
            "store": one.store,
            "Slurm": one.slurm,
        }


def say(chains: Sequence[ChainReport], jobs: Compared | None, *, keyed: bool) -> None:
    """Say what was checked."""
    for chain in chains:
        parts = [f"{counted(chain.lines, 'linked line')} in {counted(chain.files, 'file')}"]
        if chain.unlinked:
            parts.append(
                f"{counted(chain.unlinked, 'line')} without links, written by an earlier release, that "
                "cannot be checked"
            )
        if chain.without_key:
            parts.append(f"{counted(chain.without_key, 'line')} linked before the site had a key")
        note(f"{chain.name}: {', '.join(parts)}")
    if not chains:
        note("the journal has no files")
    elif not keyed:
        note(
            "no key is set: anyone who can write the journal could rewrite all of it unnoticed; "
            "`rightsizer config journal-key` makes a key"
        )
    if jobs is not None:
        note(f"{counted(jobs.attempts, 'attempt')} compared, {jobs.with_token:,} of them with a token")
        if jobs.not_ingested:
            note(f"{counted(jobs.not_ingested, 'attempt')} not in the store yet; run `rightsizer ingest`")
