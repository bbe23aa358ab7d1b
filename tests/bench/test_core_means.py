"""The benchmark of what means of cores say, by hand and on real traces where available."""

import pandas
import pytest

from bench.core_means import next_rows, peak_rows, spoken_of
from bench.memory_traces import Trace, read_trace
from tests.traces import TRACES, needs_traces

on_traces = needs_traces("memory/*")


def trace(*used_cores: float) -> Trace:
    """Jobs of one name, each submitted after the one before it has ended."""
    came = [1000.0 * number for number in range(len(used_cores))]
    jobs = {
        "job_id": [f"j{number}" for number in range(len(used_cores))],
        "job_name": "fit",
        "submit_time": came,
        "end": [one + 500 for one in came],
        "used_cores": used_cores,
        "req_cpus": 4,
    }
    return Trace(name="chipseq", jobs=pandas.DataFrame(jobs))


@pytest.mark.parametrize(
    ("used", "spoken"),
    [
        ((0.97, 0.98, 0.99), []),
        ((0.97, 0.98, 0.99, 0.95, 1.2), [(1, -0.05), (1, 0.2)]),
        ((0.1, 0.2, 0.99, 0.95), []),
        ((1.97, 1.98, 0.99, 2.2), [(2, 0.1)]),
        ((0.97, 0.98, 1.3, 0.95), []),
    ],
)
def test_jobs_are_predicted_where_the_past_shows_a_whole_number_of_cores(
    used: tuple[float, ...], spoken: list[tuple[int, float]]
) -> None:
    assert [(one.whole, round(one.excess, 6)) for one in spoken_of(trace(*used))] == spoken


def test_jobs_that_used_more_are_counted_by_trace_and_in_all() -> None:
    rows = {(row["trace"], row["cores"]): row for row in next_rows(list(spoken_of(trace(*[0.97] * 4, 1.2))))}
    for name in ("chipseq", "all"):
        row = rows[name, "1"]
        assert (row["jobs"], row["used more"], row["by at most %"], row["names that used more"]) == (
            2,
            1,
            20.0,
            1,
        )
        assert rows[name, "2 and more"]["jobs"] == 0


def test_work_beyond_the_granted_cores_takes_longer() -> None:
    # Eight threads for a tenth of the time, and hardly one busy for the rest.
    samples = pandas.DataFrame({"id": 1, "cores": [8.0, *[0.2] * 9]})
    row = {row["cores"]: row for row in peak_rows(samples)}[1]
    assert (row["jobs"], row["with a peak above %"], row["at most"]) == (1, 100.0, 70.0)


def test_a_smaller_request_than_asked_for_stays() -> None:
    assert set(trace(1.0, 1.0).asking(8).column("req_cpus")) == {8.0}
    assert set(trace(1.0, 1.0).asking(2).column("req_cpus")) == {4.0}


@on_traces
def test_one_thread_is_recognised_on_a_trace_that_was_not_used_for_any_choice() -> None:
    rows = {
        row["cores"]: row
        for row in next_rows(list(spoken_of(read_trace(TRACES, "eager"))))
        if row["trace"] == "eager"
    }
    assert (rows["1"]["jobs"], rows["1"]["used more"]) == (320, 0)
