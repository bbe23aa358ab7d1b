"""The benchmark of lending over days: its queue by hand, and what it must show on real jobs and owners."""

from __future__ import annotations

import json
import math

import pytest

from bench.edge_loads import OWNERS, owners_file
from bench.lending_arms import ByForecast, Everybody, Nobody, Oracle, planned
from bench.lending_loads import CASES, DAY_S, Asked, LendingLoad, read_lending_load
from bench.lending_queue import LendingQueue, Listing, Running
from bench.lending_risk import NOBODY, Measured, calibration, main, measured, rows, said_of_owners
from bench.patent_loads import PHILLY
from models.simulation.nodes import HOUR_S, Span
from slurm_plugin.slurm.snapshot import AGAIN_S
from tests.traces import TRACES, needs_traces

on_traces = needs_traces(PHILLY, *map(owners_file, OWNERS))
# An owner who has left the node for ten hours, nine times, and left it again an hour ago.
TENS = tuple((-HOUR_S * (2 + 11 * past), -HOUR_S * (1 + 11 * past)) for past in reversed(range(10)))


def job(submit_s: float, run_s: float, gpus: int = 8, limit_s: float = math.inf) -> Asked:
    return Asked(submit_s, run_s, run_s, run_s if limit_s == math.inf else limit_s, gpus)


def one_each(*jobs: Asked, owner: tuple[Span, ...] = ()) -> LendingLoad:
    """One node of our own, and a lent one."""
    return LendingLoad(jobs=jobs, own_nodes=1, owners=(owner,))


def run(load: LendingLoad, listing: Listing) -> LendingQueue:
    queue = LendingQueue(load, listing)
    queue.run()
    return queue


def ends_s(load: LendingLoad, listing: Listing) -> list[float]:
    return [one.end_s for one in run(load, listing).became]


def test_a_job_that_passes_does_not_delay_the_first() -> None:
    first, large = job(0, 100, gpus=6), job(1, 10)
    # Two GPUs are free until 100 s: only for a job that will be done by then according to its limit.
    short, long = job(2, 50, gpus=2), job(3, 50, gpus=2, limit_s=200)
    assert ends_s(one_each(first, large, short), Nobody()) == [100, 110, 52]
    assert ends_s(one_each(first, large, long), Nobody()) == [100, 110, 160]


def test_shorter_jobs_come_first() -> None:
    assert ends_s(one_each(job(0, 10), job(1, 100), job(2, 50)), Nobody()) == [10, 160, 60]


def test_a_job_that_meets_an_owner_starts_again() -> None:
    load = one_each(job(0, 1000), job(0, 1000), owner=((300, 5000),))
    queue = run(load, Everybody())
    assert [one.end_s for one in queue.became] == [1000, 2000]
    met = queue.became[1]
    assert (met.interrupted, met.lost_s, met.start_s, met.lent) == (1, 300, 1000, False)
    assert (queue.came, queue.met) == (0, 0)  # jobs had come by then
    # The node is not looked at again at once.
    free = one_each(job(0, 1000), job(0, 1000), owner=((300, 301),))
    assert run(free, Everybody()).became[1].start_s == 300 + AGAIN_S


def test_a_run_takes_longer_on_slower_lent_nodes() -> None:
    queue = LendingQueue(one_each(job(0, 100), job(0, 100)), Everybody(), slower=3)
    queue.run()
    assert [one.end_s for one in queue.became] == [100, 300]


def test_with_the_owners_times_known_no_job_is_interrupted() -> None:
    load = one_each(job(0, 1000), job(1, 1000), job(2, 200), owner=((300, 5000),))
    assert ends_s(load, Oracle(load)) == [1000, 2000, 202]


def test_the_forecast_is_that_of_production() -> None:
    """An owner comes after ten hours; half an hour fits into what is left, eleven hours do not."""
    owner = (*TENS, (9 * HOUR_S, 10 * HOUR_S))
    full = job(0, 8 * HOUR_S)
    short = one_each(full, job(10, HOUR_S / 2), owner=owner)
    # The job is admitted when it is seen to wait, not at once.
    assert [one.start_s for one in run(short, ByForecast(short, 0.2)).became] == [0, 60]
    long = one_each(full, job(10, 11 * HOUR_S), owner=owner)
    assert ends_s(long, ByForecast(long, 1.0)) == [8 * HOUR_S, 19 * HOUR_S]


def test_a_job_that_would_wait_for_days_may_try_a_lent_node_once_where_that_is_allowed() -> None:
    # Every second time the owner was away for two hours, otherwise for ten; half of all runs of five hours were ended.
    past = [(-HOUR_S * (1 + 14 * time), -HOUR_S * 14 * time) for time in range(6)]
    past += [(-HOUR_S * (4 + 14 * time), -HOUR_S * (3 + 14 * time)) for time in range(6)]
    load = one_each(job(0, 800 * HOUR_S), job(10, 5 * HOUR_S), owner=(*sorted(past), (HOUR_S, 2 * HOUR_S)))
    bold, careful = (run(load, ByForecast(load, risk)).became[1] for risk in (1.0, 0.5))
    assert (bold.interrupted, bold.lent, bold.lost_s) == (1, False, HOUR_S - 60)
    assert (careful.interrupted, careful.lent) == (0, True)


def test_owners_return_as_often_as_predicted_where_they_keep_their_habits() -> None:
    coming = tuple((HOUR_S * (9 + 11 * time), HOUR_S * (10 + 11 * time)) for time in range(20))
    load = one_each(job(0, 1), owner=(*TENS, *coming))
    said = said_of_owners(load, 9 * DAY_S)
    table = calibration(said)
    assert sum(int(str(row["moments"])) for row in table) == len(said) > 1000
    # Nine spells of ten hours each, and more: no owner is back before that, and all are then.
    assert table[0]["back %"] == 0
    assert table[-1]["back %"] == 100


def test_a_row_of_the_table_is_that_worked_out_by_hand() -> None:
    own, ours = (Measured(one * 60, HOUR_S, 2.0, 0.5, 0.25, 0.01, 0.1) for one in (20, 5))
    found = {("mixed", 0.7, "own nodes only"): [own, own], ("mixed", 0.7, "x"): [ours, own]}
    table = rows(found)
    assert [row["of own only %"] for row in table] == [100, 62.5]
    assert table[1]["mean wait (min)"] == 12.5


def test_a_start_beyond_the_horizon_is_not_predicted() -> None:
    for left_h, told_s in ((23, 23 * HOUR_S), (25, math.inf)):
        queue = LendingQueue(one_each(job(0, left_h * HOUR_S), job(0, 1)), Nobody())
        queue.on[0][0] = Running(0, left_h * HOUR_S, left_h * HOUR_S)
        queue.free[0] = 0
        queue.waiting = [(0.0, 1)]
        assert [one.start_s for one in planned(queue)] == [told_s]


@on_traces
@pytest.mark.parametrize("case", list(CASES))
def test_a_load_requests_what_it_is_told_to(case: str) -> None:
    for_s = CASES[case].days * DAY_S
    load = read_lending_load(TRACES, CASES[case], 0.8, 3)
    asked = sum(one.gpus * one.run_s for one in load.jobs) / (load.own_nodes * 8 * for_s)
    assert asked == pytest.approx(0.8, rel=0.3)
    assert all(0 <= one.submit_s < for_s and one.run_s <= one.limit_s for one in load.jobs)
    assert read_lending_load(TRACES, CASES[case], 0.8, 3) == load


@on_traces
def test_on_real_owners_lending_saves_waits_and_loses_less_than_listing_both_pools() -> None:
    """One of the seeds on which the rule was chosen; figures are in docs/decisions/0074."""
    load = read_lending_load(TRACES, CASES["mixed"], 0.7, 1)
    own, careful, default, both = (
        measured(load, listing)
        for listing in (Nobody(), ByForecast(load, 0.2), ByForecast(load, 0.5), Everybody())
    )
    assert default.mean_wait_s < 0.5 * own.mean_wait_s
    assert default.mean_wait_s <= careful.mean_wait_s
    assert default.lost < 0.5 * both.lost


@on_traces
def test_the_speed_of_lent_nodes_counts_in_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def waits(*options: str) -> dict[str, float]:
        chosen = ("--case", "short", "--load", "0.7", "--seeds", "1", "--risk", "0.5", "--show", "arms")
        argv = ("lending_risk", "--traces", str(TRACES), *chosen, "--format", "json", *options)
        monkeypatch.setattr("sys.argv", list(argv))
        main()
        return {row["arm"]: row["mean wait (min)"] for row in json.loads(capsys.readouterr().out)}

    plain, slow = waits(), waits("--slower", "3")
    assert plain[NOBODY] == slow[NOBODY]
    assert all(slow[arm] > plain[arm] for arm in plain if arm != NOBODY)
