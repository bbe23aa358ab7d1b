"""`rightsizer audit`: whether the journal is as it was written, and agrees with store, tokens and Slurm."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accounting.errors import StoreError
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
    "--journal", "only_journal", is_flag=True, help="Check the journal's links alone: no store, no Slurm."
)
@span_option("last", "7d", "Compare the jobs that ended so long ago at most.")
@config_option
@format_option
def audit(only_journal: bool, last_s: int, config_file: str | None, output_format: str) -> None:
    """Check the decision journal line by line, and compare it, the store, the jobs' tokens and Slurm's own figures.

    Every line of the journal is linked to the one before: it is said which line of which file was changed, removed,
    inserted or moved. A write that a crash cut off is none of these. Jobs are asked of Slurm anew; of each field that
    is told in different ways it is said who says what. It changes nothing. Exit code 3: there are problems; where only
    Slurm's figures differ (it rounds, and people change jobs that wait) that is a warning.

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
    note("all that was compared agrees" if not rows else "no problem")


def read_all(
    config: Config, key: bytes, last_s: int, *, only_journal: bool
) -> tuple[list[ChainReport], Compared | None]:
    """Return what is found in the journal, and of jobs; the latter is None where only the journal is wanted.

    StoreError where it is wanted alone, and its folder is not there.
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
        # A host that ingests alone has no journal, and jobs to compare all the same.
        try:
            refuse_closed(folder)
        except StoreError as error:
            note(str(error))
        settings = settings_of(config)
        with engine.connect() as connection, progress_bar("comparing jobs") as progress:
            chains = audit_journal(folder, key, connection, settings.pseudonyms, settings.reader)
            # What ended before all that is stored is nobody's, and Slurm would be asked for it day by day.
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
    """Yield a row for whatever is wrong with the journal."""
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
    """Yield a row for each field of a job that is told in different ways."""
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
    """Say in words what was looked at."""
    for chain in chains:
        parts = [f"{chain.lines:,} linked lines in {chain.files} files"]
        if chain.unlinked:
            parts.append(
                f"{chain.unlinked:,} lines of an earlier release without links, which nothing can check"
            )
        if chain.without_key:
            parts.append(f"{chain.without_key:,} linked before the site had a key")
        note(f"{chain.name}: {', '.join(parts)}")
    if not chains:
        note("the journal has no files")
    elif not keyed:
        note("no key: who may write the journal may write all of it anew (`rightsizer config journal-key`)")
    if jobs is not None:
        note(f"{jobs.attempts:,} attempts compared, {jobs.with_token:,} of them with a token")
        if jobs.not_ingested:
            note(f"{jobs.not_ingested:,} are not in the store yet; `rightsizer ingest` reads them")
