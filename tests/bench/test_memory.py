"""The benchmarks of memory sizing and of its calibration: peers and scores by hand, and real traces where available."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import NormalDist

import numpy
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import calibration, memory_sizing
from bench.calibration import (
    generated,
    granted_points,
    growth_points,
    implied_risk,
    replayed,
    shuffled,
    tail_points,
)
from bench.memory_peers import PEERS, Autoscaler, FirstAllocation, Highest, Job, Oracle, Percentile, sized_by
from bench.memory_sizing import (
    BLIND,
    COLD,
    FORESIGHT,
    OURS,
    REQUEST,
    best_figures,
    drawn,
    held_by_all,
    measure,
    sized_by_us,
    sizing_of,
    without_input,
)
from bench.memory_traces import Trace, read_trace
from models.demand.tail import LEAST_RISK, spread_bound
from tests.models.demand.test_tail import past
from tests.traces import TRACES, needs_traces

on_traces = needs_traces("memory/*")


def job(peak_mib: float, run_s: float = 60.0, asked_mib: float = 1000.0, end_s: float = 0.0) -> Job:
    return Job(
        name="fit", end_s=end_s, run_s=run_s, asked_mib=asked_mib, peak_mib=peak_mib, cores=peak_mib / 100
    )


def trace(*peaks: float, asked: float = 1000.0, every_s: float = 100.0, run_s: float = 50.0) -> Trace:
    came = numpy.arange(len(peaks)) * every_s
    return Trace(
        name="small",
        jobs=pandas.DataFrame(
            {
                "job_id": [f"j{number}" for number in range(len(peaks))],
                "user": "ann",
                "job_name": "fit",
                "submit_time": came,
                "start": came + 10,
                "end": came + 10 + run_s,
                "elapsed_s": run_s,
                "req_mem_mib": asked,
                "peak_mem_mib": list(peaks),
                "req_cpus": 4.0,
                "used_cores": 1.0,
            }
        ),
    )


def test_the_maximum_and_the_percentile_are_those_of_the_past() -> None:
    highest, cores, percentile = Highest(), Highest(cores=True), Percentile()
    for peak in (300.0, 100.0, 200.0):
        for peer in (highest, cores, percentile):
            peer.learn(job(peak))
    assert highest.size(job(1.0)) == pytest.approx(345.0)
    assert cores.size(job(1.0)) == 3
    assert percentile.size(job(1.0)) == pytest.approx(200 + 0.98 * 100)


def test_the_first_allocation_weighs_a_second_run_against_the_room() -> None:
    peer = FirstAllocation()
    for _ in range(9):
        peer.learn(job(100.0))
    peer.learn(job(900.0))
    # A grant of 100 costs ten times 100 and one run at the request; one of 900 costs ten times 900.
    assert peer.size(job(1.0, asked_mib=1000.0)) == 100.0
    assert peer.size(job(1.0, asked_mib=9000.0)) == 900.0


def test_the_autoscaler_forgets_half_in_a_day() -> None:
    peer = Autoscaler()
    for _ in range(5):
        peer.learn(job(1000.0))
    early = peer.size(job(1.0))
    assert 1150 <= early <= 1150 * 1.06
    for day in range(1, 200):
        peer.learn(job(100.0, end_s=day * 86400.0))
    assert 115 <= peer.size(job(1.0)) <= 115 * 1.2


def test_peers_are_silent_before_the_first_job_has_ended_and_for_warm_jobs() -> None:
    given_mib = sized_by(Highest, trace(100.0, 200.0, 50.0), "submit", ())
    assert math.isnan(given_mib[0])
    assert given_mib[1:].tolist() == pytest.approx([115.0, 230.0])
    warm = sized_by(Highest, trace(100.0, 200.0, 50.0), "submit", {"j2"})
    assert warm[:2].tolist() == pytest.approx([57.5, 115.0])
    assert math.isnan(warm[2])
    overlapping = trace(100.0, 200.0, every_s=20.0)
    assert numpy.isnan(sized_by(Oracle, overlapping, "submit", ())).all()


def test_a_failed_job_holds_what_it_got_and_then_what_was_requested() -> None:
    asked, peak = numpy.array([1000.0, 1000.0, 100.0]), numpy.array([500.0, 500.0, 350.0])
    held, failed = held_by_all(asked, peak, numpy.array([600.0, 400.0, 100.0]))
    assert held.tolist() == [600.0, 400.0 + 1000.0, 100.0 + 200.0 + 400.0]
    assert failed.tolist() == [False, True, True]


def test_the_best_figure_is_the_cheapest_of_those_sized() -> None:
    # Nine jobs of 200 MiB and one of 900: to let that one fail costs its run; to cover it costs room for all others.
    many = trace(*[200.0] * 9, 900.0, 950.0)
    sized = numpy.array([True] * 10 + [False])
    figure = best_figures(many, sized)
    assert figure[:10].tolist() == [200.0] * 10
    assert math.isnan(figure[10])
    assert best_figures(trace(850.0, 900.0), numpy.array([True, True])).tolist() == [900.0, 900.0]


def test_waste_is_relative_to_the_request_and_failures_of_the_request_are_separate() -> None:
    jobs = trace(500.0, 1500.0)
    nothing = numpy.full(2, math.nan)
    as_asked = sizing_of(jobs, COLD, REQUEST, nothing)
    assert (as_asked.waste, as_asked.failed, as_asked.caused, as_asked.sized) == (1.0, 0.5, 0.0, 0.0)
    half = sizing_of(jobs, COLD, OURS, numpy.array([250.0, 5000.0]))
    # 250 + 1000 - 500 and 1000 + 2000 - 1500, of 500 and 1500.
    assert half.waste == pytest.approx((750 + 1500) / (500 + 1500))
    assert (half.failed, half.caused, half.sized) == (1.0, 0.5, 0.5)
    floor = sizing_of(jobs, COLD, OURS, numpy.array([1.0, 1.0]))
    assert floor.failed_gib_h == pytest.approx(2 * 128 * 50 / 1024 / 3600)


def test_ours_and_the_peers_see_the_same_jobs_and_are_summed_up_alike() -> None:
    sizings, cores = measure(trace(*[300.0] * 30), "submit", None)
    by_method = {one.method: one for one in sizings}
    assert set(by_method) == {REQUEST, OURS, "oracle", FORESIGHT, *PEERS}
    assert by_method["oracle"].waste < by_method[OURS].waste < 1
    assert {one.jobs for one in sizings} == {30}
    assert {one.method: one.short for one in cores}[OURS] == 0
    warm, _ = measure(trace(*[300.0] * 30), "submit", 1)
    assert {one.jobs for one in warm} == {21}
    assert drawn(trace(*[1.0] * 30), 1) == drawn(trace(*[1.0] * 30), 1) != drawn(trace(*[1.0] * 30), 2)


@given(st.integers(1, 60), st.floats(0, 5), st.floats(LEAST_RISK, 0.5))
def test_the_implied_risk_is_the_inverse_of_the_spread_bound(count: int, above: float, risk: float) -> None:
    use = past(count=count, above_median=above)
    assert implied_risk(use, spread_bound(use, risk)) == pytest.approx(risk, rel=1e-6)
    assert implied_risk(use, -1.0) == 1.0


def test_observed_shares_are_those_of_the_true_tails() -> None:
    jobs, truth = generated(families=60, jobs=40)
    seen = list(replayed(jobs, truth))
    points = [*tail_points("generated", seen), *growth_points("generated", seen)]
    held = [point for point in points if point.jobs >= 200]
    assert {point.bound for point in held} == {"spread", "tail", "mapped", "growth"}
    for point in held:
        assert point.expected is not None
        chance = math.sqrt(max(point.expected * (1 - point.expected), 1e-4) / point.jobs)
        assert point.observed == pytest.approx(point.expected, abs=5 * chance)


def test_one_job_in_n_plus_one_exceeds_the_n_before_it() -> None:
    jobs, truth = generated(families=150, jobs=12)
    seen = list(replayed(jobs, truth))
    for count in (1, 4, 9):
        of_that_size = [one for one in seen if one.past.count == count]
        share = sum(one.growth > 0 for one in of_that_size) / len(of_that_size)
        assert share == pytest.approx(1 / (count + 1), abs=4 * math.sqrt(0.25 / len(of_that_size)))


def test_shuffled_jobs_keep_their_family() -> None:
    jobs, _ = generated(families=5, jobs=10)
    other = shuffled(jobs)
    assert not other.jobs["peak_mem_mib"].equals(jobs.jobs["peak_mem_mib"])
    for _, group in jobs.jobs.groupby("job_name"):
        assert sorted(other.jobs.loc[group.index, "peak_mem_mib"]) == sorted(group["peak_mem_mib"])


def test_generated_tails_are_the_known_ones() -> None:
    jobs, truth = generated(families=3, jobs=400)
    for name, group in jobs.jobs.groupby("job_name"):
        found = NormalDist.from_samples(numpy.log(group["peak_mem_mib"].to_numpy()).tolist())
        assert found.mean == pytest.approx(truth[str(name)].mean, abs=0.15)
        assert found.stdev == pytest.approx(truth[str(name)].stdev, rel=0.2)


def test_of_cut_jobs_those_that_needed_more_than_they_got_are_counted() -> None:
    many = trace(*[100.0] * 30, 900.0, 1200.0)
    points = {(point.size, point.nominal): point for point in granted_points(many, list(replayed(many, {})))}
    few, settled = points["1-4", 0.01], points["20+", 0.01]
    assert few.exceeded == 0
    assert 0 < few.jobs <= 4
    # The 31st job, cut like those before it; once it has ended, the request is hardly more than what was used.
    assert (settled.jobs, settled.exceeded) == (11, 1)


@on_traces
def test_methylseq_fails_less_than_one_per_cent_and_wastes_less_than_any_peer() -> None:
    sizings, _ = measure(read_trace(TRACES, "methylseq"), "submit", None)
    by_method = {one.method: one for one in sizings}
    ours = by_method[OURS]
    assert ours.jobs == 1011
    assert ours.caused <= 0.01
    assert ours.waste <= min(by_method[peer].waste for peer in PEERS)
    assert by_method["max+15%"].waste == pytest.approx(0.2968, abs=1e-4)
    assert by_method["max+15%"].failed == pytest.approx(0.05341, abs=1e-5)


@on_traces
def test_the_input_size_lowers_waste_where_it_is_known() -> None:
    whole = read_trace(TRACES, "galaxy")
    part = Trace(name="galaxy", jobs=whole.jobs.iloc[-12_000:].reset_index(drop=True))
    given = {BLIND: sized_by_us(without_input(part), "submit", frozenset())}
    given[OURS] = sized_by_us(part, "submit", frozenset())
    with_input, blind = (
        sizing_of(part, COLD, method, found.reindex(part.jobs["job_id"])["alloc_mem_mib"].to_numpy(float))
        for method, found in ((OURS, given[OURS]), (BLIND, given[BLIND]))
    )
    assert with_input.caused <= 0.01
    assert with_input.waste < blind.waste - 0.03


@on_traces
def test_pictures_are_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["--traces", str(TRACES), "--only", "methylseq", "--plots", str(tmp_path), "--format", "csv"]
    for bench in (memory_sizing, calibration):
        monkeypatch.setattr(sys, "argv", ["bench", *arguments])
        bench.main()
    assert {file.name for file in tmp_path.iterdir()} == {"memory_sizing_submit.png", "calibration.png"}
    assert all(file.stat().st_size > 10_000 for file in tmp_path.iterdir())


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match=r"pip install -c constraints.txt '\.\[plots\]'"):
        memory_sizing.check_plots()
