"""Job types in `rightsizer evaluate`: how well their run times are predicted, and sizing by Algorithm 1."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from accounting.errors import ModelError
from accounting.units import counted
from slurm_plugin.cli.output import Progress, note, print_rows, progress_bar
from slurm_plugin.cli.stored import stored_attempts
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from accounting.records import Attempt
    from accounting.request import JobRequest
    from models.judging.evaluate import Strategy
    from models.judging.outcomes import Sizing
    from models.run_time.job_types import TypeRule
    from models.run_time.judged import TypeScore
    from models.run_time.regression import NotLearned

ADAPTIVE = "adaptive-scaling"
# How many of the job types that were not learned are named: a site has hundreds.
_SHOWN = 3


def print_run_times(config: Config, attempts: Iterable[Attempt], output_format: str) -> None:
    """Print how well run times are predicted, one row for each job type."""
    from models.run_time.judged import score_types
    from models.run_time.regression import MIN_JOBS

    rules, begun_s = type_rules(config), time.monotonic()
    with progress_bar("learning run times") as progress:
        scores = score_types(attempts, lambda attempt: attempt_type(rules, attempt), told=progress)
    if not scores:
        raise ModelError(
            "no attempt in the store is completed and has a type, which comes from the job's name or from "
            "[[job_types]] of the configuration; run `rightsizer ingest`, of dumps with the column JobName"
        )
    most_error = config.models.scaling.most_error
    # Most of a site's job types have only a few jobs, and in a table their rows would say only that.
    shown = [score for score in scores if output_format != "table" or score.jobs >= MIN_JOBS]
    rows = [run_time_row(score, most_error) for score in shown]
    print_rows(rows, output_format, "Run time by the resources used")
    if len(shown) < len(scores):
        note(
            f"not shown: {counted(len(scores) - len(shown), 'type')} of fewer than {MIN_JOBS} jobs, which JSON and CSV "
            "include"
        )
    note(f"learned and judged {counted(len(scores), 'type')} of jobs in {time.monotonic() - begun_s:.0f} s")


def run_time_row(score: TypeScore, most_error: float) -> dict[str, object]:
    """Return the row of one job type; its figures are None if nothing was learned."""
    from models.run_time.judged import describe_importances
    from models.run_time.regression import FOREST, XGBOOST, Judged

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
        "note": note_of(score, most_error),
    }


def note_of(score: TypeScore, most_error: float) -> str:
    """Return why a job type has no figures, or why requests are not scaled by them; '' if they are."""
    from models.run_time.regression import NotLearned
    from models.run_time.strategy import doubt_of

    if isinstance(score.result, NotLearned):
        return f"not enough evidence: {score.result.reason}"
    doubt = doubt_of(score.result, most_error)
    return f"not scaled by: {doubt}" if doubt else ""


def type_rules(config: Config) -> tuple[TypeRule, ...]:
    """Return the site's rules for job types."""
    from models.run_time.job_types import TypeRule

    return tuple(TypeRule(**msgspec.structs.asdict(rule)) for rule in config.job_types)


def attempt_type(rules: Sequence[TypeRule], attempt: Attempt) -> str | None:
    """Return the type of a past job; None if it has none."""
    from models.run_time.job_types import job_type

    row = attempt.row
    return job_type(rules, row.job_name, row.partition, row.account, attempt.script_signature)


def adaptive_strategy(config: Config, progress: Progress) -> Strategy:
    """Return a strategy that learns job types from the stored attempts, then sizes requests by Algorithm 1.

    `progress` is of a bar that is drawn already: a second one at the same time would draw over it.
    """
    from models.run_time.adaptive_scaling import Scaling
    from models.run_time.job_types import job_type
    from models.run_time.regression import NotLearned
    from models.run_time.strategy import TypeModel, adaptive_sizing, learn_types

    rules = type_rules(config)
    scaling = config.models.scaling
    settings = Scaling(alpha=scaling.alpha, step=scaling.step, theta=scaling.theta)

    def request_type(request: JobRequest) -> str | None:
        return job_type(rules, request.job_name, request.partition, request.account, request.script_signature)

    def strategy(split_s: int) -> Sizing:
        attempts = (one for one in stored_attempts(config) if one.ran and one.row.end_s < split_s)
        begun_s = time.monotonic()
        found = learn_types(
            attempts, lambda attempt: attempt_type(rules, attempt), scaling.most_error, progress
        )
        took_s = time.monotonic() - begun_s
        models = {name: one for name, one in found.items() if isinstance(one, TypeModel)}
        note(f"{ADAPTIVE}: learned the run time of {len(models)} types of jobs in {took_s:.0f} s")
        if why := why_unlearned({name: one for name, one in found.items() if isinstance(one, NotLearned)}):
            note(f"{ADAPTIVE}: kept as asked: {why}")
        return adaptive_sizing(models, request_type, settings)

    return strategy


def why_unlearned(types: Mapping[str, NotLearned]) -> str:
    """Return why job types were not learned, one reason for each of the first few; '' if there are none."""
    said = [f"{name}: {one.reason}" for name, one in list(types.items())[:_SHOWN]]
    more = len(types) - len(said)
    return "; ".join([*said, f"and {more} more (--run-time judges each)"] if more else said)
