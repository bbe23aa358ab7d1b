"""`rightsizer ingest`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click
import msgspec

from slurm_plugin.cli.output import config_option, format_option, note, print_rows, progress_bar
from slurm_plugin.cli.spans import DAY_S
from slurm_plugin.config import Config, load_config

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from accounting.frames import Records
    from accounting.ingest import IngestReport, IngestSettings

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("ingest")
@config_option
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]),
    help="Read from this local time on, instead of where the last run stopped.",
)
@click.option(
    "--from-file",
    "files",
    type=FILE,
    multiple=True,
    help="Read this dump of sacct (or slurmdbd's job table as CSV), packed or not, instead of asking sacct.",
)
@click.option(
    "--zone", help="The time zone of local times in dumps, such as Europe/Berlin; else this machine's."
)
@click.option(
    "--cluster", default="", help="The cluster of jobs in dumps that name none; else the file's name."
)
@click.option("--pseudonymise", "key_file", type=FILE, help="Store pseudonyms of this key instead of names.")
@click.option("--report", "with_report", is_flag=True, help="Then show how far the labels can be trusted.")
@click.option("--quarantined", is_flag=True, help="Only show what was not taken, and why.")
@click.option("--retry", "again", is_flag=True, help="Try what was not taken once more.")
@click.option(
    "--prune", "keep_days", type=click.IntRange(1), help="Only forget what ended more than so many days ago."
)
@click.option(
    "--watch", "pause_s", type=click.IntRange(1), help="Go on until stopped, with a pause of so many seconds."
)
@format_option
def ingest(
    config_file: str | None,
    since: datetime | None,
    files: tuple[Path, ...],
    zone: str | None,
    cluster: str,
    key_file: Path | None,
    with_report: bool,
    quarantined: bool,
    again: bool,
    keep_days: int | None,
    pause_s: int | None,
    output_format: str,
) -> None:
    """Read what is new in Slurm's accounting, the journals and the GPU spool into the store.

    Run it as often as you like: what is there already is not added again. A running service hears at once of the jobs
    that ended lately.

    \b
    Example:
      rightsizer ingest --since 2026-01-01 --report
      rightsizer ingest --from-file dump.psv.gz --zone Europe/Berlin
      rightsizer ingest --watch 5
    """
    from accounting.store.database import open_store
    from slurm_plugin.cli.feeding import tidy_feed
    from slurm_plugin.cli.ingest_watch import watch

    if pause_s is not None and (files or since or again or quarantined or keep_days or with_report):
        raise click.UsageError("--watch goes with --config and --pseudonymise only; run the other one first")
    config = load_config(config_file)
    models = Path(config.models.directory)
    now_s = int(time.time())
    engine = open_store(config.store.url, create=True)
    try:
        if quarantined:
            show_quarantine(engine, output_format)
        elif keep_days is not None:
            prune(engine, now_s - keep_days * DAY_S, output_format)
            remove_spool_files(engine, Path(config.accounting.gpu_spool), now_s)
        else:
            settings = settings_of(config, key_file)
            if pause_s is not None:
                watch(engine, settings, pause_s, models)
                return
            if files:
                report = from_files(engine, settings, files, now_s, dump_zone(zone), cluster)
            elif again:
                report = retry_all(engine, settings, now_s)
            else:
                report = from_slurm(engine, settings, now_s, since)
            tidy_feed(models)
            show_report(engine, report, output_format, with_quality=with_report)
    finally:
        engine.dispose()


def settings_of(config: Config, key_file: Path | None) -> IngestSettings:
    """Return what ingest is told; a key on the command line comes before the configured one."""
    from accounting.ingest import IngestSettings
    from slurm_plugin.cli.export import pseudonyms_of
    from slurm_plugin.cli.feeding import feed_of
    from slurm_plugin.slurm.metering import read_metering

    configured = config.accounting.pseudonym_key
    key = key_file or (Path(configured) if configured else None)
    return IngestSettings(
        sacct=config.accounting.sacct,
        overlap_s=config.accounting.overlap_s,
        first_days=config.accounting.first_days,
        gpu_spool=Path(config.accounting.gpu_spool),
        journal=Path(config.service.journal),
        slurmdbd_url=config.accounting.slurmdbd_url,
        cluster=config.accounting.cluster,
        metering=read_metering(config.accounting.sacct),
        pseudonyms=None if key is None else pseudonyms_of(key),
        hand_on=feed_of(Path(config.models.directory)),
        advisor=Path(config.advisor.directory),
    )


def dump_zone(name: str | None) -> ZoneInfo:
    """Return a time zone by its name, this machine's without one; UsageError where there is none of that name."""
    try:
        return ZoneInfo(name) if name else local_zone()
    except (KeyError, ValueError, OSError):
        raise click.UsageError(
            f"--zone {name}: there is no such zone; write it as in Europe/Berlin"
        ) from None


def local_zone() -> ZoneInfo:
    """Return the time zone of this machine, as far as it can be told by name; else UTC."""
    target = Path("/etc/localtime").resolve().parts
    if "zoneinfo" in target:
        return ZoneInfo("/".join(target[target.index("zoneinfo") + 1 :]))
    return ZoneInfo("UTC")


def from_slurm(engine: Engine, settings: IngestSettings, now_s: int, since: datetime | None) -> IngestReport:
    """Read what is new."""
    from accounting.ingest import ingest as ingest_into

    since_s = None if since is None else int(since.timestamp())
    with progress_bar("reading sacct") as progress:
        return ingest_into(engine, settings, now_s, since_s, progress)


def from_files(
    engine: Engine, settings: IngestSettings, files: Iterable[Path], now_s: int, zone: ZoneInfo, cluster: str
) -> IngestReport:
    """Read dumps, one after another, into one report; what a dump lacks is told."""
    from accounting.dumps.jobs import DumpSettings
    from accounting.dumps.read import read_dump
    from accounting.ingest import IngestReport, ingest_records

    dumps = DumpSettings(now_s=now_s, zone=zone, cluster=cluster)
    total = IngestReport()
    for file in files:
        missing: list[str] = []

        def parts(file: Path = file, missing: list[str] = missing) -> Iterable[Records]:
            for records in read_dump(file, dumps):
                missing.extend(records.missing)
                yield records

        with progress_bar(f"reading {file.name}") as progress:
            total += ingest_records(engine, settings, now_s, parts(), progress)
        for lack in missing:
            note(f"{file.name} lacks {lack}")
    return total


def retry_all(engine: Engine, settings: IngestSettings, now_s: int) -> IngestReport:
    """Try quarantined input once more."""
    from accounting.ingest import Run, source_of
    from accounting.retry import retry

    run = Run(settings, now_s)
    understood = retry(engine, run, source_of(settings, now_s))
    note(f"{understood} entries of the quarantine were understood this time")
    return run.report


def show_report(engine: Engine, report: IngestReport, output_format: str, *, with_quality: bool) -> None:
    """Say what a run brought; with the quality of all labels, if wanted, in its place on stdout."""
    counts = {
        "attempts": report.attempts,
        "steps": report.steps,
        "gpu use": report.gpu_use,
        "decisions": report.decisions,
        "cycles of the advisor": report.cycles,
    }
    if with_quality:
        from accounting.report.selection import Selection
        from slurm_plugin.cli.report import show_quality

        show_quality(engine, Selection(), output_format)
        for name, count in counts.items():
            note(f"{name}: {count.new} new, {count.changed} changed, {count.same} as they were")
    else:
        rows = [{"what": name, **msgspec.structs.asdict(count)} for name, count in counts.items()]
        print_rows(rows, output_format)
    if report.unfinished:
        note(f"{report.unfinished} jobs have not ended yet; they come with a later run")
    if report.quarantined:
        note(
            f"{report.quarantined} entries were not understood; `rightsizer ingest --quarantined` shows them"
        )


def show_quarantine(engine: Engine, output_format: str) -> None:
    """Show what was not taken, by source and reason."""
    from accounting.store.quarantine import list_quarantine

    with engine.connect() as connection:
        groups = list_quarantine(connection)
    rows = [
        {
            "source": group.source,
            "reason": group.reason,
            "entries": group.lines,
            "first seen": local_time(group.first_seen_s),
            "last seen": local_time(group.last_seen_s),
        }
        for group in groups
    ]
    print_rows(rows, output_format)
    if rows:
        note("`rightsizer ingest --retry` tries them again; the table `quarantine` holds them whole")


def local_time(time_s: int) -> str:
    """Return a time for people."""
    return datetime.fromtimestamp(time_s).astimezone().isoformat(sep=" ", timespec="minutes")


def prune(engine: Engine, before_s: int, output_format: str) -> None:
    """Forget what ended before, and say how much that was."""
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


def remove_spool_files(engine: Engine, spool: Path, now_s: int) -> None:
    """Remove files of the GPU spool that are read to their end and written to no more."""
    from accounting.gpu_samples import finished_files
    from accounting.store.records import read_offsets

    with engine.connect() as connection:
        files = finished_files(spool, read_offsets(connection), now_s)
    for file in files:
        try:
            file.unlink()
        except OSError as error:
            note(f"cannot remove {file}: {error.strerror}; whoever runs `rightsizer collect` may")
    if files:
        note(f"{len(files)} files of the GPU spool had been read and were removed")
