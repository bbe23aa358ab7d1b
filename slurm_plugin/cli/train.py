"""`rightsizer train`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli.output import config_option, note
from slurm_plugin.config import Config, load_config

if TYPE_CHECKING:
    from accounting.records import Attempt


def stored_attempts(config: Config) -> list[Attempt]:
    """Return all attempts of the configured store."""
    from accounting.store.database import open_store
    from accounting.store.records import read_attempts

    engine = open_store(config.store.url)
    try:
        return read_attempts(engine)
    finally:
        engine.dispose()


@click.command("train")
@config_option
def train(config_file: str | None) -> None:
    """Learn from the store; a running service uses the new model within two seconds.

    \b
    Example:
      rightsizer ingest && rightsizer train
    """
    from models import registry
    from models.artefact import load_predictor
    from models.demand import training
    from slurm_plugin.service.decide import chain_settings_of

    config = load_config(config_file)
    directory = Path(config.models.directory)
    attempts = stored_attempts(config)
    trained = training.train(attempts, config.models.recent_jobs)
    version = training.save(trained, attempts, directory, time.time())
    load_predictor(directory / version, chain_settings_of(config))  # refuses what the service would refuse
    registry.promote(directory, version)
    for dimension, matrix in trained.matrices.items():
        learned = dimension in trained.fitted
        note(
            f"{dimension}: {len(matrix.targets)} jobs had a past to learn from; "
            + (
                "XGBoost quantile over the family's history"
                if learned
                else "too few for XGBoost, history and margin alone"
            )
        )
    sources = sorted({attempt.use.gpu_source for attempt in attempts if attempt.use.gpu_source})
    note(f"gpus: {'metered by ' + ', '.join(sources) if sources else 'no meter, requests are kept'}")
    note(f"learned from {len(attempts)} attempts; model {version} is current")
    click.echo(version)
