"""`rightsizer ingest`."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import click
import msgspec

from slurm_plugin.cli.output import config_option, format_option, note, print_rows, progress_bar
from slurm_plugin.config import load_config


@click.command("ingest")
@config_option
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]),
    help="Read from this local time on, instead of where the last run stopped.",
)
@click.option(
    "--report",
    "with_report",
    is_flag=True,
    help="Then show how far the labels can be trusted, as `rightsizer report quality` does.",
)
@format_option
def ingest(config_file: str | None, since: datetime | None, with_report: bool, output_format: str) -> None:
    """Read what is new in Slurm's accounting, the decision journal and the GPU spool into the store.

    Run it as often as you like: what is there already is not added again.

    \b
    Example:
      rightsizer ingest --since 2026-01-01 --report
    """
    from accounting.ingest import IngestSettings
    from accounting.ingest import ingest as ingest_into
    from accounting.store.database import open_store

    config = load_config(config_file)
    settings = IngestSettings(
        sacct=config.accounting.sacct,
        overlap_s=config.accounting.overlap_s,
        first_days=config.accounting.first_days,
        gpu_spool=Path(config.accounting.gpu_spool),
        journal=Path(config.service.journal),
    )
    engine = open_store(config.store.url, create=True)
    since_s = None if since is None else int(since.timestamp())
    try:
        with progress_bar("reading sacct") as progress:
            report = ingest_into(engine, settings, int(time.time()), since_s, progress)
        if with_report:
            from accounting.report.selection import Selection
            from slurm_plugin.cli.report import show_quality

            show_quality(engine, Selection(), output_format)
    finally:
        engine.dispose()
    counts = {
        "attempts": report.attempts,
        "steps": report.steps,
        "gpu use": report.gpu_use,
        "decisions": report.decisions,
    }
    rows = [{"what": name, **msgspec.structs.asdict(count)} for name, count in counts.items()]
    if with_report:
        for name, count in counts.items():
            note(f"{name}: {count.new} new, {count.changed} changed, {count.same} as they were")
    else:
        print_rows(rows, output_format)
    if report.unfinished:
        note(f"{report.unfinished} jobs have not ended yet; they come with a later run")
    if report.quarantined:
        note(
            f"{report.quarantined} lines were not understood; they are kept in the store's table `quarantine`"
        )
