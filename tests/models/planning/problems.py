"""Queues for the tests of plans: by hand, and drawn so that priorities, shares and times often coincide."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from hypothesis import strategies as st

from models.planning.ledger import Due
from models.planning.problem import Holding, Machine, Pending, Problem
from models.scheduling.availability import Window

POOL = frozenset([0])


def machine(cpus: int = 4, pools: frozenset[int] = POOL) -> Machine:
    """Return a machine with as many MiB as CPUs."""
    return Machine(amounts=(cpus * 1000, cpus, 0), pools=pools)


def job(
    job_id: int, *, cpus: int = 1, run_s: float = 60.0, limit_s: float = math.nan, **others: Any
) -> Pending:
    """Return a pending record; without a given priority, lower ids come first."""
    limit_s = run_s if math.isnan(limit_s) else limit_s
    given = {
        "account": 0,
        "user": 0,
        "pools": POOL,
        "priority": 10_000 - job_id,
        "factor": 0,
        "demand": (cpus * 1000, cpus, 0),
        "limit_s": limit_s,
        "likely_s": run_s,
        "upper_s": limit_s,
        "waited_s": 0.0,
    }
    return Pending(job_id=job_id, **(given | others))  # type: ignore[arg-type]


def holding(machine: int, cpus: int, left_s: float, limit_left_s: float = math.nan) -> Holding:
    """Return a job that runs on one machine."""
    return Holding(
        job_id=1_000_000 + machine,
        user=0,
        parts=((machine, (cpus * 1000, cpus, 0)),),
        ran_s=10.0,
        limit_left_s=left_s if math.isnan(limit_left_s) else limit_left_s,
        likely_left_s=left_s,
    )


shares = st.sampled_from([None, 0.0, 0.1, 0.25, 0.5, 0.5, 0.75, 1.0])
dues = st.sampled_from(
    [(), (), (Due("a", 1),), (Due("a", 2), Due("b", 1)), (Due("a", 9), Due("b", 1, binds=False))]
)
pools = st.sampled_from([frozenset([0]), frozenset([1]), frozenset([0, 1]), frozenset([2])])


@st.composite
def pending_jobs(draw: st.DrawFn, *, kept: bool = True) -> tuple[Pending, ...]:
    """Draw pending records of few priorities, shares, accounts and tiers."""
    return tuple(
        job(
            number + 1,
            cpus=draw(st.integers(1, 6)),
            run_s=float(draw(st.integers(1, 40)) * 60),
            limit_s=float(draw(st.integers(40, 80)) * 60),
            priority=draw(st.integers(1, 12)) * draw(st.sampled_from([1, 1000])),
            factor=draw(st.sampled_from([0, 0, 0, 7, -5, 900])),
            account=draw(st.integers(0, 2)),
            fair_share=draw(shares),
            waited_s=float(draw(st.sampled_from([0, 60, 3600, 100_000]))),
            unmoved_start_s=draw(st.sampled_from([math.inf, math.inf, -4000.0, 4000.0])),
            kept=draw(st.sampled_from(["", "", "", "top priority"])) if kept else "",
            out=draw(st.sampled_from([False] * 7 + [True])),
            tasks=draw(st.sampled_from([1, 1, 1, 3, 40])),
            nodes=draw(st.sampled_from([1, 1, 1, 2])),
            tier=draw(st.sampled_from([1, 1, 1, 2])),
            pools=draw(pools),
            user=draw(st.integers(0, 1)),
            nice=draw(st.sampled_from([0, 0, 0, 1, 5, -5])),
            dues=draw(dues),
        )
        for number in range(draw(st.integers(1, 14)))
    )


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw a whole problem: overlapping pools, running jobs (sometimes more than fit), overlapping windows."""
    machines = tuple(machine(draw(st.integers(1, 6)), draw(pools)) for _ in range(draw(st.integers(1, 4))))
    numbers = st.integers(0, len(machines) - 1)
    running = tuple(
        holding(draw(numbers), draw(st.integers(1, 4)), left_s, left_s + draw(st.integers(0, 5000)))
        for left_s in draw(st.lists(st.integers(1, 5000).map(float), max_size=5))
    )
    windows = tuple(
        Window(
            node=draw(numbers),
            from_s=from_s,
            to_s=from_s + draw(st.sampled_from([100.0, 5000.0, math.inf])),
            amounts=(draw(st.integers(0, 6)) * 1000, 1, 0),
        )
        for from_s in draw(st.lists(st.sampled_from([-50.0, 0.0, 600.0, 3000.0]), max_size=3))
    )
    return Problem(
        machines=machines,
        pending=draw(pending_jobs()),
        running=tuple(msgspec.structs.replace(one, dues=draw(dues)) for one in running),
        windows=windows,
        limits=draw(st.sampled_from([{}, {"a": 4, "b": 2}])),
    )
