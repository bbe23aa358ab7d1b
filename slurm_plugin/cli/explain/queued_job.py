"""Explain a job in the queue: why it waits, when it will probably start or end, and what asking for less changes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from accounting.errors import ModelError, RightsizerError
from slurm_plugin.cli.explain.decision_words import decided_in_words
from slurm_plugin.cli.explain.job_id import JobId, queued_records
from slurm_plugin.cli.output import note, print_rows
from slurm_plugin.config.settings import Config
from slurm_plugin.slurm.job_lines import BEGINS_LATER
from slurm_plugin.slurm.snapshot import QueuedJob, Snapshot

if TYPE_CHECKING:
    from models.demand.prediction import Predictor
    from models.planning.interval_calibration import Calibration
    from models.planning.problem import Problem
    from models.planning.rollout import StartSpan
    from slurm_plugin.advisor.problem import Expect
    from slurm_plugin.advisor.run_time import RunTime
    from slurm_plugin.advisor.waiting import Needed, Variant

# How many futures with drawn run times are simulated for each start; an 80 % interval of fewer would be a guess.
SAMPLES = 20
NODES_START = (
    "but does not run yet: the nodes are being powered up or booted, or a prolog prepares them "
    "(`sinfo` shows which). Its time limit starts when they are ready; the end above assumes that this "
    "is now. If they do not come up, Slurm requeues a batch job, unless its user forbade that "
    "(--no-requeue)"
)
ENDS = (
    "it has ended, and Slurm is cleaning up after it: an epilog runs, or a node does not answer (`sinfo` "
    "shows which). Its use and its cost are known after that, when `rightsizer ingest` has run"
)


class Queued(msgspec.Struct, frozen=True):
    """The records of a waiting or running job (a het job or an array has several), and the queue as it is now."""

    records: tuple[QueuedJob, ...]
    snapshot: Snapshot
    cluster: str = ""


def find_queued(config: Config, job_id: JobId) -> Queued | None:
    """Return a job's records in the queue, None if there are none; SlurmError if Slurm does not answer."""
    from slurm_plugin.slurm.backends import open_queue

    queue = open_queue(config.advisor.queue)
    snapshot = queue.read()
    records = queued_records(job_id, snapshot.jobs)
    return Queued(records, snapshot, queue.cluster()) if records else None


def show_queued(queued: Queued, config: Config, output_format: str) -> None:
    """Print when a waiting job will probably start, as it is and if it asked for less, or when a running job ends."""
    from slurm_plugin.advisor.expectation import Expectations
    from slurm_plugin.advisor.preemption import preemption_in_words
    from slurm_plugin.advisor.run_time import over_limit_of

    predictor = _predictor(config)
    expect = Expectations(predictor).run_time
    for said in dict.fromkeys(decided_in_words(job) for job in queued.records):
        note(said)
    if any(job.waits for job in queued.records):
        _show_waiting(queued, expect, predictor, config, output_format)
        return
    now_s = queued.snapshot.time_s
    over_s = {job.job_id: over_limit_of(job, queued.snapshot) for job in queued.records}
    print_rows(
        [_running_row(job, expect(job), now_s, over_s[job.job_id]) for job in queued.records], output_format
    )
    for said in dict.fromkeys(preemption_in_words(job, queued.snapshot) for job in queued.records):
        if said:
            note(said)
    starting = [job for job in queued.records if job.configuring]
    for job in starting[:1]:
        more = f" (and {len(starting) - 1} more of its tasks)" if len(starting) > 1 else ""
        note(f"job {name_of(job)}{more} has its nodes {NODES_START}")
    ending = [job for job in queued.records if job.ending]
    if ending:
        note(ENDS)
    if len(starting) + len(ending) < len(queued.records):
        note(
            "it is running; its use and its cost are known after it has ended and `rightsizer ingest` has run"
        )


def _running_row(job: QueuedJob, run_time: RunTime, now_s: float, over_limit_s: float) -> dict[str, object]:
    from slurm_plugin.advisor.run_time import likely_left_s, most_left_s

    left_s = most_left_s(job, now_s, over_limit_s)
    return {
        "job": name_of(job),
        "state": job.state,
        "started": None if job.configuring else _moment(job.start_s - now_s, now_s),
        "likely end": None
        if job.ending
        else _moment(likely_left_s(run_time, job.ran_s(now_s), left_s), now_s),
        "its limit": None if job.ending else _moment(left_s, now_s),
        "CPUs": job.cpus,
        "memory (MiB)": job.mem_mib,
        "GPUs": job.gpus,
        "rests on": run_time.basis,
    }


def _show_waiting(
    queued: Queued, expect: Expect, predictor: Predictor | None, config: Config, output_format: str
) -> None:
    from slurm_plugin.advisor.places import unknown_of
    from slurm_plugin.advisor.preemption import preemption_in_words
    from slurm_plugin.advisor.problem import NONE_UP, UNEQUAL, problem_of
    from slurm_plugin.advisor.shared_limits import counted_anew
    from slurm_plugin.advisor.size_priority import at_their_size
    from slurm_plugin.advisor.standing import cpus_must_stay
    from slurm_plugin.advisor.waiting import (
        ahead_of,
        asks_now,
        is_cut,
        limit_in_words,
        variants,
        way_back,
        why_it_waits,
        why_whole,
    )
    from slurm_plugin.advisor.whole_cores import whole_cores_of
    from slurm_plugin.slurm.release import read_release

    snapshot = queued.snapshot
    cores = whole_cores_of(snapshot)
    # SiteFactors in force are part of the present order, whoever set them.
    problem = problem_of(snapshot, expect, ours={})
    calibration = _calibration(config, queued)
    rows: list[dict[str, object]] = []
    cpus_stay = any(map(is_cut, queued.records)) and cpus_must_stay(read_release())
    out = frozenset(one.job_id for one in problem.pending if one.out)
    for job in (job for job in queued.records if job.waits):
        note(f"job {name_of(job)} waits: {why_it_waits(job, ahead_of(job, snapshot.jobs, out))}")
        pending = next(one for one in problem.pending if one.job_id == job.job_id)
        for said in filter(
            None,
            (
                asks_now(job),
                way_back(job, cpus_stay=cpus_stay),
                why_whole(job),
                limit_in_words(pending, problem),
                preemption_in_words(job, snapshot),
            ),
        ):
            note(said)
        if pending.out:
            note(f"its start cannot be estimated: {_held_up(job, snapshot.time_s)}")
        elif pending.kept in (UNEQUAL, NONE_UP):
            note(f"its start cannot be estimated: {pending.kept}")
            pending = msgspec.structs.replace(pending, out=True)
        elif unknown := unknown_of(job):
            note(f"its start is estimated as if it did not ask for {', '.join(unknown)}; it may start later")
        needed, step = _needed(job, predictor, config), cores.step_of(job)
        found = variants(pending, needed, step=step, whole_nodes=job.exclusive)
        # If the job does not wait for resources, asking for less changes nothing.
        found = found[:1] if pending.out else counted_anew(job, at_their_size(job, found, snapshot), snapshot)
        if lost := max(found[0].job.priority - one.job.priority for one in found):
            note(
                f"if it asked for less, it would lose up to {lost:,} of its {job.priority:,} points of "
                "priority, because this site gives priority for size (PriorityWeightTRES, "
                "PriorityWeightJobSize); the starts below include that"
            )
        rows += _rows(job, found, problem, calibration, snapshot.time_s)
    print_rows(rows, output_format)
    if any(row["likely start"] for row in rows):
        waking = "the time that nodes take to power up, " if _may_wake(queued) else ""
        left_out = f"later submissions, {waking}and the renewal of time budgets"
        note(
            f"starts are simulated from the present queue; the simulation leaves out {left_out}. "
            f"{_meaning(calibration)}"
        )


def _may_wake(queued: Queued) -> bool:
    """Whether a waiting job may get a node that is powered down."""
    partitions = {name for job in queued.records if job.waits for name in job.partitions}
    return any(
        node.asleep and not node.away and partitions & {*node.partitions} for node in queued.snapshot.nodes
    )


def _calibration(config: Config, queued: Queued) -> Calibration:
    """Return how the advisor's earlier expected starts turned out; uncalibrated, with a note, if unreadable."""
    from models.planning.interval_calibration import UNCALIBRATED
    from slurm_plugin.advisor.past_starts import PastStarts
    from slurm_plugin.config.secret_urls import store_url

    try:
        return PastStarts(store_url(config), queued.cluster)(queued.snapshot)
    except RightsizerError as error:
        note(f"cannot read how earlier expected starts turned out: {error}")
        return UNCALIBRATED


def _meaning(calibration: Calibration) -> str:
    from models.planning.interval_calibration import is_settled

    if is_settled(calibration):
        return "Judging by earlier expected starts, the real start lies in the range four times out of five"
    return (
        "The range considers run times alone. Too few expected starts are known to say how often it "
        "holds: at other sites it held less than half of the time"
    )


def name_of(job: QueuedJob) -> str:
    """Return a queued job's id as people write it: 4711_3 for a task, 4711_[5-9] for several waiting tasks."""
    if not job.array_tasks:
        return str(job.job_id)
    tasks = job.array_tasks if job.array_tasks.isdecimal() else f"[{job.array_tasks}]"
    return f"{job.array_job_id}_{tasks}"


def _rows(
    job: QueuedJob,
    found: Sequence[Variant],
    problem: Problem,
    calibration: Calibration,
    now_s: float,
) -> list[dict[str, object]]:
    starts = [None if variant.job.out else _start(problem, variant, calibration) for variant in found]
    as_it_is = starts[0]
    return [
        {
            "job": name_of(job),
            "if it asked for": variant.what,
            "likely start": _moment(start.start_s, now_s) if start else None,
            "not before": _moment(start.low_s, now_s) if start else None,
            "not after": _moment(start.high_s, now_s) if start else None,
            "sooner by (min)": _sooner(as_it_is, start),
        }
        for variant, start in zip(found, starts, strict=True)
    ]


def _start(problem: Problem, variant: Variant, calibration: Calibration) -> StartSpan:
    from models.planning.interval_calibration import calibrated_span
    from models.planning.rollout import expected_starts

    pending = tuple(variant.job if one.job_id == variant.job.job_id else one for one in problem.pending)
    at = next(place for place, one in enumerate(pending) if one is variant.job)
    return calibrated_span(
        expected_starts(msgspec.structs.replace(problem, pending=pending), SAMPLES)[at], calibration
    )


def _held_up(job: QueuedJob, now_s: float) -> str:
    if job.reason == BEGINS_LATER and job.eligible_s > now_s:
        return f"it begins no earlier than {_moment(job.eligible_s - now_s, now_s)}"
    return "it is held up by something else than missing resources"


def _moment(start_s: float, now_s: float) -> str:
    if math.isinf(start_s):
        return "more than a week from now"
    return time.strftime("%m-%d %H:%M", time.localtime(now_s + start_s))


def _sooner(before: StartSpan | None, after: StartSpan | None) -> float | None:
    if before is None or after is None or before is after or math.isinf(before.start_s + after.start_s):
        return None
    return round((before.start_s - after.start_s) / 60, 1)


def _needed(job: QueuedJob, predictor: Predictor | None, config: Config) -> Needed:
    """Return what the site would grant the job now, and an upper bound of the wall time of similar jobs."""
    from slurm_plugin.advisor.run_time import request_of
    from slurm_plugin.advisor.waiting import Needed
    from slurm_plugin.cli.models.sizing import online_grant

    if predictor is None:
        return Needed()
    request = request_of(job)
    prediction = predictor.predict(request)
    granted, _ = online_grant(config)(predictor, request)
    wall = predictor.wall_time(request)
    return Needed(
        cpus=granted.cpus if prediction.cores else None,
        mem_mib=granted.mem_mib if prediction.memory else None,
        wall_s=wall.upper if wall else None,
    )


def _predictor(config: Config) -> Predictor | None:
    """Return the model in use, with the jobs that have ended since; None, with a note, if there is none."""
    from models.versions import registry
    from models.versions.artefact import load_predictor
    from models.versions.feed import join_feed
    from slurm_plugin.service.decide import chain_settings_of

    directory = Path(config.models.directory)
    try:
        predictor = load_predictor(registry.current_folder(directory), chain_settings_of(config))
    except ModelError as error:
        note(f"every job is assumed to run for its whole time limit: {error}")
        return None
    join_feed(predictor, directory)
    return predictor
