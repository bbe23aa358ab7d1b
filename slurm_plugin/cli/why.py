"""What a prediction rests on, as table rows, for `rightsizer predict --why` and `rightsizer explain`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from accounting.units import counted
from models.demand.explanation import Explained, GrowthGrounds, RestsOn, Silence, StepName, explain
from models.past.families import basis_of
from slurm_plugin.policy.sizing import UNTOLD

if TYPE_CHECKING:
    from accounting.request import JobRequest
    from models.demand.prediction import Predictor

RESOURCES = {
    "memory": "memory (MiB)",
    "cores": "CPUs per task",
    "wall": "wall time (s)",
    "gpu_mem": "memory of a GPU (MiB)",
    "gpus": "GPUs",
}
STEPS: dict[StepName, str] = {
    "highest": "the most that one of {of_jobs} needed",
    "streak": "allowance for surprises: {since} since the last",
    "spread": "allowance for their spread",
    "next run": "a new run may need more than the runs before it",
    "growth": "lowered to the most that the growth model expects",
    "threads": "they keep one core busy, and no more",
    "margin": "with the site's margin: the prediction",
    "whole": "close enough to a whole number: the prediction",
    "too few": "a job that was given fewer kept all of them busy until its time limit: the prediction",
    "stopped": "a job that was given fewer failed, or waited until its time limit: the prediction",
    "shared": "steps that they started themselves held this much at one time: the prediction",
    "slowed": "with half as many, jobs kept fewer busy and ran longer: the prediction",
    "compared": "twice as many now and then, to learn whether the others run longer: the prediction",
    "slowdown": "with these, jobs run longer by no more than the site allows: the grant",
    "busy": "the most that one of the metered {basis} kept busy; {jobs} of them since then",
}
SILENCES: dict[Silence, str] = {
    "": "",
    "no model": "no growth model: too few jobs had a past to learn from",
    "not calibrated": "the growth model is not used: too few later jobs to calibrate it",
    "apart": "the growth model is not used: this user's jobs differ from those that it was trained on",
    "not settled": "the growth model is not used: the family has not shown enough yet",
}
TOO_FEW = "fewer jobs than this site's models.min_evidence: the request is kept"
NOT_COUNTED = "not counted"

Row = dict[str, object]


def why(predictor: Predictor, request: JobRequest, folder: Path) -> list[Row]:
    """Return what a prediction rests on; `folder` has the predictor's artefact. ModelError if that is damaged."""
    from models.versions.tree_shap import read_contributions

    return [
        row for one in explain(predictor, request, read_contributions(folder)) for row in explained_rows(one)
    ]


def explained_rows(one: Explained) -> Iterator[Row]:
    """Yield the rows of one dimension.

    `figure` has the dimension's unit; `effect` says how the row changed the prediction.
    """
    resource = RESOURCES[one.dimension]

    def row(part: str, what: str, figure: float | None = None, effect: str = "") -> Row:
        shown = None if figure is None else round(figure, 3)
        return {"resource": resource, "part": part, "what": what, "figure": shown, "effect": effect}

    since = (
        counted(one.streak or 0, "job") if one.runs is None else f"{counted(one.runs, 'run')} of such jobs"
    )
    if one.before:
        since += ", all before the run in progress,"
    of_jobs = basis_of(one.jobs, one.basis, "job")
    for step in one.steps:
        text = STEPS[step.name].format(jobs=one.jobs, of_jobs=of_jobs, basis=one.basis, since=since)
        yield row("step", text, step.upper, "" if step.counts else NOT_COUNTED)
    if not one.enough:
        yield row("step", TOO_FEW)
    if one.untold:
        yield row("step", f"{UNTOLD[one.untold]}: the request is kept")
    if one.silence:
        yield row("model", SILENCES[one.silence])
    if one.growth is not None:
        for what, figure, log_growth in grounds(one.growth):
            yield row("model", what, figure, f"x {math.exp(log_growth):.3f}")
    for job in one.rests_on:
        bound = "at least" if job.at_least else ""
        bumped = f", counts as {job.needed:,.0f}" if job.needed != job.used else ""
        yield row("job", told_job(job), job.used, bound + bumped)


def grounds(growth: GrowthGrounds) -> Iterator[tuple[str, float | None, float]]:
    """Yield each contribution to the growth model's answer: its name, its value, and what it adds to log growth."""
    yield "growth over the highest, for a typical family", None, growth.base
    for one in growth.contributions:
        yield one.phrase, one.value, one.log_growth
    yield "all else", None, growth.others
    yield "calibration on later jobs", None, growth.offset
    expected = growth.log_growth + growth.offset
    yield "together; what was used once can be used again, so a value below 1 counts as 1", None, expected


def told_job(job: RestsOn) -> str:
    """Return a past job in words."""
    name = "a job" if job.job_id is None else f"job {job.job_id}"
    ended = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.end_s))
    return f"{'the highest' if job.which == 'highest' else 'of the newest'}: {name}, ended {ended}"
