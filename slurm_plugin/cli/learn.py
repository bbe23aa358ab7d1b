"""`rightsizer train` and `rightsizer evaluate`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from accounting.errors import ModelError
from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.config import Config, load_config

if TYPE_CHECKING:
    from accounting.records import Attempt
    from accounting.request import JobRequest
    from models.demand.prediction import Predictor
    from models.evaluate import Score, Sizing, Strategy
    from models.job_types import TypeRule
    from models.run_times import TypeScore

ADAPTIVE = "adaptive-scaling"


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
@click.option(
    "--strategy",
    type=click.Choice(["rightsizer", ADAPTIVE, "all"]),
    default="rightsizer",
    show_default=True,
    help="What sizes requests: the service's own way, or what run time does not depend on is scaled down.",
)
@click.option("--run-time", is_flag=True, help="Say how well run times are told, for each type of job.")
@format_option
def evaluate(
    config_file: str | None, train_share: float, strategy: str, run_time: bool, output_format: str
) -> None:
    """Split the store by time and say what sizing would have saved, and how many jobs it would have failed.

    \b
    Example:
      rightsizer evaluate --format csv > scores.csv
      rightsizer evaluate --strategy all
      rightsizer evaluate --run-time
    """
    config = load_config(config_file)
    if run_time:
        print_run_times(config, output_format)
        return
    from models.evaluate import evaluate as evaluate_attempts
    from slurm_plugin.service.decide import chain_settings_of

    result = evaluate_attempts(
        stored_attempts(config),
        chain_settings_of(config),
        config.models.recent_jobs,
        None if strategy == ADAPTIVE else policy_sizing(config),
        train_share,
        {} if strategy == "rightsizer" else {ADAPTIVE: adaptive_strategy(config)},
    )
    print_rows(
        [score_row(score, "+".join(result.gpu_sources)) for score in result.scores],
        output_format,
        f"learned from {result.learned_from} attempts, judged on {result.judged} later ones",
    )


def score_row(score: Score, meters: str) -> dict[str, object]:
    """Return the row of one method on one dimension."""
    return {
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


def print_run_times(config: Config, output_format: str) -> None:
    """Print how well run times are told, a row for each type of job."""
    from models.run_times import score_types

    rules = type_rules(config)
    scores = score_types(stored_attempts(config), lambda attempt: attempt_type(rules, attempt))
    if not scores:
        raise ModelError("no attempt in the store completed and has a type; run `rightsizer ingest` first")
    print_rows([run_time_row(score) for score in scores], output_format, "Run time by the resources used")


def run_time_row(score: TypeScore) -> dict[str, object]:
    """Return the row of one type; its figures are None where nothing was learned."""
    from models.demand.run_time import FOREST, XGBOOST, Judged
    from models.run_times import describe_importances

    judged = score.result if isinstance(score.result, Judged) else None
    errors = judged.errors if judged else {}
    ours, peer = errors.get(XGBOOST), errors.get(FOREST)
    return {
        "type": score.name,
        "jobs": score.jobs,
        "judged": judged.judged if judged else 0,
        "MAE (s)": round(ours.mae_s, 3) if ours else None,
        "WMAPE": round(ours.wmape, 4) if ours else None,
        "forest MAE (s)": round(peer.mae_s, 3) if peer else None,
        "forest WMAPE": round(peer.wmape, 4) if peer else None,
        "importance (* more than chance)": describe_importances(judged) if judged else None,
        "note": note_of(score),
    }


def note_of(score: TypeScore) -> str:
    """Return why a type has no figures, or that they are no better than its median; '' where all is well."""
    from models.demand.run_time import NotLearned

    if isinstance(score.result, NotLearned):
        return f"not enough evidence: {score.result.reason}"
    return "" if score.result.tells else "no better than the median run time"


def type_rules(config: Config) -> tuple[TypeRule, ...]:
    """Return the site's rules for types of jobs."""
    from models.job_types import TypeRule

    return tuple(TypeRule(**msgspec.structs.asdict(rule)) for rule in config.job_types)


def attempt_type(rules: Sequence[TypeRule], attempt: Attempt) -> str | None:
    """Return the type of a past job; None where nothing tells it."""
    from models.job_types import job_type

    row = attempt.row
    return job_type(rules, row.job_name, row.partition, row.account, attempt.script_signature)


def adaptive_strategy(config: Config) -> Strategy:
    """Return what learns types of jobs from attempts and then sizes requests by Algorithm 1."""
    from models.demand.adaptive_scaling import Scaling
    from models.demand.strategy import adaptive_sizing, learn_types
    from models.job_types import job_type

    rules = type_rules(config)
    settings = Scaling(**msgspec.structs.asdict(config.models.scaling))

    def request_type(request: JobRequest) -> str | None:
        return job_type(rules, request.job_name, request.partition, request.account, request.script_signature)

    def strategy(attempts: Sequence[Attempt]) -> Sizing:
        models = learn_types(attempts, lambda attempt: attempt_type(rules, attempt))
        note(f"{ADAPTIVE}: learned the run time of {len(models)} types of jobs")
        return adaptive_sizing(models, request_type, settings)

    return strategy


def policy_sizing(config: Config) -> Callable[[Predictor], Sizing]:
    """Return what the site's policy would grant on a predictor's word."""
    from accounting.request import granted
    from slurm_plugin.policy.rules import limits_of
    from slurm_plugin.policy.sizing import size

    limits = limits_of(config.policy)

    def of(predictor: Predictor) -> Sizing:
        def sizing(request: JobRequest) -> JobRequest:
            return granted(request, size(request, predictor.predict(request), limits).grant)

        return sizing

    return of
