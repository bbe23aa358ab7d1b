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
    help="The job's cluster, if the store has several clusters. Default: this machine's cluster.",
)
@click.option("--why", "with_why", is_flag=True, help="Show only what the prediction was based on.")
@config_option
@format_option
def explain(wanted: JobId, cluster: str, with_why: bool, config_file: str | None, output_format: str) -> None:
    """Show what a job was granted, what it used, and why; for a waiting job, when it is likely to start.

    JOB_ID is 4711, or 4711_3 for a task of an array, or 4711+1 for a component of a het job.

    Waiting job: why it waits, when it is likely to start, and what asking for less would change. Running job: when it
    is likely to end. In both cases: what it asked for and was granted.

    Finished job: what it asked for, was granted and used, why and by which model, and what it cost. Hours are CPU
    hours, GPU hours and GiB hours of memory. "In vain" is what the job did not use, or everything if the run was not
    completed.

    A table also shows what the prediction was based on, if that model still exists; --why shows it in any format. If
    the store does not have the job, or you may not read the store, the command shows what Slurm's accounting lets you
    see.

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
            f"{wanted} is Slurm's own number of {ended[0].attempt.row.display_id}; you can ask about "
            "other parts in the same way"
        )
    tell_recoveries(
        config,
        {one.attempt.row.job_id: one.attempt.row.display_id for one in ended},
        {one.attempt.decision_id for one in ended},
    )


def find_ended(config: Config, job_id: JobId, cluster: str) -> list[Ended]:
    """Return the attempts of an ended job from the store, else (a note says so) from Slurm's accounting.

    Raises StoreError, with the store's reason, if neither has the job.
    """
    from slurm_plugin.cli.explain.accounting_told import told_by_accounting

    try:
        return in_store(config, job_id, cluster)
    except StoreError as error:
        try:
            told = told_by_accounting(config, job_id)
        except SlurmError as silence:
            raise StoreError(f"{error}; Slurm's accounting gives no answer either: {silence}") from None
        if not told:
            raise StoreError(
                f"{error}; Slurm's accounting does not show you an ended job {job_id} either"
            ) from None
        note(f"these figures come from Slurm's accounting and the job's token, not from the store: {error}")
        return told


def in_store(config: Config, job_id: JobId, cluster: str) -> list[Ended]:
    """Return the attempts of a job from the store; StoreError if it has none."""
    from slurm_plugin.cli.explain.ended_job import clusters_with, read_ended

    found = read_ended(config, job_id, cluster)
    if not found:
        if cluster and (others := clusters_with(config, job_id)):
            raise StoreError(
                f"the store has no job {job_id} of cluster {cluster}, but one of {', '.join(others)}; "
                "give that name with --cluster"
            )
        where = f" of cluster {cluster}" if cluster else ""
        raise StoreError(f"the store has no job {job_id}{where}; if it has ended, run `rightsizer ingest`")
    return found


def tell_recoveries(config: Config, jobs: Mapping[int, str], decision_ids: Collection[str]) -> None:
    """Say what became of a job's runs that failed because we cut it, from the store and from newer journal entries.

    `jobs` maps Slurm's own job numbers to job ids as people write them.
    """
    from slurm_plugin.recovery.journal import told

    entries: dict[Run, Recovered] = {one.run: one for one in stored_recoveries(config, jobs)}
    entries |= journalled_recoveries(config)
    for one in sorted(entries.values(), key=lambda one: one.time_s):
        if one.job_id in jobs and one.decision_id in decision_ids:
            note(told(one, jobs[one.job_id]))


def journalled_recoveries(config: Config) -> Mapping[Run, Recovered]:
    """Return what recovery recorded recently; empty, with a note, if this process may not read it."""
    from slurm_plugin.recovery.journal import Journal

    try:
        return Journal(Path(config.recovery.directory)).newest()
    except StoreError as error:
        note(f"cannot tell what `rightsizer recover` did recently: {error}")
        return {}


def stored_recoveries(config: Config, job_ids: Collection[int]) -> list[Recovered]:
    """Return the store's records of runs that failed because we cut them; empty if the store cannot be read."""
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
