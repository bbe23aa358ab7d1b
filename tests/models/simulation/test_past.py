"""From attempts to a load: each rule of what is replayed, and what stays as it was."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from accounting.errors import ModelError
from accounting.records import Attempt
from models.simulation import past as rules
from models.simulation.past import Past, past_of
from tests.builders import DAY_S, T0, attempt

SINCE, UNTIL = T0, T0 + DAY_S


def job(number: int = 1, submit_s: int = T0, wait_s: int = 10, **changes: Any) -> Attempt:
    """A job with 8 CPUs and 8000 MiB for 100 s, of which 0.9 cores and 200 MiB are used."""
    return attempt(job_id=number, submit_s=submit_s, start_s=submit_s + wait_s, **changes)


def with_use(one: Attempt, **changes: Any) -> Attempt:
    return msgspec.structs.replace(one, use=msgspec.structs.replace(one.use, **changes))


def past(*attempts: Attempt) -> Past:
    return past_of(attempts, SINCE, UNTIL)


def test_a_measured_job_requests_uses_and_runs_as_it_did() -> None:
    found = past(job(submit_s=T0 + 60, elapsed_s=100, limit_s=3600))
    jobs = found.jobs
    assert (jobs.submit_s.tolist(), jobs.run_s.tolist(), jobs.limit_s.tolist()) == ([60], [100], [3600])
    assert jobs.asked.tolist() == [[8000, 8000, 0]]
    assert jobs.used.tolist() == [[900, 200, 0]]
    assert found.keeps.tolist() == [[False, False, False]]
    assert (found.start_s.tolist(), found.end_s.tolist()) == ([70], [170])
    assert (found.left_out, found.kept) == ({}, {})
    assert found.cases[0].request.cpus == 8


@pytest.mark.parametrize(
    ("changes", "row", "reason"),
    [
        ({"cores": None, "cores_per_task": None}, 0, "CPU use was not measured"),
        ({"peak_mem_mib": None, "memory_quality": "absent"}, 1, "memory was not measured"),
        ({"memory_quality": "short"}, 1, "memory was not measured"),
        ({"memory_quality": "censored"}, 1, "memory was not measured"),
    ],
    ids=["no cores", "no memory", "too short", "a lower bound"],
)
def test_what_was_not_measured_counts_as_used_and_stays(
    changes: dict[str, Any], row: int, reason: str
) -> None:
    found = past(with_use(job(), **changes))
    assert found.jobs.used[0, row] == found.jobs.asked[0, row]
    assert found.keeps[0].tolist() == [at == row for at in range(3)]
    assert found.kept == {reason: 1}


def test_gpus_without_a_meter_stay() -> None:
    metered, not_metered = job(1, req_gpus=4, alloc_gpus=4, gpus=1), job(2, req_gpus=4, alloc_gpus=4)
    found = past(metered, not_metered)
    assert found.jobs.used[:, 2].tolist() == [1000, 4000]
    assert found.keeps[:, 2].tolist() == [False, True]
    assert found.kept == {"GPU use was not measured": 1}


def test_a_job_killed_for_memory_needs_its_whole_request_and_may_be_cut() -> None:
    killed = with_use(job(), outcome="out_of_memory", memory_quality="censored", peak_mem_mib=7000.0)
    found = past(killed)
    assert found.jobs.used[0, 1] == 8000
    assert not found.keeps[0, 1]
    assert found.kept == {}


def test_a_figure_above_the_request_counts_as_the_request() -> None:
    found = past(job(mem_mib=9000.0, cores=12.0))
    assert found.jobs.used.tolist() == [[8000, 8000, 0]]


def test_whole_nodes_stay_and_a_core_of_two_threads_keeps_only_its_cpus() -> None:
    whole, thread = job(1, req_cpus=8, alloc_cpus=64), job(2, req_cpus=7, alloc_cpus=8)
    found = past(whole, thread)
    assert found.jobs.asked[:, 0].tolist() == [64_000, 8000]
    assert found.keeps.tolist() == [[True, True, True], [True, False, False]]
    assert found.kept == {rules.WHOLE_NODES: 1}


def test_a_job_that_the_service_had_cut_asks_for_what_its_user_requested() -> None:
    cut = msgspec.structs.replace(job(alloc_cpus=2, alloc_mem_mib=512), asked_cpus=8, asked_mem_mib=8000)
    found = past(cut)
    assert found.jobs.asked.tolist() == [[8000, 8000, 0]]
    assert found.held.tolist() == [[2000, 512, 0]]


def test_jobs_that_are_left_alone_stay_with_the_reason() -> None:
    found = past_of([job(1), job(2)], SINCE, UNTIL, lambda one: "no batch" * (one.row.job_id == 2))
    assert found.keeps.all(axis=1).tolist() == [False, True]
    assert found.kept == {"no batch": 1}


def test_jobs_that_never_started_or_had_not_ended_are_left_out_and_counted() -> None:
    never = msgspec.structs.replace(
        job(2), row=msgspec.structs.replace(job(2).row, start_s=0, alloc_cpus=None, alloc_mem_mib=None)
    )
    runs = with_use(job(3), outcome="unfinished")
    nothing = msgspec.structs.replace(
        job(4, alloc_cpus=None, alloc_mem_mib=None), asked_cpus=None, asked_mem_mib=None
    )
    found = past(job(1), never, runs, nothing)
    assert len(found.jobs) == 1
    assert found.left_out == {rules.NEVER_STARTED: 1, rules.NOT_ENDED: 1, rules.NOTHING_HELD: 1}


def test_array_tasks_are_jobs_and_an_attempt_waits_for_the_one_before() -> None:
    array = [job(10 + task, display_id=f"10_{task}") for task in range(3)]
    # In some records, an attempt after a requeue keeps its submit time.
    again = [job(5, wait_s=10, elapsed_s=100), job(5, wait_s=500, elapsed_s=100)]
    found = past(*array, *again)
    assert found.jobs.submit_s.tolist() == [0, 0, 0, 0, 110]
    assert found.start_s.tolist() == [10, 10, 10, 10, 500]


def test_the_window_begins_with_the_jobs_that_wait_and_run_then() -> None:
    over = job(1, submit_s=T0 - 5000, wait_s=0, elapsed_s=1000)
    running = job(2, submit_s=T0 - 400, wait_s=100, elapsed_s=1000, limit_s=1200)
    longer = job(3, submit_s=T0 - 300, wait_s=0, elapsed_s=1000, limit_s=None)
    waiting = job(4, submit_s=T0 - 350, wait_s=950, elapsed_s=1000)
    inside, after = job(5, submit_s=T0), job(6, submit_s=UNTIL)
    found = past(over, running, waiting, longer, inside, after)
    assert [case.past.job_id for case in found.before] == [1]
    # Running jobs come first, in the order of their starts.
    assert [case.past.job_id for case in found.cases] == [2, 3, 4, 5]
    assert found.counted.tolist() == [False, False, False, True]
    assert found.jobs.submit_s.tolist() == [0, 0, 0, 0]
    assert found.jobs.run_s.tolist() == [700, 700, 1000, 100]
    assert found.jobs.limit_s.tolist() == [900, math.inf, 3600, 3600]
    assert found.keeps.all(axis=1).tolist() == [True, True, True, False]
    assert found.kept == {}


def test_each_attempt_is_taken_as_it_comes() -> None:
    told: list[int] = []
    taken: list[tuple[int, int]] = []

    def attempts() -> Iterator[Attempt]:
        for number in (1, 2, 3, 4):
            told.append(number)
            yield job(number, submit_s=T0 + number)

    def left_alone(one: Attempt) -> str:
        taken.append((one.row.job_id, len(told)))
        return ""

    past_of(attempts(), SINCE, UNTIL, left_alone)
    # Only the next attempt shows that a second is over.
    assert taken == [(1, 2), (2, 3), (3, 4), (4, 4)]


def test_a_job_that_outran_its_limit_may_do_so_again() -> None:
    found = past(with_use(job(elapsed_s=130, limit_s=60), outcome="timeout"))
    assert (found.jobs.run_s[0], found.jobs.limit_s[0]) == (130, 130)


def test_the_busiest_task_counts_for_all() -> None:
    one = msgspec.structs.replace(with_use(job(), cores=3.0, cores_per_task=1.5), num_tasks=4)
    found = past(one)
    assert found.jobs.used[0, 0] == 3000
    assert found.busiest[0].tolist() == [6000, 200, 0]


def test_a_window_without_jobs_says_what_to_do() -> None:
    with pytest.raises(
        ModelError, match=r"no job that ran was submitted in that time \(0 did not run\); ingest more"
    ):
        past(job(submit_s=T0 - 10_000))
