"""Jobs of a dump in the columns of accounting/frames.py, with a reason for each implausible line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting import columns, frames
from accounting.dumps.clock_changes import fitting
from accounting.dumps.fields import Fields, over_distinct
from accounting.dumps.rows import Rows
from accounting.frames import by_value
from accounting.slurm.sacct_records import Metering
from accounting.states import NO_PARTITION, RESIZED, is_resized
from accounting.tres import name_tres

DAY_S = 86400
# More than any machine has: a larger figure is damage.
MOST_NODE_CPUS = 16_384
MOST_NODE_GPUS = 4096
MOST_NODE_W = 100_000
MOST_NODES = 1_000_000
MOST_NODE_MEM_MIB = 256 * 1024**2
# Nothing that Slurm ran can be older: 2002.
FIRST_S = 1_009_843_200
# How much longer than its limit a job may run: OverTimeLimit and KillWait are minutes.
GRACE_S = 3600
_TRES = {
    1: "cpu", 2: "mem", 3: "energy", 4: "node", 5: "billing", 6: "fs/disk", 7: "vmem", 8: "pages",
}  # fmt: skip
_NUMBERED = re.compile(r"(?:^|,)([0-9]{1,9})=")


class DumpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a dump does not say itself. `zone` is that of local times; nothing can have ended after `now_s`.

    `cluster` is used if the dump names none ('' means the file's name). `gpu_tres` are the numbers that slurmdbd's
    table uses for GPUs; a job's GPUs are the largest value among them. `metering` says what measured.
    """

    now_s: int
    zone: ZoneInfo
    cluster: str = ""
    gpu_tres: tuple[int, ...] = ()
    metering: Metering = Metering()
    block_bytes: int = 4 * 1024**2


@dataclass(frozen=True)
class Times:
    """When jobs were submitted, started and ended (unix seconds), and how long they ran (seconds)."""

    submit_s: pa.Array
    start_s: pa.Array
    end_s: pa.Array
    elapsed_s: pa.Array


def read_jobs(rows: Rows, settings: DumpSettings, cluster: str) -> pa.Table:
    """Parse all lines of a block as jobs (JOBS) and mark the wrong ones; only results for job lines have a meaning."""
    fields = Fields(rows, settings.zone)
    requested, granted = (resources_in(fields, settings, thing) for thing in ("req_tres", "alloc_tres"))
    req_cpus = pc.coalesce(requested.cpus, fields.number("req_cpus"))
    alloc_cpus = pc.coalesce(granted.cpus, fields.number("alloc_cpus"))
    nodes = pc.coalesce(fields.number("nodes"), granted.nodes)
    limit_s = _limit_s(fields)
    times = _times(rows, fields, req_cpus, alloc_cpus, limit_s)
    job_id, display_id = _ids(rows, fields)
    given = fields.words("cluster")
    made = {
        "cluster": pc.if_else(pc.equal(given, ""), cluster, given),
        "job_id": job_id,
        "display_id": display_id,
        "user": fields.name("user"),
        **{name: fields.words(name) for name in _WORDS},
        "state": fields.state(),
        **vars(times),
        "limit_s": limit_s,
        "nodes": pc.fill_null(nodes, 0),
        "tasks": fields.number("tasks"),
        "req_cpus": req_cpus,
        "req_mem_mib": pc.coalesce(requested.mem_mib, _requested_mib(fields, req_cpus, nodes)),
        "req_gpus": requested.gpus,
        # For a job that never started, NCPUS is the number that it requested.
        "alloc_cpus": pc.coalesce(granted.cpus, pc.if_else(pc.greater(times.elapsed_s, 0), alloc_cpus, None)),
        "alloc_mem_mib": granted.mem_mib,
        "alloc_gpus": granted.gpus,
        "energy_j": believable_j(
            pc.coalesce(fields.number("energy_raw"), granted.energy_j), nodes, times.elapsed_s
        ),
        "slurm_release": pa.repeat(settings.metering.release, len(rows.lines)),
        "gather": pa.repeat(settings.metering.gather, len(rows.lines)),
        "digest": pa.nulls(len(rows.lines), pa.int64()),
    }
    jobs = pa.table([made[field.name].cast(field.type) for field in frames.JOBS], frames.JOBS)
    _doubt(rows, jobs, settings.now_s)
    over = pc.greater(pc.fill_null(jobs["end_s"], 0), 0)
    rows.mark(rows.is_job & np.asarray(over) & by_value(jobs["state"], is_resized).astype(bool), RESIZED)
    if fields.has("partition"):
        ended = pc.not_equal(columns.outcomes(jobs["state"]), "unfinished")
        blank = pc.and_(ended, pc.equal(jobs["partition"], ""))
        rows.mark(rows.is_job & np.asarray(blank), NO_PARTITION)
    return jobs


def believable_j(energy_j: pa.Array, nodes: pa.Array, elapsed_s: pa.Array) -> pa.Array:
    """Return joules, null if more than the nodes can draw: meters that were reset produce such figures."""
    watts = pc.multiply(pc.max_element_wise(nodes, 1).cast(pa.float64(), safe=False), float(MOST_NODE_W))
    seconds = pc.add(pc.fill_null(elapsed_s, 0).cast(pa.float64(), safe=False), 3600.0)
    joules = energy_j.cast(pa.float64(), safe=False)
    return pc.if_else(pc.less_equal(joules, pc.multiply(watts, seconds)), joules, None)


_WORDS = ("account", "partition", "qos", "job_name", "comment", "admin_comment")


def resources_in(fields: Fields, settings: DumpSettings, thing: str) -> columns.TresAmounts:
    """Parse a column of TRES lists, `req_tres` or `alloc_tres`."""
    text = fields.resources(thing)
    gpus = dict.fromkeys(settings.gpu_tres, "gres/gpu")
    return columns.tres_amounts(over_distinct(text, lambda one: name_tres(one, _TRES | gpus)))


def unnamed_tres(rows: Rows, settings: DumpSettings) -> set[int]:
    """Return the TRES numbers in a block that have no name in Slurm or `gpu_tres`: any of them may be GPUs."""
    columns_of_lists = (rows.text(thing) for thing in ("req_tres", "alloc_tres"))
    lists = (one for text in columns_of_lists if text is not None for one in pc.unique(text).to_pylist())
    found = {int(number) for one in lists for number in _NUMBERED.findall(one)}
    return found - _TRES.keys() - set(settings.gpu_tres)


def _times(rows: Rows, fields: Fields, req_cpus: pa.Array, alloc_cpus: pa.Array, limit_s: pa.Array) -> Times:
    submit_s, elapsed_s = fields.time("submit"), told_elapsed_s(fields)
    start_s, end_s = fitting(submit_s, fields.times("start"), fields.times("end"), elapsed_s)
    if fields.has("start", "end"):
        never = pc.equal(pc.fill_null(start_s, 0), 0)
        elapsed_s = pc.coalesce(elapsed_s, pc.if_else(never, 0, pc.subtract(end_s, start_s)))
    elapsed_s = pc.coalesce(elapsed_s, _by_cpu_time(rows, fields, req_cpus, alloc_cpus, limit_s))
    waited_s = pc.fill_null(_waited_s(fields, req_cpus), 0)
    begun_s = pc.add(submit_s, waited_s)
    if not fields.has("start"):
        start_s = pc.if_else(pc.greater(elapsed_s, 0), begun_s, 0)
    if not fields.has("submit"):
        submit_s = begun_s = start_s
    if not fields.has("end"):
        start_or_wait_s = pc.if_else(pc.greater(pc.fill_null(start_s, 0), 0), start_s, begun_s)
        end_s = pc.add(start_or_wait_s, elapsed_s)
    return Times(submit_s, pc.fill_null(start_s, 0), end_s, elapsed_s)


def told_elapsed_s(fields: Fields) -> pa.Array:
    """Return elapsed times as recorded; null if not recorded."""
    return pc.coalesce(fields.number("elapsed_raw"), _whole_s(fields.duration("elapsed")))


def _by_cpu_time(
    rows: Rows, fields: Fields, req_cpus: pa.Array, alloc_cpus: pa.Array, limit_s: pa.Array
) -> pa.Array:
    """Return elapsed time as CPU time divided by CPUs: right only if as many were allocated as the dump says."""
    cpu_time_s = pc.coalesce(fields.number("cpu_time_raw"), _whole_s(fields.duration("cpu_time")))
    cpus = pc.coalesce(alloc_cpus, req_cpus)
    cpus = pc.if_else(pc.greater(cpus, 0), cpus, None)
    elapsed_s = pc.divide(cpu_time_s, cpus)
    if fields.has("elapsed_raw") or fields.has("elapsed") or fields.has("start", "end"):
        return elapsed_s
    uneven = pc.not_equal(pc.multiply(elapsed_s, cpus), cpu_time_s)
    too_long = pc.greater(elapsed_s, pc.add(limit_s, GRACE_S))
    rows.mark(
        rows.is_job & np.asarray(pc.fill_null(pc.or_kleene(uneven, too_long), False)),
        "CPUTimeRAW does not match the requested CPUs: the job was given others, and AllocCPUS is missing",
    )
    return elapsed_s


def _waited_s(fields: Fields, req_cpus: pa.Array) -> pa.Array:
    cpus = pc.if_else(pc.greater(req_cpus, 0), req_cpus, None)
    return pc.coalesce(_whole_s(fields.duration("waited")), pc.divide(fields.number("waited_raw"), cpus))


def _whole_s(seconds: pa.Array) -> pa.Array:
    return pc.floor(seconds).cast(pa.int64())


def _limit_s(fields: Fields) -> pa.Array:
    if fields.has("limit_min"):
        return pc.multiply(fields.number("limit_min"), 60)
    if fields.slurmdbd:
        return pc.multiply(fields.number("limit"), 60)
    return _whole_s(fields.duration("limit"))


def _requested_mib(fields: Fields, cpus: pa.Array, nodes: pa.Array) -> pa.Array:
    return columns.requested_memory_mib(fields.name("req_mem"), cpus, nodes)


def _ids(rows: Rows, fields: Fields) -> tuple[pa.Array, pa.Array]:
    """Return the numbers and the display ids of jobs.

    Without JobIDRaw, array tasks and het components get numbers of ours, above all of Slurm's; without any id, a
    job's number is that of its line.
    """
    if rows.ids is None:
        numbers = pa.array(rows.numbers)
        return numbers, numbers.cast(pa.string())
    number, display_id = rows.ids.number, rows.ids.display_id
    if fields.has("array", "task"):
        of_array = pc.binary_join_element_wise(
            fields.number("array").cast(pa.string()), fields.number("task").cast(pa.string()), "_"
        )
        return number, pc.coalesce(of_array, display_id)
    if fields.has("raw_id"):
        if fields.has("id"):
            shown = columns.job_ids(fields.words("id"))
            alone = pc.and_(
                pc.is_null(shown.task), pc.and_(pc.is_null(shown.component), pc.invert(shown.pending))
            )
            differ = pc.and_(alone, pc.not_equal(shown.number, number))
            rows.mark(pc.fill_null(differ, False), "JobID and JobIDRaw belong to different jobs")
            display_id = pc.coalesce(shown.display_id, display_id)
        return number, display_id
    part = pc.coalesce(pc.add(rows.ids.task, 1), pc.add(rows.ids.component, 2**29))
    ours = pc.add(pc.multiply(number, 2**30), part)
    return pc.coalesce(ours, number), display_id


def _doubt(rows: Rows, jobs: pa.Table, now_s: int) -> None:
    """Mark ended jobs whose figures are impossible."""
    ended = pc.not_equal(columns.outcomes(jobs["state"]), "unfinished")
    submit_s, start_s, end_s, elapsed_s = (
        jobs[name] for name in ("submit_s", "start_s", "end_s", "elapsed_s")
    )
    started = pc.greater(start_s, 0)
    nodes = pc.max_element_wise(jobs["nodes"], 1)
    wrong = (
        (pc.less(pc.fill_null(submit_s, 0), FIRST_S), "no time of submission, or one before Slurm existed"),
        (pc.less(pc.fill_null(end_s, 0), FIRST_S), "no end, although its state says that it ended"),
        (pc.is_null(elapsed_s), "no elapsed time"),
        (pc.greater(nodes, MOST_NODES), "more nodes than any cluster has"),
        (pc.greater(end_s, now_s + DAY_S), "it ends in the future"),
        (pc.less(end_s, start_s), "it ends before it starts"),
        (pc.and_(started, pc.less(start_s, submit_s)), "it starts before it was submitted"),
        (pc.less(end_s, submit_s), "it ends before it was submitted"),
        (
            pc.greater(elapsed_s, pc.if_else(started, pc.add(pc.subtract(end_s, start_s), 1), 0)),
            "it ran longer than the time from its start to its end",
        ),
        *(
            (pc.greater(jobs[name], pc.multiply(nodes, most)), f"{name} is more than its nodes can have")
            for name, most in _MOST.items()
        ),
    )
    for mask, reason in wrong:
        rows.mark(rows.is_job & np.asarray(pc.and_(ended, pc.fill_null(mask, False))), reason)


_MOST = {
    "req_cpus": MOST_NODE_CPUS,
    "alloc_cpus": MOST_NODE_CPUS,
    "req_mem_mib": MOST_NODE_MEM_MIB,
    "alloc_mem_mib": MOST_NODE_MEM_MIB,
    "req_gpus": MOST_NODE_GPUS,
    "alloc_gpus": MOST_NODE_GPUS,
}
