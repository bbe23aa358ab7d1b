"""Days of jobs on own nodes, with access to others' nodes that are idle at times: from public traces. Semi-synthetic.

Arrivals, run times and GPUs are Philly's, of jobs that fit on one node, thinned until they ask for the wanted share of
the own nodes; limits, and the errors of expected run times, are drawn. When owners use the other nodes is derived from
the GPUs that virtual clusters of SenseTime's Earth (Helios) kept busy each minute, as in edge_loads.py; nodes and days
are drawn from the nodes that are idle for at least a tenth of the month. All nodes are equally fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy
import pandas

from bench.advisor_loads import drawn_limits_s
from bench.edge_loads import GPUS_A_NODE, TAUGHT_H, had_by_owners, owner_spans
from bench.patent_loads import PHILLY
from models.simulation.nodes import HOUR_S, Span

DAY_S = 24 * HOUR_S
# The trace thins out before its first full week, and its last day is cut off.
FIRST, LAST = "2017-10-02", "2017-10-21"
MONTH_S = 31 * DAY_S
# Owners of busier nodes have nothing to lend.
LEAST_IDLE = 0.1
# How long owners' times are known after the last job has come, while the queue empties.
DRAIN_S = 5 * DAY_S
OWN_NODES, LENT_NODES = 4, 12


class Case(NamedTuple):
    """Jobs by their run time in the trace (seconds), all times divided by `faster`; and for how many days jobs come."""

    from_s: float
    to_s: float
    faster: float
    days: float


CASES = {
    "short": Case(0.0, 24 * HOUR_S, 10.0, 1.5),
    "mixed": Case(0.0, 24 * HOUR_S, 1.0, 4.0),
    "long": Case(HOUR_S, 48 * HOUR_S, 1.0, 6.0),
}


class Asked(NamedTuple):
    """A job: when it comes (seconds), its true and expected run times, its limit, and its GPUs."""

    submit_s: float
    run_s: float
    expected_s: float
    limit_s: float
    gpus: int


class LendingLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs in the order of arrival, the number of a site's own nodes, and when owners use the others.

    Times before 0 show owners' habits.
    """

    jobs: tuple[Asked, ...]
    own_nodes: int
    owners: tuple[tuple[Span, ...], ...]


def read_lending_load(traces: Path, case: Case, load: float, seed: int, *, error: float = 0.5) -> LendingLoad:
    """Return a load that asks for this share of the own nodes; a seed draws jobs, nodes and days.

    `error` is that of expected run times: the spread of their logarithm.
    """
    draw = numpy.random.default_rng(seed)
    table = pandas.read_csv(traces / PHILLY, parse_dates=["timestamp"])
    for_s = case.days * DAY_S
    latest_s = (pandas.Timestamp(LAST) - pandas.Timestamp(FIRST)).total_seconds() - for_s * case.faster
    at_s = (table.timestamp - pandas.Timestamp(FIRST)).dt.total_seconds() - draw.uniform(0, latest_s)
    fits = table.num_gpus.le(GPUS_A_NODE) & table.duration.gt(case.from_s) & table.duration.le(case.to_s)
    table = table.assign(submit_s=at_s / case.faster, run_s=table.duration / case.faster)
    table = table[fits & table.submit_s.ge(0) & table.submit_s.lt(for_s)]
    asked = float((table.num_gpus * table.run_s).sum()) / (OWN_NODES * GPUS_A_NODE * for_s)
    table = table[draw.random(len(table)) < load / asked].sort_values("submit_s", kind="stable")
    run_s = table.run_s.to_numpy(dtype=numpy.float64)
    limit_s = drawn_limits_s(run_s, draw)
    expected_s = numpy.minimum(run_s * numpy.exp(draw.normal(0, error, len(run_s))), limit_s)
    columns = (table.submit_s, run_s, expected_s, limit_s, table.num_gpus)
    start_s = float(draw.uniform(TAUGHT_H * HOUR_S, MONTH_S - for_s - DRAIN_S))
    nodes = owners_of(traces, start_s)
    chosen = draw.choice(len(nodes), LENT_NODES, replace=False)
    return LendingLoad(
        jobs=tuple(Asked(*each) for each in zip(*(list(column) for column in columns), strict=True)),
        own_nodes=OWN_NODES,
        owners=tuple(nodes[at] for at in sorted(chosen.tolist())),
    )


def owners_of(traces: Path, start_s: float) -> Sequence[tuple[Span, ...]]:
    """Return when owners use each server that is idle at times (seconds after the start); before 0 is the past."""
    return [
        tuple((from_h * HOUR_S, to_h * HOUR_S) for from_h, to_h in owner_spans(had, start_s / HOUR_S))
        for had in had_by_owners(traces)
        if had.mean() <= 1 - LEAST_IDLE
    ]
