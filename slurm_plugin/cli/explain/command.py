"""`rightsizer explain`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accounting.decisions.token import find_token
from accounting.errors import SlurmError, StoreError
from accounting.journal.recoveries import Recovered, Run
from slurm_plugin.cli.explain.job_id import JobId, job_id
from slurm_plugin.cli.output import config_option, format_option, note
from slurm_plugin.config.file import load_config
from slurm_plugin.config.secret_urls import store_url
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from slurm_plugin.cli.explain.ended_job import Ended


@click.command("explain")
@click.argument("wanted", metavar="JOB_ID", type=job_id)
@click.option(
    "--cluster",
    default="",
    help="Whose job it is, where the store has several clusters; else this machine's.",
)
@click.option("--why", "with_why", is_flag=True, help="Show only what the prediction rested on.")
@config_option
@format_option
def explain(wanted: JobId, cluster: str, with_why: bool, config_file: str | None, output_format: str) -> None:
    """Show for a job that waits why, when it is likely to start, and what asking for less would change.

    JOB_ID is 4711, or 4711_3 for a task of an array, or 4711+1 for a component of a het job. For one that runs: when
    it is likely to end. For both: what was asked and granted. For a finished job: what was asked, granted and used,
    why and by which model, and what it cost. Its hours are of CPUs, of GPUs, and of GiB of memory; in vain is what it
    did not use, or all of a run that was not completed. A table also shows what the prediction rested on, where that
    model is still there; --why shows it in any format. Where the store does not know a job, or is closed to you,
    Slurm's accounting tells as much as you may see.

    \b
    Example:
      rightsizer explain 4711
      rightsizer explain 4711_3
      rightsizer explain --why --format json 4711
      rightsizer explain --cluster beta 4711
    """
    from slurm_plugin.cli.explain.ended_job import show_ended
    from slurm_plugin.cli.explain.queued_job import find_queued, name_of, show_queued
    from slurm_plugin.slurm.local_cluster import local_cluster

    config = load_config(config_file)
    elsewhere = cluster and cluster.lower() != local_cluster(config)
    queued, silent = None, ""
    if not (with_why or elsewhere):
        try:
            queued = find_queued(config, wanted)
        except SlurmError as error:
            silent = f"; whether it waits or runs is not known: {error}"
    if queued is not None:
        show_queued(queued, config, output_format)
        tokens = (find_token(job.admin_comment) for job in queued.records)
        tell_recoveries(
            config,
            {job.job_id: name_of(job) for job in queued.records},
            {token.decision_id for token in tokens if token},
        )
        return
    try:
        ended = in_store(config, wanted, cluster) if elsewhere else find_ended(config, wanted, cluster)
    except StoreError as error:
        raise StoreError(f"{error}{silent}") from None
    show_ended(ended, config, output_format, with_why=with_why)
    if ended[0].attempt.row.display_id != str(wanted):
        note(
            f"{wanted} is Slurm's own number of {ended[0].attempt.row.display_id}; of other parts ask likewise"
        )
    tell_recoveries(
        config,
        {one.attempt.row.job_id: one.attempt.row.display_id for one in ended},
        {one.attempt.decision_id for one in ended},
    )


def find_ended(config: Config, job_id: JobId, cluster: str) -> list[Ended]:
    """Return the attempts of a job that has ended, by the store; else, and a note says so, by Slurm's accounting.

    StoreError of the store where neither tells anything.
    """
    from slurm_plugin.cli.explain.accounting_told import told_by_accounting

    try:
        return in_store(config, job_id, cluster)
    except StoreError as error:
        try:
            told = told_by_accounting(config, job_id)
        except SlurmError as silence:
            raise StoreError(f"{error}; Slurm's accounting tells nothing either: {silence}") from None
        if not told:
            raise StoreError(
                f"{error}; Slurm's accounting shows you no job {job_id} that has ended either"
            ) from None
        note(f"Slurm's accounting and the job's token tell this, not the store: {error}")
        return told


def in_store(config: Config, job_id: JobId, cluster: str) -> list[Ended]:
    """Return the attempts of a job that the store knows; StoreError where it knows none."""
    from slurm_plugin.cli.explain.ended_job import clusters_with, read_ended

    found = read_ended(config, job_id, cluster)
    if not found:
        if cluster and (others := clusters_with(config, job_id)):
            raise StoreError(
                f"the store knows no job {job_id} of {cluster}, but has one of {', '.join(others)}: "
                "give that name with --cluster"
            )
        where = f" of {cluster}" if cluster else ""
        raise StoreError(f"the store knows no job {job_id}{where}; run `rightsizer ingest` once it has ended")
    return found


def tell_recoveries(config: Config, jobs: Mapping[int, str], decision_ids: Collection[str]) -> None:
    """Say in words what became of a job's runs that failed because we had cut it: by the store, and what is newer.

    `jobs` are as people write them, by Slurm's own numbers.
    """
    from slurm_plugin.recovery.journal import told

    entries: dict[Run, Recovered] = {one.run: one for one in stored_recoveries(config, jobs)}
    entries |= journalled_recoveries(config)
    for one in sorted(entries.values(), key=lambda one: one.time_s):
        if one.job_id in jobs and one.decision_id in decision_ids:
            note(told(one, jobs[one.job_id]))


def journalled_recoveries(config: Config) -> Mapping[Run, Recovered]:
    """Return what recovery has noted lately; nothing, and a note, where that is closed to whoever asks."""
    from slurm_plugin.recovery.journal import Journal

    try:
        return Journal(Path(config.recovery.directory)).newest()
    except StoreError as error:
        note(f"what `rightsizer recover` did lately is not known to you: {error}")
        return {}


def stored_recoveries(config: Config, job_ids: Collection[int]) -> list[Recovered]:
    """Return what the store has of jobs' runs that failed by us; nothing where there is no store, or it is closed."""
    from accounting.store.audit import read_recoveries_of
    from accounting.store.database import open_store

    try:
        engine = open_store(store_url(config))
    except StoreError:
        return []
    try:
        with engine.connect() as connection:
            return [
                one for found in read_recoveries_of(connection, sorted(job_ids)).values() for one in found
            ]
    finally:
        engine.dispose()
