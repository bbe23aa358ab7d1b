"""`rightsizer explain`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accounting.decisions import REFUSED
from accounting.errors import ModelError, StoreError
from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.config import Config, load_config

if TYPE_CHECKING:
    from accounting.decisions import Decision
    from accounting.records import Attempt

# What the hook's reasons for not carrying out a grant mean (lua/rightsizer/plan.lua, writes.lua).
REFUSALS = {
    "coupled_field": "other fields of the job follow from what was to be cut, and do not fit it",
    "memory_per_cpu_limit": "a partition's MaxMemPerCPU would raise its CPUs again",
    "write_failed": "slurmctld did not take a change, and all were taken back",
}


@click.command("explain")
@click.argument("job_id", type=int)
@click.option("--why", "with_why", is_flag=True, help="Show only what the prediction rested on.")
@config_option
@format_option
def explain(job_id: int, with_why: bool, config_file: str | None, output_format: str) -> None:
    """Show for a finished job what was asked, granted and used, why, and by which model.

    A table also shows what the prediction rested on, where that model is still there; --why shows it in any format.

    \b
    Example:
      rightsizer explain 4711
      rightsizer explain --why --format json 4711
    """
    from accounting.store.database import open_store
    from accounting.store.records import read_attempts, read_decision

    config = load_config(config_file)
    engine = open_store(config.store.url)
    try:
        attempts = read_attempts(engine, job_id)
        if not attempts:
            raise StoreError(f"the store knows no job {job_id}; run `rightsizer ingest` once it has ended")
        decisions = [read_decision(engine, attempt.decision_id) for attempt in attempts]
    finally:
        engine.dispose()
    rows = [
        row for attempt, decision in zip(attempts, decisions, strict=True) for row in _rows(attempt, decision)
    ]
    if not with_why:
        print_rows(rows, output_format)
    if with_why or output_format == "table":
        by_id = {decision.id: decision for decision in decisions if decision is not None and decision.model}
        grounds = [row for decision in by_id.values() for row in _grounds(decision, config)]
        if with_why or grounds:
            print_rows(grounds, output_format, title="" if with_why else "What the prediction rested on")
    for attempt, decision in zip(attempts, decisions, strict=True):
        note(_story(attempt, decision))


def _grounds(decision: Decision, config: Config) -> list[dict[str, object]]:
    """Return what a decision's prediction rested on; nothing, and a note why, where its model is gone.

    It is worked out anew: by the model that decided, the jobs that it knew then and the site's settings of then.
    """
    from models.artefact import load_predictor
    from models.feed import join_feed
    from models.registry import versions
    from slurm_plugin.cli.why import why
    from slurm_plugin.service.decide import chain_settings_of, chain_settings_then

    directory = Path(config.models.directory)
    if decision.settings is None:
        note(
            f"decision {decision.id} is of an earlier release, which did not record margins: today's are used"
        )
    if decision.model not in versions(directory):
        note(
            f"what the prediction rested on is not known: model {decision.model} is not in {directory} any more"
        )
        return []
    try:
        then = decision.settings
        settings = chain_settings_then(then) if then else chain_settings_of(config)
        predictor = load_predictor(directory / decision.model, settings)
        join_feed(predictor, directory, until_s=decision.time_s)
        return why(predictor, decision.request, directory / decision.model)
    except ModelError as error:
        note(f"what the prediction rested on is not known: {error}")
        return []


def _rows(attempt: Attempt, decision: Decision | None) -> list[dict[str, object]]:
    reasons = {reason.dimension: reason.reason for reason in decision.dimensions} if decision else {}
    use, row = attempt.use, attempt.row
    figures = {
        "memory": (
            "memory (MiB)",
            attempt.asked_mem_mib,
            row.alloc_mem_mib,
            use.peak_mem_mib,
            use.memory_quality,
        ),
        "cores": ("CPUs", attempt.asked_cpus, row.alloc_cpus, use.cores, "mean of busy cores"),
        "gpus": ("GPUs", attempt.asked_gpus, row.alloc_gpus, use.gpus, use.gpu_source or "no meter"),
    }
    return [
        {
            "job": row.display_id,
            "attempt": time.strftime("%m-%d %H:%M:%S", time.localtime(row.start_s))
            if row.start_s
            else "never started",
            "resource": name,
            "asked": asked,
            "allocated": given,
            "used": None if used is None else round(used, 2),
            "measured": measured,
            "why": reasons.get(dimension, ""),  # type: ignore[call-overload]
        }
        for dimension, (name, asked, given, used, measured) in figures.items()
        if asked is not None
    ]


def _story(attempt: Attempt, decision: Decision | None) -> str:
    end = f"job {attempt.row.display_id} ended {attempt.row.state}"
    if decision is None:
        return f"{end}; no decision of ours is recorded for it"
    what = "was applied" if decision.applied else "was not applied"
    if decision.reason.startswith(REFUSED):
        reason = decision.reason.removeprefix(REFUSED)
        what += f": the hook left the job as it was submitted, because {REFUSALS.get(reason, reason)}"
    model = f", model {decision.model}" if decision.model else ""
    return f"{end}; decision {decision.id} ({decision.reason}) {what}, mode {decision.mode}{model}"
