"""`rightsizer explain`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from accounting.decisions import REFUSED
from accounting.errors import StoreError
from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.config import load_config

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
@config_option
@format_option
def explain(job_id: int, config_file: str | None, output_format: str) -> None:
    """Show for a finished job what was asked, granted and used, why, and by which model.

    \b
    Example:
      rightsizer explain 4711
    """
    from accounting.store.database import open_store
    from accounting.store.records import read_attempts, read_decision

    engine = open_store(load_config(config_file).store.url)
    try:
        attempts = read_attempts(engine, job_id)
        if not attempts:
            raise StoreError(f"the store knows no job {job_id}; run `rightsizer ingest` once it has ended")
        decisions = [read_decision(engine, attempt.decision_id) for attempt in attempts]
    finally:
        engine.dispose()
    print_rows(
        [
            row
            for attempt, decision in zip(attempts, decisions, strict=True)
            for row in _rows(attempt, decision)
        ],
        output_format,
    )
    for attempt, decision in zip(attempts, decisions, strict=True):
        note(_story(attempt, decision))


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
