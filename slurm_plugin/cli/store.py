"""`rightsizer store`: show which schema the store has, or go back to an older one."""

from __future__ import annotations

import click

from slurm_plugin.cli.output import config_option, note
from slurm_plugin.config.file import load_config
from slurm_plugin.config.secret_urls import store_url


@click.group("store")
def store_group() -> None:
    """Manage the store's schema.

    \b
    Example:
      rightsizer store downgrade 0003
    """


@store_group.command("downgrade")
@click.argument("revision")
@click.option("--apply", is_flag=True, help="Do it. Without it, only show what would be done.")
@config_option
def downgrade(revision: str, apply: bool, config_file: str | None) -> None:
    """Take the store back to an older schema.

    An older version of this program can then open it. Data that only newer schemas hold is lost. First stop everything
    that ingests, or the next ingest brings the store forward again. If the command is interrupted, run it again.

    \b
    Example:
      rightsizer store downgrade 0003
      rightsizer store downgrade 0003 --apply
    """
    from accounting.store.database import open_to_take_back
    from accounting.store.older import take_back

    engine = open_to_take_back(store_url(load_config(config_file)))
    try:
        before = take_back(engine, revision, apply=apply)
    finally:
        engine.dispose()
    done = "was taken back" if apply else "would be taken back (add --apply)"
    note(f"the store {done} from schema {before} to {revision}")
