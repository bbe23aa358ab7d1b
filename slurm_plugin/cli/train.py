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
    from models.past_columns import PastColumns


def stored_attempts(config: Config) -> list[Attempt]:
    """Return all attempts of the configured store."""
    from accounting.store.database import open_store
    from accounting.store.records import read_attempts

    engine = open_store(config.store.url)
    try:
        return read_attempts(engine)
    finally:
        engine.dispose()


def stored_past(config: Config) -> PastColumns:
    """Return all attempts of the configured store in columns."""
    from accounting.store.database import open_store
    from accounting.store.records import read_attempt_columns
    from models.past_columns import COLUMNS, columns_of

    engine = open_store(config.store.url)
    try:
        return columns_of(read_attempt_columns(engine, COLUMNS))
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
    trained = training.train_columns(stored_past(config), config.models.recent_jobs)
    version = training.save(trained, directory, time.time())
    load_predictor(directory / version, chain_settings_of(config))  # refuses what the service would refuse
    registry.promote(directory, version)
    for dimension, matrix in trained.matrices.items():
        learned = dimension in trained.fitted
        note(
            f"{dimension}: {len(matrix)} jobs had a past to learn from; "
            + (
                "XGBoost quantile over the family's history"
                if learned
                else "too few for XGBoost, history and margin alone"
            )
        )
    sources = trained.seen.gpu_sources
    note(f"gpus: {'metered by ' + ', '.join(sources) if sources else 'no meter, requests are kept'}")
    note(f"learned from {trained.seen.attempts} attempts; model {version} is current")
    click.echo(version)
