"""`rightsizer report recoveries`: which users or accounts lost hours in runs that failed because we cut them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import click
import msgspec

from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.cli.report.options import TIME, by_option, unix_s
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.file import load_config


@click.command("recoveries")
@by_option
@click.option("--since", type=TIME, help="Only runs that recovery handled at or after this local time.")
@config_option
@format_option
def recoveries(
    by: Literal["user", "account"], since: datetime | None, config_file: str | None, output_format: str
) -> None:
    """Show who lost hours in runs that failed because we cut them.

    The site may want to credit these hours. A `requeued` run was repeated with its original request, a `lost` one was
    not. Hours are CPU hours, and GiB hours of memory. Rows are sorted by loss, largest first.

    \b
    Example:
      rightsizer report recoveries --by account --since 2026-01-01
    """
    from accounting.report.recoveries import Credit, hours_owed

    since_s = 0 if since is None else unix_s(since, "--since")
    with opened_store(load_config(config_file)) as engine, engine.connect() as connection:
        rows = hours_owed(connection, by, since_s)
    print_rows([msgspec.structs.asdict(row) for row in rows], output_format, columns=Credit.__struct_fields__)
    if not rows:
        note(
            "the store has no run that failed because it was cut; `rightsizer recover` finds such "
            "runs, `rightsizer ingest` reads them into the store"
        )
