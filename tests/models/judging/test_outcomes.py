"""Outcomes of jobs computed in columns are those computed job by job; and which jobs are judged at all."""

import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.records import Attempt
from accounting.request import JobRequest
from models.judging.outcomes import (
    NO_FAMILY,
    TOLD_EACH,
    Follow,
    Outcome,
    Sizing,
    as_they_came,
    by_family,
    judge,
    large_families,
    to_judge,
    whole,
)
from models.past import rows as as_objects
from models.past.columns import PastColumns, columns_of_attempts
from models.past.families import Family, family_keys
from models.past.jobs import PastJob, shows_need
from models.past.rows import past_jobs, requests_in
from tests.builders import T0, attempt


def killed(bound_mib: float, **changes: Any) -> Attempt:
    """A job of one hour that asked for 4096 MiB and was killed for memory with `bound_mib` allocated."""
    return attempt(
        **{
            "submit_s": T0,
            "start_s": T0,
            "elapsed_s": 3600,
            "state": "OUT_OF_MEMORY",
            "req_mem_mib": 4096,
            "alloc_mem_mib": int(bound_mib),
            "mem_mib": bound_mib,
            **changes,
        }
    )


def run_again(first: Attempt, state: str, mem_mib: float) -> Attempt:
    """The later run of a killed job, with all that was requested."""
    return attempt(
        job_id=first.row.job_id,
        submit_s=first.row.submit_s + 3700,
        start_s=first.row.submit_s + 3700,
        elapsed_s=3600,
        state=state,
        req_mem_mib=4096,
        alloc_mem_mib=4096,
        mem_mib=mem_mib,
    )


def to_be_judged(*attempts: Attempt) -> list[Attempt]:
    return [attempts[row] for row in to_judge(columns_of_attempts(attempts), 0).tolist()]


def test_a_killed_job_that_ran_again_is_judged_by_its_later_run() -> None:
    """That is one failed job, not two. A run that fails with all that was requested is no model's failure."""
    first = killed(2048.0)
    assert to_be_judged(first) == [first]
    again, killed_again = run_again(first, "COMPLETED", 3000.0), run_again(first, "OUT_OF_MEMORY", 4096.0)
    assert to_be_judged(again, first) == [again]
    assert to_be_judged(first, killed_again) == []
    # A later run that shows nothing says no more than the kill did.
    assert to_be_judged(first, run_again(first, "CANCELLED by 1", 100.0)) == [first]
    elsewhere = msgspec.structs.replace(again, row=msgspec.structs.replace(again.row, cluster="beta"))
    assert to_be_judged(first, elsewhere) == [first, elsewhere]


class Row(NamedTuple):
    """One job in one dimension under one method; `family` is the widest that it belongs to, empty for none."""

    family: Family
    resized: bool
    failed: bool
    requested: float
    granted: float
    used: float


Rows = dict[tuple[str, str], list[Row]]


def one_by_one(past: PastColumns, rows: np.ndarray, methods: Mapping[str, Sizing]) -> Rows:
    """Outcomes of jobs, computed job by job."""
    found: Rows = {}
    for request, job in zip(requests_in(past, rows), past_jobs(past, rows), strict=True):
        for method, size in methods.items():
            for dimension, row in outcomes_of(request, size(request), job):
                found.setdefault((dimension, method), []).append(row)
    return found


def outcomes_of(request: JobRequest, sized: JobRequest, job: PastJob) -> Iterator[tuple[str, Row]]:
    hours = job.wall_s / 3600
    memory = job.mem_mib if shows_need(job, "memory") or job.mem_at_least else None
    for dimension, asked, granted, used, scale in (
        ("memory", request.mem_mib, sized.mem_mib, memory, hours / 1024),
        (
            "cores",
            request.cpus_per_task,
            sized.cpus_per_task,
            job.cores_per_task if job.complete else None,
            hours * request.num_tasks,
        ),
        ("gpus", request.gpus_per_node, sized.gpus_per_node, job.gpus if job.complete else None, hours),
    ):
        if asked is None or granted is None or used is None:
            continue
        bounded = dimension == "memory" and job.mem_at_least
        exceeded = used >= granted if bounded else used > granted
        if bounded and not exceeded:
            continue
        failed = exceeded and granted < asked
        held = granted + asked if failed else granted
        family = (family_keys(request) or ((),))[-1]
        yield dimension, Row(family, granted < asked, failed, asked * scale, held * scale, used * scale)


def mixed_past(count: int) -> PastColumns:
    """Jobs of large and small families and of none; some were killed, some of these ran again, some request nothing."""
    draw, made = random.Random(3), list[Attempt]()
    for number in range(count):
        changes: dict[str, Any] = {
            "job_id": number,
            "submit_s": T0 + 10 * number,
            "start_s": T0 + 10 * number + draw.randrange(5),
            "elapsed_s": draw.randint(60, 6000),
            "job_name": draw.choice(["fit", "fit", "wrap", "wrap", "sim", f"rare{chr(97 + number % 26)}x"]),
            "token": draw.random() < 0.7,
            "req_mem_mib": 4096,
            "req_gpus": draw.choice([None, 4]),
        }
        if draw.random() < 0.2:
            made.append(killed(draw.choice([1000.0, 2048.0, 2049.0, 4096.0, 5000.0]), **changes))
            if draw.random() < 0.5:
                made.append(run_again(made[-1], draw.choice(["COMPLETED", "OUT_OF_MEMORY"]), 3000.5))
            continue
        state = draw.choice(["COMPLETED", "COMPLETED", "COMPLETED", "TIMEOUT", "FAILED"])
        uses: dict[str, Any] = {
            "mem_mib": draw.uniform(10, 5000),
            "cores": draw.uniform(0.1, 9),
            "gpus": draw.choice([None, 1, 3]),
        }
        one = attempt(state=state, **changes, **uses)
        unasked = {draw.choice(["asked_mem_mib", "asked_cpus"]): None} if draw.random() < 0.1 else {}
        # For some jobs, only part of the memory was counted.
        part = {"memory_quality": "censored"} if draw.random() < 0.1 else {}
        use = msgspec.structs.replace(one.use, **part)
        made.append(msgspec.structs.replace(one, use=use, num_tasks=draw.choice([1, 3]), **unasked))
    return columns_of_attempts(made)


def as_asked(request: JobRequest) -> JobRequest:
    return request


def half(request: JobRequest) -> JobRequest:
    """Grant 2048 MiB (half of these requests), one core and two GPUs; set nothing where nothing is requested."""
    asks = (request.mem_per_node_mib, request.cpus_per_task, request.gpus_per_node)
    memory, cores, gpus = (
        None if asked is None else less for asked, less in zip(asks, (2048, 1, 2), strict=True)
    )
    return msgspec.structs.replace(request, mem_per_node_mib=memory, cpus_per_task=cores, gpus_per_node=gpus)


METHODS: dict[str, Sizing] = {"as asked": as_asked, "half": half}


@pytest.mark.parametrize("at_once", [1, 7, 10_000])
def test_outcomes_in_columns_equal_those_computed_job_by_job(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(as_objects, "OBJECTS_AT_ONCE", at_once)
    past = mixed_past(500)
    rows = to_judge(past, T0 + 700)
    expected, found = one_by_one(past, rows, METHODS), list(judge(past, rows, METHODS))
    assert [(one.dimension, one.method) for one in found] == [
        (dimension, method) for dimension in ("memory", "cores", "gpus") for method in METHODS
    ]
    assert {(one.dimension, one.method) for one in found if len(one.places)} == set(expected)
    assert any(row.failed for row in expected["memory", "half"])
    assert len(expected["memory", "as asked"]) < len(expected["memory", "half"])
    for one in found:
        of_all = expected[one.dimension, one.method]
        columns_of_rows = zip(one.resized, one.failed, one.requested, one.granted, one.used, strict=True)
        assert [tuple(row[1:]) for row in of_all] == list(columns_of_rows)


def sums_of(rows: list[Row]) -> tuple[int, int, int, float, float]:
    """The totals of a tally, added up one row after the other."""
    requested = granted = 0.0
    for row in rows:
        requested += row.requested
        granted += row.granted
    resized, failed = sum(row.resized for row in rows), sum(row.failed for row in rows)
    return len(rows), resized, failed, requested, granted


def test_tallies_add_up_all_jobs_and_those_of_each_large_family() -> None:
    past = mixed_past(500)
    rows = to_judge(past, 0)
    expected = one_by_one(past, rows, METHODS)
    families = large_families(past, rows, 50)
    widest = [(family_keys(request) or ((),))[-1] for request in requests_in(past, rows)]
    counts = {family: widest.count(family) for family in dict.fromkeys(widest) if family}
    assert list(families.names) == [family for family, jobs in counts.items() if jobs >= 50]
    assert {family[0] for family in families.names} == {"user+name", "user+name+script"}
    assert len(families.names) < len(counts)
    assert [families.names[place] if place != NO_FAMILY else () for place in families.places] == [
        family if family in families.names else () for family in widest
    ]
    for one in judge(past, rows, METHODS):
        of_all = expected[one.dimension, one.method]
        assert msgspec.structs.astuple(whole(one)) == sums_of(of_all)
        for family, tally in zip(families.names, by_family(one, families), strict=True):
            assert msgspec.structs.astuple(tally) == sums_of([row for row in of_all if row.family == family])


def test_a_family_is_large_even_if_its_last_job_makes_it_so() -> None:
    """A job at the end of the judged part counts like any other."""
    past = columns_of_attempts([attempt(job_id=number, submit_s=T0 + number) for number in range(50)])
    every = np.arange(50)
    assert len(large_families(past, every, 50).names) == 1
    assert len(large_families(past, every[:-1], 50).names) == 0
    assert set(large_families(past, every[:-1], 50).places) == {NO_FAMILY}


def test_no_jobs_give_no_rows_and_no_families() -> None:
    past = mixed_past(20)
    nobody = np.array([], np.int64)
    families = large_families(past, nobody, 1)
    assert (len(families.names), len(families.places)) == (0, 0)
    found: list[Outcome] = list(judge(past, nobody, METHODS))
    assert len(found) == 6
    for one in found:
        assert (whole(one).jobs, whole(one).requested, whole(one).saved_share) == (0, 0.0, 0.0)
        assert by_family(one, families) == []


def test_a_job_of_no_family_is_judged_all_the_same() -> None:
    past = columns_of_attempts([attempt(job_name="wrap", token=False)])
    every = np.arange(1)
    families = large_families(past, every, 1)
    assert (list(families.names), families.places.tolist()) == ([], [NO_FAMILY])
    assert [whole(one).jobs for one in judge(past, every, METHODS)] == [1, 1, 1, 1, 0, 0]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 5),
)
def test_all_jobs_that_ended_before_a_job_have_joined_before_it(
    jobs: list[tuple[int, int, bool]], at_once: int
) -> None:
    past = columns_of_attempts(
        [
            attempt(
                job_id=number,
                submit_s=T0 + submit_s,
                start_s=T0 + submit_s,
                elapsed_s=elapsed_s,
                account=f"{number}",
            )
            for number, (submit_s, elapsed_s, _) in enumerate(jobs)
        ]
    )
    unseen = np.flatnonzero([is_unseen for *_, is_unseen in jobs])
    order = np.argsort(past.submit_s, kind="stable")
    joined: list[int] = []
    with patch.object(as_objects, "OBJECTS_AT_ONCE", at_once):
        follow = Follow(unseen, lambda request, _job: joined.append(int(request.account)))
        for row, request in zip(order.tolist(), as_they_came(past, order, follow), strict=True):
            assert request.account == str(row)
            assert set(joined) == {one for one in unseen.tolist() if past.end_s[one] < past.submit_s[row]}
    assert joined == sorted(joined, key=lambda one: past.end_s[one])
    assert len(joined) == len(set(joined))


def test_each_method_learns_separately_and_rows_keep_their_places() -> None:
    """The later job comes first in the rows: it is sized last, by what ended before it."""
    first = attempt(job_id=1, submit_s=T0, start_s=T0, elapsed_s=100, req_mem_mib=4096, mem_mib=500.0)
    second = attempt(
        job_id=2, submit_s=T0 + 200, start_s=T0 + 200, elapsed_s=100, req_mem_mib=4096, mem_mib=500.0
    )
    past, highest = columns_of_attempts([second, first]), [0.0]

    def learned(request: JobRequest) -> JobRequest:
        return msgspec.structs.replace(request, mem_per_node_mib=int(highest[0]) + 1)

    def join(_request: JobRequest, job: PastJob) -> None:
        highest.append(highest.pop() + (job.mem_mib or 0.0))

    follow = {"learned": Follow(np.arange(2), join)}
    found = list(judge(past, np.arange(2), {"as asked": as_asked, "learned": learned}, follow))
    memory = {one.method: one for one in found if one.dimension == "memory"}
    assert memory["learned"].failed.tolist() == [False, True]
    assert memory["as asked"].failed.tolist() == [False, False]
    assert memory["learned"].places.tolist() == [0, 1]


def test_progress_is_told_of_the_methods_that_learn() -> None:
    ended = [
        attempt(job_id=number, submit_s=T0 + number, start_s=T0 + number, elapsed_s=9)
        for number in range(2 * TOLD_EACH)
    ]
    past, told = columns_of_attempts(ended), list[float]()
    every = np.arange(len(past))
    follow = {name: Follow(every, lambda _request, _job: None) for name in ("learned", "also learned")}
    methods = dict.fromkeys(("as asked", "learned", "also learned"), as_asked)
    list(judge(past, every, methods, follow, told.append))
    assert told == [0.0, 0.25, 0.5, 0.75]
