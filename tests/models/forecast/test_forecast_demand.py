"""Demand over time from attempts, by hand and compared with counting second by second."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import SeriesError
from models.forecast.demand import COLUMNS, OTHERS, By, What, demand_of

STEP_S = 100


def attempts(*rows: dict[str, object]) -> pa.Table:
    """Attempts of one core each, numbered as jobs in the order given."""
    plain = {
        "cluster": "alpha",
        "partition": "main",
        "account": "phys",
        "req_cpus": 1,
        "req_gpus": None,
        "req_mem_mib": 100,
        "alloc_cpus": None,
        "alloc_gpus": None,
        "alloc_mem_mib": None,
    }
    filled = [{"job_id": number, **plain, **row} for number, row in enumerate(rows)]
    texts = ("cluster", "partition", "account")
    return pa.table(
        {
            name: pa.array([row[name] for row in filled], pa.string() if name in texts else pa.int64())
            for name in COLUMNS
        }
    )


def job(submit_s: int, end_s: int, **others: object) -> dict[str, object]:
    return {"submit_s": submit_s, "start_s": submit_s, "end_s": end_s, **others}


# One job that ends early and one that ends late, both without demand: they only set the time that the store covers.
FIRST, LAST = job(0, 1, req_cpus=0), job(1000, 1001, req_cpus=0)


def demand(
    *rows: dict[str, object], what: What = "cores", by: By = "all", most: int = 9
) -> tuple[tuple[str, ...], list[list[float]]]:
    found = demand_of(attempts(FIRST, *rows, LAST), what, by, STEP_S, most)
    return found.panel.names, found.panel.values.T.tolist()


def short(begin_s: int, end_s: int, **others: object) -> list[dict[str, object]]:
    """The same demand by jobs of ten seconds, so that at the end no more than a step is left out."""
    return [job(second, second + 10, **others) for second in range(begin_s, end_s, 10)]


def test_jobs_count_from_submission_to_end_and_for_parts_of_a_step() -> None:
    _, [found] = demand(*short(150, 420))
    assert found == [0.5, 1, 1, 0.2, 0, 0, 0, 0]  # from the step after the first end to that before the last


@pytest.mark.parametrize(("what", "is_"), [("jobs", 1.0), ("cores", 4.0), ("gpus", 2.0), ("memory", 50.0)])
def test_what_was_allocated_counts(what: What, is_: float) -> None:
    given_ = {"req_cpus": 8, "alloc_cpus": 4, "req_gpus": 2, "req_mem_mib": 90, "alloc_mem_mib": 50}
    _, [found] = demand(*short(200, 300, **given_), what=what)
    assert found[1] == is_


def test_a_job_that_never_started_counts_with_its_request() -> None:
    _, [found] = demand(*short(200, 300, start_s=0, req_cpus=8, alloc_cpus=0))
    assert found[1] == 8


def test_a_requeued_job_counts_once_at_a_time() -> None:
    first = [{**row, "job_id": 1000 + number} for number, row in enumerate(short(200, 300))]
    again = [{**row, "submit_s": row["submit_s"], "end_s": int(str(row["end_s"])) + 5} for row in first]
    _, [found] = demand(*first, *again)
    assert found[1] == pytest.approx(1.0 + 0.5 - 0.05)


def test_groups_are_the_largest_and_the_others() -> None:
    rows = [
        *short(100, 300, partition="b", req_cpus=5),
        *short(100, 200, partition="c"),
        *short(100, 300, partition=""),
    ]
    names, found = demand(*rows, by="partition", most=1)
    assert names == ("b", OTHERS)
    assert [one[:2] for one in found] == [[5, 5], [2, 1]]
    assert demand(*rows, by="partition")[0] == ("b", "(none)", "c")
    assert demand(*rows, by="account")[0] == ("phys",)


def test_the_latest_steps_are_left_out_where_jobs_are_long() -> None:
    long = [job(begin_s, begin_s + 400) for begin_s in range(0, 4000, 50)]
    found = demand_of(attempts(*long), "jobs", "all", STEP_S, 9)
    # Within 400 s all that was there has ended, within 300 s three quarters of it. The means are of a full day.
    assert found.left_out == 4
    assert found.panel.values[:, 0] == pytest.approx(8.0)
    assert found.panel.end_s + 4 * STEP_S == 4300


def test_only_the_latest_steps_of_a_long_past_are_computed_and_decide_which_group_is_large() -> None:
    """Steps of one second over 30 years would take 7 GiB per group."""
    old = [job(second, second + 10, account="old", req_cpus=9) for second in range(0, 4000, 10)]
    now = [job(10**9 + second, 10**9 + second + 10, account="new") for second in range(0, 4000, 10)]
    found = demand_of(attempts(*old, *now), "cores", "account", 1, 1, lambda left_out: 50 - left_out)
    assert found.panel.names == ("new",)
    assert found.left_out == 10
    assert found.panel.values[:, 0].tolist() == [1.0] * 40
    assert found.panel.end_s == 10**9 + 4000 - 10


@pytest.mark.parametrize("ends", [(110, 120, 190), (101, 250), (199, 200)])
def test_less_than_a_whole_step_is_an_error(ends: tuple[int, ...]) -> None:
    rows = [job(0, end_s) for end_s in ends]
    said = f"no whole step of 100 s between the first and the last end of the {len(ends)} attempts"
    with pytest.raises(SeriesError, match=said):
        demand_of(attempts(*rows), "jobs", "all", STEP_S, 9)


def test_no_demand_at_all_is_an_error() -> None:
    with pytest.raises(SeriesError, match="none of the 12 attempts in the store had gpus or asked for any"):
        demand(*short(100, 200), what="gpus")
    with pytest.raises(SeriesError, match="no job that has ended; run `rightsizer ingest`"):
        demand_of(attempts(), "jobs", "all", STEP_S, 9)


@given(
    st.lists(
        st.tuples(st.integers(0, 900), st.integers(1, 30), st.integers(0, 5)), min_size=1, max_size=40
    ).filter(lambda rows: any(amount for _, _, amount in rows))
)
def test_means_are_those_of_counting_each_second(rows: list[tuple[int, int, int]]) -> None:
    jobs = [job(begin_s, begin_s + seconds, req_cpus=amount) for begin_s, seconds, amount in rows]
    found = demand_of(attempts(FIRST, *jobs, LAST), "cores", "all", STEP_S, 9).panel
    seconds = np.zeros(2000)
    for begin_s, length_s, amount in rows:
        seconds[begin_s : begin_s + length_s] += amount
    steps = seconds[found.start_s : found.end_s].reshape(-1, STEP_S).mean(axis=1)
    told = found.values.sum(axis=1) if found.names else np.zeros(len(steps))
    assert told == pytest.approx(steps, abs=1e-5)


def test_with_all_known_until_now_running_jobs_count_to_the_end() -> None:
    rows = [job(0, 1, req_cpus=0), job(100, 900), job(300, 900)]
    found = demand_of(attempts(*rows), "cores", "all", STEP_S, 9, known_until_s=900)
    assert found.left_out == 0
    assert found.panel.values[:, 0].tolist() == [1, 1, 2, 2, 2, 2, 2, 2]
    assert demand_of(attempts(*rows), "cores", "all", STEP_S, 9).left_out > 0


@pytest.mark.parametrize(
    ("run_s", "missed_s", "left_out"), [(50, 0, 0), (50, 2, 0), (50, 90, 1), (250, 90, 2)]
)
def test_the_latest_steps_are_left_out_where_much_has_ended_since_all_was_known(
    run_s: int, missed_s: int, left_out: int
) -> None:
    until_s = 4000
    every = [job(begin_s, begin_s + run_s) for begin_s in range(0, until_s, 10)]
    known = [
        {**one, "end_s": min(int(str(one["end_s"])), until_s)}
        for one in every
        if not until_s < int(str(one["end_s"])) <= until_s + missed_s
    ]
    found = demand_of(attempts(*known), "cores", "all", STEP_S, 9, known_until_s=until_s, missed_s=missed_s)
    assert found.left_out == left_out
    assert found.panel.values[-3:, 0] == pytest.approx([run_s / 10] * 3, rel=0.05)
    all_seen = demand_of(attempts(*known), "cores", "all", STEP_S, 9, known_until_s=until_s).panel.values
    assert (all_seen[-1, 0] < 0.95 * run_s / 10) == bool(left_out)
