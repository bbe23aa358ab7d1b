"""`rightsizer ingest`."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from accounting.units import counted
from slurm_plugin.cli.ingest.dumps import dump_zone, from_files, tres_numbers
from slurm_plugin.cli.ingest.quarantine import retry_all, show_quarantine
from slurm_plugin.cli.ingest.uses import check_use
from slurm_plugin.cli.output import (
    config_option,
    format_option,
    note,
    print_rows,
    progress_bar,
)
from slurm_plugin.cli.report.options import TIME, unix_s
from slurm_plugin.cli.spans import DAY_S
from slurm_plugin.config.file import load_config
from slurm_plugin.config.secret_urls import store_url
from slurm_plugin.config.settings import MOST_DAYS, Config, Service

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from accounting.ingest.run import IngestReport, IngestSettings

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


AS_CONFIGURED = "as configured"
# To read less often than once a day, use a timer.
LONGEST_PAUSE_S = DAY_S


def _days(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    """Return how many days are kept; 0 stands for the configured number, None for no pruning."""
    if text is None:
        return None
    return 0 if text == AS_CONFIGURED else int(click.IntRange(1, MOST_DAYS)(text, _parameter, _context))


@click.command("ingest")
@config_option
@click.option(
    "--since",
    type=TIME,
    help="Read from this local time on, instead of from where the last run stopped.",
)
@click.option(
    "--from-file",
    "files",
    type=FILE,
    multiple=True,
    help="Read this dump of sacct (or slurmdbd's job table as CSV), compressed or not, instead of asking "
    "sacct. Can be repeated.",
)
@click.option(
    "--zone",
    help="Time zone of local times in dumps, such as Europe/Berlin. Default: $TZ, else this machine's zone.",
)
@click.option(
    "--cluster", default="", help="Cluster of the jobs in dumps that name none. Default: the file's name."
)
@click.option(
    "--gpu-tres",
    default="",
    callback=tres_numbers,
    metavar="NUMBERS",
    help="The TRES numbers that count GPUs in dumps of slurmdbd's job table, such as 1001,1002.",
)
@click.option(
    "--pseudonymise",
    "key_file",
    type=FILE,
    help="Store pseudonyms made with the key in this file instead of names.",
)
@click.option(
    "--report", "with_report", is_flag=True, help="Afterwards show how far the labels can be trusted."
)
@click.option("--quarantined", is_flag=True, help="Only show the entries that were not understood, and why.")
@click.option("--retry", "again", is_flag=True, help="Only try again the entries that were not understood.")
@click.option(
    "--prune",
    "keep_days",
    is_flag=False,
    flag_value=AS_CONFIGURED,
    callback=_days,
    metavar="[DAYS]",
    help="Only remove jobs that ended more than this many days ago. Default without DAYS: store.keep_days.",
)
@click.option(
    "--watch",
    "pause_s",
    type=click.IntRange(1, LONGEST_PAUSE_S),
    help="Ingest until stopped, with a pause of this many seconds between runs.",
)
@format_option
@click.pass_context
def ingest(
    context: click.Context,
    config_file: str | None,
    since: datetime | None,
    files: tuple[Path, ...],
    zone: str | None,
    cluster: str,
    gpu_tres: tuple[int, ...],
    key_file: Path | None,
    with_report: bool,
    quarantined: bool,
    again: bool,
    keep_days: int | None,
    pause_s: int | None,
    output_format: str,
) -> None:
    """Read new jobs from Slurm's accounting, the journals and the GPU spool into the store.

    You can run it as often as you like: entries that the store has already are not added again. A running service
    learns at once of jobs that ended recently.

    \b
    Example:
      rightsizer ingest --since 2026-01-01 --report
      rightsizer ingest --from-file dump.psv.gz --zone Europe/Berlin
      rightsizer ingest --watch 5
      rightsizer ingest --prune 730
    """
    from accounting.dumps.jobs import DumpSettings
    from accounting.ingest.key_marks import hold_to_key
    from accounting.store.database import open_store
    from slurm_plugin.cli.ingest.feeding import tidy_feed
    from slurm_plugin.cli.ingest.settings import closed_folders, doubt, settings_anew, settings_of
    from slurm_plugin.cli.ingest.watch import watch
    from slurm_plugin.slurm.hidden_jobs import hidden_jobs

    check_use(context)
    config = load_config(config_file)
    models = Path(config.models.directory)
    now_s = int(time.time())
    since_s = None if since is None else unix_s(since, "--since")
    # In lower case, as in slurmdbd: otherwise a job from a dump and the same job from sacct would be two.
    dumps = (
        DumpSettings(now_s=now_s, zone=dump_zone(zone), cluster=cluster.lower(), gpu_tres=gpu_tres)
        if files
        else None
    )
    status = 0
    engine = open_store(store_url(config), create=not quarantined, tell=_coming_forward)
    try:
        if quarantined:
            show_quarantine(engine, output_format)
        elif keep_days is not None:
            forget(engine, config, now_s, keep_days or config.store.keep_days, output_format)
        else:
            settings = settings_of(config, key_file)
            hold_to_key(engine, settings.pseudonyms, now_s)
            if dumps is None and not settings.slurmdbd_url and (hidden := hidden_jobs()):
                note(hidden)
            for closed in () if dumps is not None or again else closed_folders(settings):
                note(closed)
            if pause_s is not None:
                watch(engine, settings, partial(settings_anew, config), pause_s, models)
                return
            if dumps is not None:
                report, status = from_files(engine, settings, files, dumps)
            elif again:
                report = retry_all(engine, settings, now_s)
            else:
                report = from_slurm(engine, settings, now_s, since_s)
            # A dump does not say how its jobs were measured, so how this cluster measures does not matter.
            if dumps is None and (unsure := doubt(settings)):
                note(unsure)
            tidy_feed(models)
            show_report(engine, report, output_format, with_quality=with_report)
    finally:
        engine.dispose()
    if status:
        sys.exit(status)


def _coming_forward(before: str, after: str) -> None:
    note(
        f"upgrading the store from schema {before} to {after}; do not interrupt it (if it is "
        "interrupted, the next run continues)"
    )


def from_slurm(engine: Engine, settings: IngestSettings, now_s: int, since_s: int | None) -> IngestReport:
    """Read new accounting records."""
    from accounting.ingest.ingesting import ingest as ingest_into
    from slurm_plugin.cli.ingest.settings import source_for

    with progress_bar("reading sacct") as progress:
        source = source_for(settings, now_s)
        return ingest_into(engine, settings, now_s, since_s, progress, source)


def show_report(engine: Engine, report: IngestReport, output_format: str, *, with_quality: bool) -> None:
    """Report what a run brought; with `with_quality`, stdout gets the quality of all labels, stderr the counts."""
    counts = {
        "attempts": report.attempts,
        "steps": report.steps,
        "gpu use": report.gpu_use,
        "decisions": report.decisions,
        "cycles of the advisor": report.cycles,
        "recoveries": report.recoveries,
    }
    if with_quality:
        from accounting.report.selection import Selection
        from slurm_plugin.cli.report.quality import show_quality

        show_quality(engine, Selection(), output_format)
        for name, count in counts.items():
            note(f"{name}: {count.new} new, {count.changed} changed, {count.same} as they were")
    else:
        rows = [{"what": name, **msgspec.structs.asdict(count)} for name, count in counts.items()]
        print_rows(rows, output_format)
    if report.unfinished:
        note(f"not ended yet: {counted(report.unfinished, 'job')}, for a later run to read")
    if report.quarantined:
        note(f"not understood: {counted(report.quarantined, 'entry')}; see `rightsizer ingest --quarantined`")


def forget(engine: Engine, config: Config, now_s: int, keep_days: int, output_format: str) -> None:
    """Remove what ended more than `keep_days` ago (0: nothing), and files of spool and journal that were read."""
    remove_spool_files(engine, Path(config.accounting.gpu_spool), now_s)
    if not keep_days:
        note("nothing was removed: store.keep_days is 0; set it, or give --prune DAYS")
        return
    # No job ended before 1970, and a machine may not be able to represent earlier days.
    before_s = max(0, now_s - keep_days * DAY_S)
    prune(engine, before_s, output_format)
    remove_journal_files(engine, config.service, before_s)


def prune(engine: Engine, before_s: int, output_format: str) -> None:
    """Remove what ended before `before_s`, and report how much that was."""
    from accounting.store.retention import prune as prune_store

    with progress_bar("forgetting") as progress:
        pruned = prune_store(engine, before_s, lambda rows: progress(0.0, rows))
    counted = {name: count for name, count in msgspec.structs.asdict(pruned).items() if name != "kept_room"}
    print_rows(
        [{"what": name.replace("_", " "), "forgotten": count} for name, count in counted.items()],
        output_format,
    )
    if pruned.kept_room:
        note(pruned.kept_room)


def remove_journal_files(engine: Engine, service: Service, before_s: int) -> None:
    """Remove files of the decision journal from days before `before_s` that were read to their end."""
    from accounting.journal.files import PATTERN
    from accounting.journal.marks import offsets_of
    from accounting.journal.retention import remove_read
    from accounting.key_file import journal_key
    from accounting.store.records import read_marks

    folder = Path(service.journal)
    with engine.connect() as connection:
        offsets = offsets_of(folder.glob(PATTERN), read_marks(connection))
    day = time.strftime("%Y%m%d", time.gmtime(before_s))
    files = remove_read(folder, journal_key(service.journal_key), offsets, day)
    if files:
        note(f"removed {counted(len(files), 'file')} of the decision journal, ingested before")


def remove_spool_files(engine: Engine, spool: Path, now_s: int) -> None:
    """Remove files of the GPU spool that were read to their end and are no longer written, with their marks.

    Each node writes one file a day. Otherwise each round of `ingest --watch` would read the marks of all files so far.
    """
    from accounting.gpu_spool.files import finished_files, spool_key, spool_offsets
    from accounting.journal.marks import head_of, key_of
    from accounting.store.database import writing
    from accounting.store.records import forget_marks, read_marks

    with engine.connect() as connection:
        files = finished_files(spool, spool_offsets(spool, read_marks(connection)), now_s)
    removed: list[str] = []
    for file in files:
        try:
            key = key_of(spool_key(file.name), head_of(file))
            file.unlink()
            removed.append(key)
        except OSError as error:
            note(
                f"cannot remove {file}: {error.strerror}; the user who runs `rightsizer collect` can remove "
                "it"
            )
    if removed:
        with writing(engine) as connection:
            forget_marks(connection, removed)
        note(f"removed {counted(len(removed), 'file')} of the GPU spool, ingested before")
