"""Explain ended jobs: what was asked, granted and used, why, what the prediction rested on, and what the job cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from accounting.decisions.decision import REFUSED, Decision
from accounting.errors import ModelError, StoreError
from accounting.labels.energy import J_PER_KWH, KEPT, MIB_PER_GIB, Energy, energy_of
from accounting.records import Attempt, GpuUse
from accounting.request import Dimension
from accounting.states import is_failed_node
from slurm_plugin.cli.explain.job_id import JobId
from slurm_plugin.cli.output import local_second, note, print_rows
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.settings import Config
from slurm_plugin.slurm.local_cluster import local_cluster

if TYPE_CHECKING:
    from sqlalchemy import Engine

# What the hook's reasons for not carrying out a grant mean (lua/rightsizer/plan.lua, writes.lua).
REFUSALS = {
    "coupled_field": "other fields of the job depend on the one to be cut, and would not fit the cut",
    "memory_per_cpu_limit": "MaxMemPerCPU of a partition would raise its CPUs again",
    "write_failed": "slurmctld did not accept one of the changes, so all were undone",
}
S_PER_H = 3600.0


class Ended(msgspec.Struct, frozen=True):
    """An attempt that has ended, what was decided for it, and what it cost."""

    attempt: Attempt
    decision: Decision | None
    energy: Energy


def read_ended(config: Config, job_id: JobId, cluster: str) -> list[Ended]:
    """Return a job's attempts from the store; `cluster` '' means this machine's cluster, or the only one with the job.

    Raises StoreError if there is no store, or if it is not clear which of several clusters is meant.
    """
    from accounting.store.records import read_decision, read_gpu_use

    with opened_store(config) as engine:
        attempts = _of_one_cluster(_stored(engine, job_id, cluster), job_id, config)
        with engine.connect() as connection:
            metered = read_gpu_use(connection, sorted({one.row.job_id for one in attempts}))
        return [
            ended_of(one, read_decision(engine, one.decision_id), metered.get(one.row.job_id, []), config)
            for one in attempts
        ]


def clusters_with(config: Config, job_id: JobId) -> list[str]:
    """Return the clusters of which the store has such a job; StoreError if there is no store."""
    with opened_store(config) as engine:
        return sorted({one.row.cluster for one in _stored(engine, job_id)})


def _stored(engine: Engine, job_id: JobId, cluster: str = "") -> list[Attempt]:
    """Return the attempts of a job in the store, of one cluster (slurmdbd stores `Alpha` as `alpha`) or of any ('')."""
    from accounting.store.records import read_attempts

    number, shown = (None, str(job_id)) if job_id.is_part else (job_id.number, None)
    names = dict.fromkeys((cluster, cluster.lower()))
    found = (read_attempts(engine, number, cluster=name or None, display_id=shown) for name in names)
    return next(filter(None, found), [])


def ended_of(attempt: Attempt, decision: Decision | None, metered: Sequence[GpuUse], config: Config) -> Ended:
    """Return an attempt with its decision and its energy, computed from the job's meters and the site's figures."""
    from slurm_plugin.config.energy import energy_site

    return Ended(
        attempt, decision, energy_of(attempt, _metered(attempt, metered), energy_site(config.energy))
    )


def _of_one_cluster(attempts: list[Attempt], job_id: JobId, config: Config) -> list[Attempt]:
    """Return the attempts of this machine's cluster if several clusters have a job of that number."""
    clusters = sorted({one.row.cluster for one in attempts})
    if len(clusters) < 2:
        return attempts
    local = local_cluster(config)
    if local not in clusters:
        raise StoreError(
            f"several clusters have a job {job_id}: {', '.join(clusters)}; choose one with --cluster"
        )
    note(
        f"showing the job of cluster {local}; other clusters have a job {job_id} too ({', '.join(clusters)}): "
        "choose one with --cluster"
    )
    return [one for one in attempts if one.row.cluster == local]


def _metered(attempt: Attempt, uses: Sequence[GpuUse]) -> list[GpuUse]:
    return [use for use in uses if use.may_be_of(attempt.row.cluster)]


def show_ended(found: Sequence[Ended], config: Config, output_format: str, *, with_why: bool) -> None:
    """Print what became of a job's attempts; with `with_why`, only the rows on which the predictions rested."""
    if not with_why:
        print_rows([row for one in found for row in _rows(one.attempt, one.decision)], output_format)
    if with_why or output_format == "table":
        decisions = [one.decision for one in found]
        by_id = {decision.id: decision for decision in decisions if decision is not None and decision.model}
        grounds = [row for decision in by_id.values() for row in _grounds(decision, config)]
        if with_why or grounds:
            print_rows(grounds, output_format, title="" if with_why else "What the prediction was based on")
    for one in found:
        note(_story(one.attempt, one.decision))
        note(_cost(one.energy))


def _grounds(decision: Decision, config: Config) -> list[dict[str, object]]:
    """Return what a decision's prediction rested on; empty, with a note, if that is no longer known.

    It is computed again with the model that decided, the jobs that it knew then, and the settings in force then.
    """
    from models.versions.artefact import load_predictor
    from models.versions.feed import join_feed
    from models.versions.registry import versions
    from slurm_plugin.cli.why import why
    from slurm_plugin.service.decide import chain_settings_of, chain_settings_then

    directory = Path(config.models.directory)
    if decision.from_token:
        note(
            f"what the prediction was based on is not known: of decision {decision.id} only the job's token was "
            "read; `rightsizer ingest` reads the rest from the journal, if that still has it"
        )
        return []
    if decision.settings is None:
        note(
            f"decision {decision.id} was made by an earlier release, which did not record margins; "
            "today's margins are used"
        )
    try:
        if decision.model not in versions(directory):
            note(
                f"what the prediction was based on is not known: model {decision.model} is no longer in "
                f"{directory} (models.keep_days says how long models are kept). The decision itself is "
                "in the store"
            )
            return []
        then = decision.settings
        settings = chain_settings_then(then) if then else chain_settings_of(config)
        predictor = load_predictor(directory / decision.model, settings)
        join_feed(predictor, directory, until_s=decision.time_s)
        return why(predictor, decision.request, directory / decision.model)
    except ModelError as error:
        note(f"what the prediction was based on is not known: {error}")
        return []


class _Held(NamedTuple):
    """One resource of an attempt, as totals of the job; `per_hour` is how much of it, held for an hour, counts as 1."""

    name: str
    dimension: Dimension
    asked: int | None
    given: int | None
    used: float | None
    measured: str
    per_hour: int = 1


def _held(attempt: Attempt) -> tuple[_Held, ...]:
    use, row = attempt.use, attempt.row
    return (
        _Held(
            "memory (MiB)",
            "memory",
            attempt.asked_mem_mib,
            row.alloc_mem_mib,
            use.peak_mem_mib,
            use.memory_quality,
            MIB_PER_GIB,
        ),
        _Held("CPUs", "cores", attempt.asked_cpus, row.alloc_cpus, use.cores, "mean of busy cores"),
        _Held("GPUs", "gpus", attempt.asked_gpus, row.alloc_gpus, use.gpus, use.gpu_source or "no meter"),
    )


def _rows(attempt: Attempt, decision: Decision | None) -> list[dict[str, object]]:
    reasons = {reason.dimension: reason.reason for reason in decision.dimensions} if decision else {}
    row = attempt.row
    return [
        {
            "job": row.display_id,
            "attempt": local_second(row.start_s) if row.start_s else "never started",
            "resource": held.name,
            "asked": held.asked,
            "allocated": held.given,
            "used": None if held.used is None else round(held.used, 2),
            "measured": held.measured,
            "hours": _hours(attempt, held, held.given),
            "in vain": _hours(attempt, held, _in_vain(attempt, held)),
            "why": reasons.get(held.dimension, ""),
        }
        for held in _held(attempt)
        # A whole node includes GPUs even if none were asked for.
        if held.asked is not None or held.given
    ]


def _in_vain(attempt: Attempt, held: _Held) -> float | None:
    """Return how much of an allocation was wasted: what was not used, or all of it unless the run's result was kept."""
    if held.given is None or attempt.use.outcome not in KEPT:
        return held.given
    return None if held.used is None else max(0.0, held.given - held.used)


def _hours(attempt: Attempt, held: _Held, amount: float | None) -> float | None:
    return None if amount is None else round(amount / held.per_hour * attempt.use.wall_s / S_PER_H, 3)


def _story(attempt: Attempt, decision: Decision | None) -> str:
    end = f"job {attempt.row.display_id} ended {attempt.row.state}"
    if is_failed_node(attempt.row.state) and not attempt.ran:
        end += ": Slurm's records indicate that its nodes did not come up, so it never ran"
    if decision is None:
        return f"{end}; no decision of rightsizer is recorded for it"
    what = "was applied" if decision.applied else "was not applied"
    if decision.reason.startswith(REFUSED):
        reason = decision.reason.removeprefix(REFUSED)
        what += f": the hook left the job unchanged, because {REFUSALS.get(reason, reason)}"
    model = f", model {decision.model}" if decision.model else ""
    again = (
        (
            f"; it was made while the job waited, {local_second(decision.time_s)}, and replaced "
            f"{decision.replaces}"
        )
        if decision.replaces
        else ""
    )
    lost = "; this is known from the job's token alone" if decision.from_token else ""
    return (
        f"{end}; decision {decision.id} ({decision.reason}) {what}, mode {decision.mode}{model}{again}{lost}"
    )


def _cost(energy: Energy) -> str:
    """Return an attempt's energy and carbon in words."""
    kwh, in_vain = energy.energy_j / J_PER_KWH, energy.wasted_j / J_PER_KWH
    return (
        f"it used {kwh:.3g} kWh ({energy.quality} by {energy.source or 'nobody'}), {in_vain:.3g} kWh of "
        f"it in vain; {energy.carbon_kg:.3g} kg of CO2 with the site's cooling"
    )
