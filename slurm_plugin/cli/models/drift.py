"""`rightsizer evaluate --drift`: whether the latest jobs still resemble those that the models learned from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slurm_plugin.cli.output import EXIT_PROBLEMS, note, print_rows, progress_bar
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from models.judging.drift import FeatureDrift, WeekCalibration
    from models.past.columns import PastColumns


def print_drift(config: Config, past: PastColumns, output_format: str) -> int:
    """Print the drift of every feature and the calibration of every week, and return the exit code."""
    from models.judging.drift import alarming
    from models.judging.health import drift_of, health_of
    from models.training.training import train_columns
    from slurm_plugin.service.decide import chain_settings_of

    with progress_bar(f"learning from {len(past):,} attempts"):
        trained = train_columns(past, config.models.recent_jobs)
    features = drift_of(trained)
    weeks = {
        health.dimension: health.weeks
        for health in health_of(trained, chain_settings_of(config).most_failures)
    }
    rows = [feature_row(dimension, one) for dimension, found in features.items() for one in found]
    rows += [week_row(dimension, week) for dimension, found in weeks.items() for week in found]
    print_rows(
        rows,
        output_format,
        "PSI of the latest jobs against earlier ones, and each week's share beyond what a model of "
        "earlier jobs allows",
    )
    untold = [dimension for dimension in features if not weeks.get(dimension)]
    if untold:
        note(f"{', '.join(untold)}: too few later jobs to compare any week with the time before")
    alarms = {dimension: alarming(found, weeks.get(dimension, ())) for dimension, found in features.items()}
    for dimension, found in features.items():
        tell_by_age(
            dimension, [one for one in found if one.word == "drifted" and one not in alarms[dimension]]
        )
    return EXIT_PROBLEMS if any(alarms.values()) else 0


def tell_by_age(dimension: str, found: Sequence[FeatureDrift]) -> None:
    """Say which features have drifted but do not count, as they drift only because families grow older."""
    if found:
        note(
            f"{dimension}: the features {', '.join(one.feature for one in found)} count the past of "
            "families, so they drift as families grow older; while the calibration is stable they do "
            "not affect the exit code"
        )


def feature_row(dimension: str, one: FeatureDrift) -> dict[str, object]:
    """Return the row of one feature: its index, and what chance alone gives."""
    return {
        "resource": dimension,
        "what": f"feature {one.feature}",
        "figure": round(one.psi, 4),
        "expected": round(one.by_chance, 4),
        "jobs": one.latest,
        "in a word": one.word,
    }


def week_row(dimension: str, week: WeekCalibration) -> dict[str, object]:
    """Return the row of one week: the share of jobs that exceeded the model, and the share that may."""
    return {
        "resource": dimension,
        "what": f"week from {time.strftime('%Y-%m-%d', time.gmtime(week.from_s))}",
        "figure": round(week.observed, 4),
        "expected": week.nominal,
        "jobs": week.jobs,
        "in a word": week.word,
    }
