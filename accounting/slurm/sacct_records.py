"""Turns sacct's answers into columns: attempts that have ended, with their steps and texts. Pure.

An attempt whose record is byte for byte the same as when last read is recognised by its digest and not read again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from accounting import columns
from accounting.frames import JOBS, STEPS, Flags, Ints, Records, by_value, flagged, ints, table_of
from accounting.records import Quarantined
from accounting.slurm.sacct import DELIMITER, FIGURES, TEXTS, Answer
from accounting.slurm.sacct_groups import (
    SETTLED_S,
    SOURCE,
    Group,
    add_earlier_steps,
    add_texts,
    digest_of,
    ends_later,
    shown,
    split_groups,
)
from accounting.states import NO_PARTITION, RESIZED, UNKNOWN_STATE, WENT_ON, is_known, is_resized

# Attempts in one Records: what fits into a few hundred megabytes.
MOST_JOBS = 50_000


class Metering(msgspec.Struct, frozen=True, kw_only=True):
    """What measured: Slurm's release (`24.11`), its plugin (`jobacct_gather/cgroup cgroup/v2`), and how often."""

    release: str = ""
    gather: str = ""
    sampled_every_s: int = 30


def read_answer(
    answer: Answer,
    until_s: int,
    metering: Metering,
    known: Ints | None = None,
    most_jobs: int = MOST_JOBS,
    asked_s: int = 0,
) -> Iterator[Records]:
    """Yield the attempts in an answer that had ended by `until_s`, except those whose digest is among `known`.

    Attempts that ended later belong to a later window. `asked_s` is when Slurm was asked, if later than `until_s`:
    records of jobs that ended SETTLED_S before that are taken as complete. Raises SlurmError if the two calls
    contradict each other.
    """
    heading, *rows = answer.figures.removesuffix(b"\n").split(b"\n")
    names = tuple(heading.decode().split(DELIMITER))
    with no_collection():
        lines = split_groups(rows, len(names))
        add_texts(lines, answer, until_s)
        # Jobs that were pending or running at the window's end may be most of the answer, and will come again.
        lines.groups = [group for group in lines.groups if not ends_later(group, until_s)]
        add_earlier_steps(lines, answer)
        for group in lines.groups:
            group.digest = digest_of(group)
    seen = np.empty(0, dtype=np.int64) if known is None else known
    settled_s = max(until_s, asked_s) - SETTLED_S
    fresh = [group for group, old in zip(lines.groups, _is_known(lines.groups, seen), strict=True) if not old]
    yield replace(
        _records(fresh[:most_jobs], names, settled_s, metering, tuple(lines.quarantined)),
        known=len(lines.groups) - len(fresh),
    )
    for begin in range(most_jobs, len(fresh), most_jobs):
        yield _records(fresh[begin : begin + most_jobs], names, settled_s, metering)


@contextmanager
def no_collection() -> Iterator[None]:
    """Suspend the garbage collector: among lists of lines it finds nothing, and takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _is_known(groups: Sequence[Group], known: Ints) -> list[bool]:
    digests = np.fromiter((group.digest for group in groups), np.int64, len(groups))
    flags: list[bool] = np.isin(digests, known).tolist()
    return flags


def _records(
    groups: Sequence[Group],
    names: Sequence[str],
    settled_s: int,
    metering: Metering,
    quarantined: tuple[Quarantined, ...] = (),
) -> Records:
    job_of = [row for row, group in enumerate(groups) for _ in group.lines]
    table = _table([line for group in groups for line in group.lines], names)
    is_job = np.diff(np.array(job_of, dtype=np.int64), prepend=-1) > 0
    jobs = _jobs(table.filter(pa.array(is_job)), groups, metering)
    steps = _steps(table.filter(pa.array(~is_job)), np.array(job_of, dtype=np.int64)[~is_job])
    return taken(jobs, steps, settled_s, quarantined, groups)


def _table(rows: Sequence[bytes], names: Sequence[str]) -> pa.Table:
    """Return rows as columns of text; a column that sacct does not know is empty."""
    if not rows:
        return pa.table({name: pa.array([], pa.string()) for name in FIGURES})
    text = b"\n".join(rows).replace(b"\r", b" ")
    table = csv.read_csv(
        BytesIO(text if text.isascii() else shown(text).encode()),
        read_options=csv.ReadOptions(column_names=list(names), block_size=1 << 24),
        parse_options=csv.ParseOptions(
            delimiter=DELIMITER, quote_char=False, newlines_in_values=False, ignore_empty_lines=False
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False, check_utf8=False
        ),
    )
    for name in FIGURES:
        if name not in table.column_names:
            table = table.append_column(name, [[""] * len(table)])
    return table


def _jobs(table: pa.Table, groups: Sequence[Group], metering: Metering) -> pa.Table:
    asked, given = columns.tres_amounts(table["ReqTRES"]), columns.tres_amounts(table["AllocTRES"])
    limit_min = columns.whole(table["TimelimitRaw"])
    by_group = ([shown(text) for text in group.own_texts] for group in groups)
    texts = dict(zip(TEXTS, zip(*by_group, strict=True), strict=True)) if groups else dict.fromkeys(TEXTS, ())
    values = {
        "cluster": table["Cluster"],
        "job_id": columns.whole(table["JobIDRaw"]),
        "display_id": table["JobID"],
        "user": table["User"],
        "account": texts["Account"],
        "partition": table["Partition"],
        "qos": table["QOS"],
        "job_name": texts["JobName"],
        "comment": texts["Comment"],
        "admin_comment": texts["AdminComment"],
        "state": table["State"],
        "submit_s": columns.whole(table["Submit"]),
        "start_s": pc.fill_null(columns.whole(table["Start"]), 0),
        "end_s": pc.fill_null(columns.whole(table["End"]), 0),
        "elapsed_s": pc.fill_null(columns.whole(table["ElapsedRaw"]), 0),
        "limit_s": pc.multiply(limit_min, 60),
        "nodes": pc.fill_null(columns.whole(table["NNodes"]), 0),
        "tasks": columns.whole(table["NTasks"]),
        "req_cpus": asked.cpus,
        "req_mem_mib": asked.mem_mib,
        "req_gpus": asked.gpus,
        "alloc_cpus": given.cpus,
        "alloc_mem_mib": given.mem_mib,
        "alloc_gpus": given.gpus,
        "energy_j": columns.whole(table["ConsumedEnergyRaw"]),
        "slurm_release": pa.repeat(metering.release, len(table)),
        "gather": pa.repeat(metering.gather, len(table)),
        "digest": [group.digest for group in groups],
    }
    return table_of(values, JOBS)


def _steps(table: pa.Table, job: Ints) -> pa.Table:
    highest, total = columns.usage(table["TRESUsageInMax"]), columns.usage(table["TRESUsageInTot"])
    given = columns.tres_amounts(table["AllocTRES"])
    values = {
        "job": job,
        "step_id": pc.replace_substring_regex(table["JobIDRaw"], r"^[^.]*\.", ""),
        "state": table["State"],
        "start_s": pc.fill_null(columns.whole(table["Start"]), 0),
        "end_s": pc.fill_null(columns.whole(table["End"]), 0),
        "tasks": pc.fill_null(columns.whole(table["NTasks"]), 1),
        "nodes": pc.fill_null(columns.whole(table["NNodes"]), 1),
        "mem_max_task_mib": columns.memory_mib(table["MaxRSS"], "B"),
        "mem_total_mib": total.mem_mib,
        "cpu_s": columns.duration_s(table["TotalCPU"]),
        "cpu_max_task_s": highest.cpu_s,
        "gpu_util_pct": highest.gpu_util_pct,
        "gpu_mem_mib": total.gpu_mem_mib,
        "read_mib": total.moved_mib,
        "written_mib": columns.usage(table["TRESUsageOutTot"]).moved_mib,
        "energy_j": columns.whole(table["ConsumedEnergyRaw"]),
        "alloc_cpus": given.cpus,
        "alloc_mem_mib": given.mem_mib,
    }
    return table_of(values, STEPS)


def taken(
    jobs: pa.Table,
    steps: pa.Table,
    settled_s: int,
    quarantined: tuple[Quarantined, ...],
    groups: Sequence[Group],
) -> Records:
    """Return the ended, plausible attempts with their steps; count or quarantine the others.

    A record that looks unfinished although the job was over by `settled_s` will not change any more: it is quarantined.
    """
    # A job's end can reach slurmdbd before its start (seen on 22.05): for two seconds its row is COMPLETED, belongs
    # to root, and has no partition.
    ended = pc.and_(pc.greater(jobs["end_s"], 0), pc.not_equal(jobs["partition"], ""))
    ended = pc.and_(ended, pc.not_equal(columns.outcomes(jobs["state"]), "unfinished")).to_numpy()
    identified = pc.and_(pc.is_valid(jobs["job_id"]), pc.is_valid(jobs["submit_s"])).to_numpy()
    in_order = pc.greater_equal(jobs["end_s"], jobs["start_s"]).to_numpy()
    rest = identified & ended & in_order & went_on(jobs, steps)
    settled = ints(jobs["end_s"]) <= settled_s
    odd = [(reason, identified & ~ended & flags) for reason, flags in _odd_ends(jobs, settled_s)]
    refused = [
        Quarantined(line=shown(b"\n".join(groups[int(row)].lines)), reason=reason, source=SOURCE)
        for reason, flags in (
            ("no job id or submit time", ~identified),
            ("it ends before it starts", identified & ended & ~in_order),
            (WENT_ON, rest & settled),
            *odd,
        )
        for row in np.flatnonzero(flags)
    ]
    kept_jobs, kept_steps = flagged(jobs, steps, identified & ended & in_order & ~rest)
    return Records(
        jobs=kept_jobs,
        steps=kept_steps,
        quarantined=(*quarantined, *refused),
        unfinished=int(((identified & ~ended) | (rest & ~settled)).sum())
        - sum(int(flags.sum()) for _, flags in odd),
    )


def went_on(jobs: pa.Table, steps: pa.Table) -> Flags:
    """Flag records of jobs from after a resize: a separate record, COMPLETED, with little information.

    Its submit time is when the record before it ends, which may be in another window. Its start is the job's own
    (22.05), or the same moment (24.11, 26.05); step numbers continue. Components of a het job may lack the first
    step, too.
    """
    job_id, submit_s, start_s, end_s = (
        ints(jobs[name]) for name in ("job_id", "submit_s", "start_s", "end_s")
    )
    resized = by_value(jobs["state"], is_resized).astype(bool)
    cuts = {*zip(job_id[resized].tolist(), end_s[resized].tolist(), strict=True)}
    begun = zip(job_id.tolist(), submit_s.tolist(), strict=True)
    follows = np.array([one in cuts for one in begun], bool) if cuts else np.zeros(len(jobs), bool)
    is_later = pc.match_substring_regex(pc.fill_null(steps["step_id"], ""), "^[1-9]")
    several, later = (
        np.bincount(ints(own["job"]), minlength=len(jobs)) for own in (steps, steps.filter(is_later))
    )
    is_part = pc.match_substring(jobs["display_id"], "+").to_numpy(zero_copy_only=False).astype(bool)
    counts_on = (several > 0) & (later == several) & ~is_part & (submit_s == start_s)
    flags: Flags = follows | counts_on | ((start_s > 0) & (start_s < submit_s))
    return flags


def _odd_ends(jobs: pa.Table, settled_s: int) -> Iterator[tuple[str, Flags]]:
    """Yield why jobs that were over by a time cannot be stored, with at most one reason per job.

    A job cancelled while pending may lack its partition for ever: it holds no information, and is left alone.
    """
    end_s = ints(jobs["end_s"])
    over = (end_s > 0) & (end_s <= settled_s)
    known, resized = (by_value(jobs["state"], test).astype(bool) for test in (is_known, is_resized))
    outcome = columns.outcomes(jobs["state"])
    final = pc.not_equal(outcome, "unfinished").to_numpy(zero_copy_only=False)
    cut_short = pc.equal(outcome, "cut_short").to_numpy(zero_copy_only=False)
    blank = pc.equal(jobs["partition"], "").to_numpy().astype(bool)
    yield UNKNOWN_STATE, over & ~known
    yield RESIZED, over & resized
    yield NO_PARTITION, over & final & blank & ~(cut_short & (ints(jobs["elapsed_s"]) == 0))
