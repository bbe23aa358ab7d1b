"""`rightsizer train` and `rightsizer evaluate`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.config import Config, load_config

if TYPE_CHECKING:
    from accounting.records import Attempt
    from models.demand.prediction import Predictor
    from models.evaluate import Sizing


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
        learned = dimension in trained.boosters
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


@click.command("evaluate")
@config_option
@click.option(
    "--train-share",
    type=click.FloatRange(0.05, 0.95),
    default=0.7,
    show_default=True,
    help="Learn from this share of the jobs, judge on the later rest.",
)
@format_option
def evaluate(config_file: str | None, train_share: float, output_format: str) -> None:
    """Split the store by time and say what sizing would have saved, and how many jobs it would have failed.

    \b
    Example:
      rightsizer evaluate --format csv > scores.csv
    """
    from models.evaluate import evaluate as evaluate_attempts
    from slurm_plugin.service.decide import chain_settings_of

    config = load_config(config_file)
    result = evaluate_attempts(
        stored_attempts(config),
        chain_settings_of(config),
        config.models.recent_jobs,
        policy_sizing(config),
        train_share,
    )
    meters = "+".join(result.gpu_sources)
    rows = [
        {
            "resource": f"gpus ({meters})" if score.dimension == "gpus" else score.dimension,
            "method": score.method,
            "unit": score.unit,
            "jobs": score.jobs,
            "resized": score.resized,
            "requested": round(score.requested, 4),
            "granted": round(score.granted, 4),
            "used": round(score.used, 4),
            "saved %": round(100 * score.saved_share, 1),
            "failed": score.failed,
            "failed %": round(100 * score.failed / score.jobs, 2),
        }
        for score in result.scores
    ]
    print_rows(
        rows,
        output_format,
        f"learned from {result.learned_from} attempts, judged on {result.judged} later ones",
    )


def policy_sizing(config: Config) -> Callable[[Predictor], Sizing]:
    """Return what the site's policy would grant on a predictor's word."""
    from accounting.request import JobRequest, granted
    from slurm_plugin.policy.rules import limits_of
    from slurm_plugin.policy.sizing import size

    limits = limits_of(config.policy)

    def of(predictor: Predictor) -> Sizing:
        def sizing(request: JobRequest) -> JobRequest:
            return granted(request, size(request, predictor.predict(request), limits).grant)

        return sizing

    return of
