"""`rightsizer evaluate`: what sizing would have saved, and which jobs it would have made fail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accounting.units import counted
from slurm_plugin.cli.given_options import refuse_given
from slurm_plugin.cli.models.drift import print_drift
from slurm_plugin.cli.models.job_types import ADAPTIVE, adaptive_strategy, print_run_times
from slurm_plugin.cli.models.sizing import online_grant, policy_sizing
from slurm_plugin.cli.number_range import NumberRange
from slurm_plugin.cli.output import config_option, format_option, print_rows, progress_bar
from slurm_plugin.cli.stored import check_store, stored_attempts, stored_past
from slurm_plugin.config.file import load_config
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from models.judging.evaluate import Score
    from models.judging.online import DecideAt
    from models.past.columns import PastColumns

FILE = click.Path(path_type=Path)


@click.command("evaluate")
@config_option
@click.option(
    "--train-share",
    type=NumberRange(0.05, 0.95),
    default=0.7,
    show_default=True,
    help="Learn from this share of the jobs, and judge on the later ones.",
)
@click.option(
    "--strategy",
    type=click.Choice(["rightsizer", ADAPTIVE, "all"]),
    default="rightsizer",
    show_default=True,
    help="What sizes requests: the service's own way, or a scaling down of the resources that run time does "
    "not depend on.",
)
@click.option(
    "--drift",
    is_flag=True,
    help="Show how far the latest jobs differ from earlier ones. Exit code 3: they drifted.",
)
@click.option("--run-time", is_flag=True, help="Show how well run times are predicted, for each type of job.")
@click.option(
    "--online",
    is_flag=True,
    help="Size the jobs of a file one by one, each from the jobs that had ended before.",
)
@click.option("--from-file", type=FILE, help="With --online: CSV file of past jobs, one per line.")
@click.option("--predictions", type=FILE, help="With --online: file to write what each job would be granted.")
@click.option(
    "--decide-at",
    type=click.Choice(["submit", "start"]),
    default="submit",
    show_default=True,
    help="With --online: the time at which a job is sized.",
)
@click.option(
    "--warm-ids",
    type=FILE,
    help="With --online: file of job ids, one per line, of jobs that ended before all others.",
)
@click.option(
    "--input-bytes",
    metavar="COLUMN",
    help="With --online: column with the size of a job's input in bytes, as known at submission.",
)
@format_option
def evaluate(
    config_file: str | None,
    train_share: float,
    strategy: str,
    drift: bool,
    run_time: bool,
    online: bool,
    from_file: Path | None,
    predictions: Path | None,
    decide_at: DecideAt,
    warm_ids: Path | None,
    input_bytes: str | None,
    output_format: str,
) -> None:
    """Show what sizing would have saved, and how many jobs it would have failed.

    The store is split by time: the command learns from the earlier jobs and sizes the later ones.

    With --online, the jobs of a file are sized instead, each as the service would have done at that moment: it knows
    every job that had ended before, and nothing else.

    \b
    Example:
      rightsizer evaluate --format csv > scores.csv
      rightsizer evaluate --strategy all
      rightsizer evaluate --run-time
      rightsizer evaluate --drift
      rightsizer evaluate --online --from-file jobs.csv --predictions granted.csv
    """
    config = load_config(config_file)
    if online:
        refuse_given("strategy", "train_share", "drift", "run_time", why="cannot be combined with --online")
        if from_file is None or predictions is None:
            raise click.UsageError("--online needs --from-file and --predictions")
        print_rows(
            [evaluate_online(config, from_file, predictions, decide_at, warm_ids, input_bytes)],
            output_format,
            f"sized at {decide_at}, each job from the jobs that had ended before",
        )
        return
    if from_file or predictions or warm_ids or input_bytes or decide_at != "submit":
        raise click.UsageError(
            "--from-file, --predictions, --warm-ids, --input-bytes and --decide-at need --online"
        )
    if drift and run_time:
        raise click.UsageError("--drift and --run-time do not go together; give one of them")
    if drift or run_time:
        refuse_given(
            "strategy", "train_share", why="cannot be combined with --drift or --run-time, which size no jobs"
        )
    check_store(config)
    if drift:
        sys.exit(print_drift(config, _read_past(config), output_format))
    if run_time:
        print_run_times(config, stored_attempts(config), output_format)
        return
    from models.judging.evaluate import evaluate as evaluate_past
    from slurm_plugin.service.decide import chain_settings_of

    past = _read_past(config)
    with progress_bar("learning from the earlier jobs, judging on the later ones") as told:
        result = evaluate_past(
            past,
            chain_settings_of(config),
            config.models.recent_jobs,
            None if strategy == ADAPTIVE else policy_sizing(config),
            train_share,
            {} if strategy == "rightsizer" else {ADAPTIVE: adaptive_strategy(config, told)},
            told,
        )
    print_rows(
        [score_row(score, "+".join(result.gpu_sources)) for score in result.scores],
        output_format,
        f"learned from {counted(result.learned_from, 'attempt')}, judged on {counted(result.judged, 'later one')}",
    )


def _read_past(config: Config) -> PastColumns:
    with progress_bar("reading the store"):
        return stored_past(config)


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


def evaluate_online(
    config: Config,
    file: Path,
    predictions: Path,
    decide_at: DecideAt,
    warm_ids: Path | None,
    input_bytes: str | None = None,
) -> dict[str, object]:
    """Size the jobs of a file one by one, write what each was granted, and return one row for all of them."""
    from models.judging.online import Learner, size_online
    from models.judging.online_table import Sized, check_writable, read_ids, read_jobs, tally, write_grants
    from slurm_plugin.service.decide import chain_settings_of

    check_writable(predictions, [one for one in (file, warm_ids) if one is not None])
    jobs = read_jobs(file, input_bytes)
    warm = frozenset[str]() if warm_ids is None else read_ids(warm_ids, jobs)
    learner = Learner(chain_settings_of(config), config.models.recent_jobs)
    sized: list[Sized] = []
    with progress_bar("sizing") as progress:
        for one in size_online(jobs, learner, online_grant(config), decide_at, warm):
            sized.append(one)
            progress(len(sized) / (len(jobs) - len(warm)), len(sized))
    write_grants(predictions, sized)
    return tally(sized)
