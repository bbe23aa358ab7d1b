"""Demand over time from attempts at running jobs: what waited or ran, step by step. Pure.

An attempt is demand from its submission, or from the end of the previous attempt, until it ends. It counts as one
job, and as the cores, GPUs and memory that it was given, or had asked for if it never started. The store holds
attempts that have ended. So it knows all demand from its first end on; but of what waited and ran an hour before its
last end, it knows only what was over within the hour. The latest steps, of which too little is known so soon, are
left out.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.errors import SeriesError
from accounting.frames import floats, ints
from models.forecast.panel import Floats, Ints, Panel

What = Literal["jobs", "cores", "gpus", "memory"]
By = Literal["all", "partition", "account"]

_FIGURE = {"cores": "cpus", "gpus": "gpus", "memory": "mem_mib"}
COLUMNS = (
    "cluster", "job_id", "submit_s", "start_s", "end_s", "partition", "account", "req_cpus", "req_gpus", "req_mem_mib",
    "alloc_cpus", "alloc_gpus", "alloc_mem_mib",
)  # fmt: skip
OTHERS = "(others)"
# A step is used if this share of its demand has ended, by the usual length of jobs, and so is in the store.
KNOWN_SHARE = 0.95


@dataclass(frozen=True)
class Demand:
    """A panel of demand (jobs, cores, GPUs or MiB), and how many steps after it, up to the last end, were left out."""

    panel: Panel
    left_out: int


@dataclass(frozen=True)
class _Spans:
    """Demands: from when until when (unix seconds), how much, and of which group."""

    begin_s: Ints
    end_s: Ints
    amount: Floats
    group: Ints
    names: tuple[str, ...]


def demand_of(
    attempts: pa.Table,
    what: What,
    by: By,
    step_s: int,
    most_groups: int,
    most_steps: Callable[[int], int] = lambda _: sys.maxsize,
    known_until_s: int | None = None,
    missed_s: float = 0.0,
) -> Demand:
    """Return the demand of attempts with COLUMNS by group, the largest first; the rest together as OTHERS.

    Only the last `most_steps` steps are returned; the function gets the number of steps left out. Groups that were
    large before may not be now, and years in short steps would take gigabytes. `known_until_s` (unix seconds), if
    given, says that everything is known until then: what waited or ran at that moment is among the attempts, as if it
    had ended then, but for what ended within `missed_s` seconds after it. SeriesError if there is no demand, or no
    whole step of it.
    """
    spans = _spans(attempts, what, by)
    if not spans.amount.sum():
        if not attempts.num_rows:
            raise SeriesError("the store has no job that has ended; run `rightsizer ingest` first")
        raise SeriesError(
            f"none of the {attempts.num_rows} attempts in the store had {what} or asked for any; choose "
            "another --what"
        )
    first = -(-int(spans.end_s.min()) // step_s)
    last = (int(spans.end_s.max()) if known_until_s is None else known_until_s) // step_s
    if last <= first:
        raise SeriesError(
            f"there is no whole step of {step_s} s between the first and the last end of the "
            f"{len(spans.end_s)} attempts; read more of the past (`rightsizer ingest`), or give a "
            "shorter --step"
        )
    if known_until_s is None:
        left_out = _unknown_steps(spans, step_s, last - first)
    else:
        left_out = _missed_steps(spans, step_s, last - first, known_until_s - last * step_s, missed_s)
    last -= left_out
    first = max(first, last - most_steps(left_out))
    edges = np.arange(first, last + 1) * step_s
    held = np.column_stack([_means(spans, spans.group == group, edges) for group in range(len(spans.names))])
    names, values = _largest(spans.names, held, most_groups)
    return Demand(Panel(names, values, first * step_s, step_s), left_out)


def _spans(attempts: pa.Table, what: What, by: By) -> _Spans:
    end_s = ints(attempts["end_s"])
    begin_s = _begins(attempts, end_s)
    names: tuple[str, ...] = ("all",)
    group = np.zeros(len(end_s), np.int64)
    if by != "all":
        group, found = _codes(attempts[by])
        names = tuple(name or "(none)" for name in found)
    kept = end_s > begin_s
    amount = _amounts(attempts, what)
    return _Spans(begin_s[kept], end_s[kept], amount[kept], group[kept], names)


def _codes(texts: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """Return each text's index in a list of distinct ones, and that list."""
    encoded = pc.dictionary_encode(pc.fill_null(texts.cast(pa.string()), "")).combine_chunks()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def _begins(attempts: pa.Table, end_s: Ints) -> Ints:
    """Return when each attempt began to be demand: a requeued job is one demand at a time."""
    clusters = _codes(attempts["cluster"])[0]
    begin_s, job_id = ints(attempts["submit_s"]).copy(), ints(attempts["job_id"])
    order = np.lexsort((end_s, job_id, clusters))
    again = np.flatnonzero((np.diff(job_id[order]) == 0) & (np.diff(clusters[order]) == 0))
    before, after = order[again], order[again + 1]
    begin_s[after] = np.maximum(begin_s[after], end_s[before])
    return begin_s


def _amounts(attempts: pa.Table, what: What) -> Floats:
    """Return what each attempt was given, or what it asked for if it was given nothing; 0 if neither is known."""
    if what == "jobs":
        return np.ones(attempts.num_rows)
    figure = _FIGURE[what]
    given, asked = floats(attempts[f"alloc_{figure}"]), floats(attempts[f"req_{figure}"])
    never_started = ints(attempts["start_s"]) <= 0
    return np.nan_to_num(np.where(never_started | np.isnan(given), asked, given))


def _unknown_steps(spans: _Spans, step_s: int, steps: int) -> int:
    """Return how many of the latest steps to leave out: those of which too much may not have ended yet.

    At a random time within a span, what is left of it is a uniform share of its length. So of all demand, the share
    that ends within L is Σ amount·min(L, length) / Σ amount·length.
    """
    length_s = spans.end_s - spans.begin_s
    total = float((spans.amount * length_s).sum())

    def known(left_out: int) -> float:
        return float((spans.amount * np.minimum(length_s, left_out * step_s)).sum())

    return bisect_left(range(steps), KNOWN_SHARE * total, key=known)


def _missed_steps(spans: _Spans, step_s: int, steps: int, after_s: int, missed_s: float) -> int:
    """Return how many of the latest steps to leave out if what ended within `missed_s` is missing.

    All is known until `after_s` after the last step. As in `_unknown_steps`, Σ amount·min(L, length) has at most L
    left to run; what is missing of a step is the mean of its growth over `missed_s`, by the integral over L.
    """
    length_s = spans.end_s - spans.begin_s
    total = float((spans.amount * length_s).sum())

    def integral(left_s: float) -> float:
        short_s = np.minimum(length_s, left_s)
        return float((spans.amount * short_s * (left_s - short_s / 2)).sum())

    def missing(left_out: int) -> float:
        begin_s = after_s + left_out * step_s
        end_s = begin_s + step_s
        grown = integral(end_s + missed_s) - integral(begin_s + missed_s)
        return (grown - integral(end_s) + integral(begin_s)) / step_s

    return bisect_left(range(steps), -(1 - KNOWN_SHARE) * total, key=lambda left_out: -missing(left_out))


def _means(spans: _Spans, of_group: np.ndarray, edges: Ints) -> Floats:
    """Return the mean demand between neighbouring edges: exact, by the integral of all spans up to each edge."""
    amount = spans.amount[of_group]
    held = _integral(spans.begin_s[of_group], amount, edges) - _integral(spans.end_s[of_group], amount, edges)
    means: Floats = np.maximum(np.diff(held) / np.diff(edges), 0.0)
    return np.round(means, 6)


def _integral(times_s: Ints, amount: Floats, edges: Ints) -> Floats:
    """Return Σ amount·(edge − time) over the times before each edge."""
    order = np.argsort(times_s, kind="stable")
    since = times_s[order] - edges[0]
    amounts = np.concatenate([[0.0], amount[order].cumsum()])
    moments = np.concatenate([[0.0], (amount[order] * since).cumsum()])
    place = np.searchsorted(times_s[order], edges)
    integral: Floats = amounts[place] * (edges - edges[0]) - moments[place]
    return integral


def _largest(names: tuple[str, ...], held: Floats, most: int) -> tuple[tuple[str, ...], Floats]:
    order = np.argsort(-held.sum(axis=0), kind="stable")
    order = order[held[:, order].any(axis=0)]
    if len(order) <= most:
        return tuple(names[place] for place in order), held[:, order]
    kept, rest = order[:most], held[:, order[most:]].sum(axis=1)
    return (*(names[place] for place in kept), OTHERS), np.column_stack([held[:, kept], rest])
