"""`rightsizer explain`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import click

from accounting.errors import StoreError
from accounting.recoveries import Recovered, Run
from accounting.token import find_token
from slurm_plugin.cli.output import config_option, format_option, note
from slurm_plugin.config import Config
from slurm_plugin.config_file import load_config
from slurm_plugin.secret_urls import store_url


@click.command("explain")
@click.argument("job_id", type=int)
@click.option(
    "--cluster",
    default="",
    help="Whose job it is, where the store has several clusters; else this machine's.",
)
@click.option("--why", "with_why", is_flag=True, help="Show only what the prediction rested on.")
@config_option
@format_option
def explain(job_id: int, cluster: str, with_why: bool, config_file: str | None, output_format: str) -> None:
    """Show for a job that waits why, when it is likely to start, and what asking for less would change.

    For one that runs: when it is likely to end. For a finished job: what was asked, granted and used, why and by which
    model, and what it cost. Its hours are of CPUs, of GPUs, and of GiB of memory; in vain is what it did not use, or
    all of a run that was not completed. A table also shows what the prediction rested on, where that model is still
    there; --why shows it in any format.

    \b
    Example:
      rightsizer explain 4711
      rightsizer explain --why --format json 4711
      rightsizer explain --cluster beta 4711
    """
    from slurm_plugin.cli.ended_job import read_ended, show_ended
    from slurm_plugin.cli.queued_job import find_queued, show_queued
    from slurm_plugin.slurm.local_cluster import local_cluster

    config = load_config(config_file)
    elsewhere = cluster and cluster != local_cluster(config)
    queued = None if with_why or elsewhere else find_queued(config, job_id)
    if queued is not None:
        show_queued(queued, config, output_format)
        tokens = (find_token(job.admin_comment) for job in queued.records)
        tell_recoveries(config, job_id, {token.decision_id for token in tokens if token})
        return
    ended = read_ended(config, job_id, cluster)
    if not ended:
        where = f" of {cluster}" if cluster else ""
        raise StoreError(
            f"the store knows no job {job_id}{where}, and the queue has none of that number; "
            "run `rightsizer ingest` once it has ended"
        )
    show_ended(ended, config, output_format, with_why=with_why)
    tell_recoveries(config, job_id, {one.attempt.decision_id for one in ended})


def tell_recoveries(config: Config, job_id: int, decision_ids: Collection[str]) -> None:
    """Say in words what became of a job's runs that failed because we had cut it: by the store, and what is newer."""
    from slurm_plugin.recovery.journal import Journal, told

    entries: dict[Run, Recovered] = {one.run: one for one in stored_recoveries(config, job_id)}
    entries |= Journal(Path(config.recovery.directory)).newest()
    for one in sorted(entries.values(), key=lambda one: one.time_s):
        if one.job_id == job_id and one.decision_id in decision_ids:
            note(told(one))


def stored_recoveries(config: Config, job_id: int) -> list[Recovered]:
    """Return what the store has of a job's runs that failed by us; nothing where there is no store yet."""
    from accounting.store.audit import read_recoveries_of
    from accounting.store.database import open_store

    try:
        engine = open_store(store_url(config))
    except StoreError:
        return []
    try:
        with engine.connect() as connection:
            return read_recoveries_of(connection, [job_id]).get(job_id, [])
    finally:
        engine.dispose()
