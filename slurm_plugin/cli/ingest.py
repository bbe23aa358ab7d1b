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
@format_option
def ingest(config_file: str | None, since: datetime | None, output_format: str) -> None:
    """Read what is new in Slurm's accounting, the decision journal and the GPU spool into the store.

    Run it as often as you like: what is there already is not added again.

    \b
    Example:
      rightsizer ingest --since 2026-01-01
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
    finally:
        engine.dispose()
    counts = {
        "attempts": report.attempts,
        "steps": report.steps,
        "gpu use": report.gpu_use,
        "decisions": report.decisions,
    }
    print_rows(
        [{"what": name, **msgspec.structs.asdict(count)} for name, count in counts.items()], output_format
    )
    if report.unfinished:
        note(f"{report.unfinished} jobs have not ended yet; they come with a later run")
    if report.quarantined:
        note(
            f"{report.quarantined} lines were not understood; they are kept in the store's table `quarantine`"
        )
