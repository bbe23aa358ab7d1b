"""`rightsizer explain`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import click

from accounting.errors import StoreError
from accounting.token import find_token
from slurm_plugin.cli.output import config_option, format_option, note
from slurm_plugin.config import Config, load_config


@click.command("explain")
@click.argument("job_id", type=int)
@click.option("--why", "with_why", is_flag=True, help="Show only what the prediction rested on.")
@config_option
@format_option
def explain(job_id: int, with_why: bool, config_file: str | None, output_format: str) -> None:
    """Show for a job that waits why, when it is likely to start, and what asking for less would change.

    For one that runs: when it is likely to end. For a finished job: what was asked, granted and used, why and by which
    model, and what it cost. Its hours are of CPUs, of GPUs, and of GiB of memory; in vain is what it did not use, or
    all of a run that was not completed. A table also shows what the prediction rested on, where that model is still
    there; --why shows it in any format.

    \b
    Example:
      rightsizer explain 4711
      rightsizer explain --why --format json 4711
    """
    from slurm_plugin.cli.ended_job import read_ended, show_ended
    from slurm_plugin.cli.queued_job import find_queued, show_queued

    config = load_config(config_file)
    queued = None if with_why else find_queued(config, job_id)
    if queued is not None:
        show_queued(queued, config, output_format)
        tokens = (find_token(job.admin_comment) for job in queued.records)
        tell_recoveries(config, job_id, {token.decision_id for token in tokens if token})
        return
    ended = read_ended(config, job_id)
    if not ended:
        raise StoreError(
            f"the store knows no job {job_id}, and the queue has none of that number; "
            "run `rightsizer ingest` once it has ended"
        )
    show_ended(ended, config, output_format, with_why=with_why)
    tell_recoveries(config, job_id, {one.attempt.decision_id for one in ended})


def tell_recoveries(config: Config, job_id: int, decision_ids: Collection[str]) -> None:
    """Say in words what became of a job's runs that failed because we had cut it."""
    from slurm_plugin.recovery.journal import Journal, told

    entries = Journal(Path(config.recovery.directory)).newest().values()
    for one in entries:
        if one.job_id == job_id and one.decision_id in decision_ids:
            note(told(one))
