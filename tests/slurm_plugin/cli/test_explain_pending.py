"""`rightsizer explain` for a pending job: the interval of its start is that of the advisor, with its basis."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import msgspec
import pytest

from accounting.journal.advice import AdvisedJob, Cycle
from accounting.store.advice import write_cycles
from accounting.store.database import open_store
from slurm_plugin.slurm import backends
from slurm_plugin.slurm.snapshot import NodeState, PartitionState
from tests.accounting.report.report_store import fill, measured
from tests.conftest import Site
from tests.slurm_plugin.advisor.conftest import mixed
from tests.slurm_plugin.conftest import Run
from tests.slurm_plugin.slurm.fake_queue import FakeQueue
from tests.slurm_plugin.slurm.queued import NOW_S, TERMS, running, snapshot, waiting

AHEAD_S = 7200


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give `explain` a queue."""
    monkeypatch.setattr(backends, "open_queue", lambda _name: FakeQueue(mixed()))


def foresee(site: Site, came_after_s: int) -> None:
    """Store cycles that foresaw jobs in two hours, each in its own plan, and jobs that started this much later."""
    told_s = int(NOW_S) - 10 * 86_400
    engine = open_store(site.config.store.url, create=True)
    cycles, ended = [], []
    for number in range(1001, 1041):
        at_s = told_s + 60 * (number - 1000)
        foreseen_s = float(at_s + AHEAD_S)
        one = AdvisedJob(job_id=number, submit_s=at_s - 5.0, before=0, after=1, start_s=foreseen_s)
        cycles.append(
            Cycle(
                id=f"c{number}",
                time_s=float(at_s),
                cluster="alpha",
                objective="slowdown",
                order="shortest first",
                why="",
                gain=0.1,
                pending=1,
                running=0,
                applied=True,
                jobs=(one,),
            )
        )
        start_s = at_s + came_after_s
        ended.append(
            measured(
                number,
                cluster="alpha",
                display_id=str(number),
                submit_s=at_s - 5,
                start_s=start_s,
                end_s=start_s + 60,
            )
        )
    fill(engine, ended, with_steps=False)
    with engine.begin() as connection:
        write_cycles(connection, cycles)
    engine.dispose()


@pytest.mark.usefixtures("queue")
def test_the_range_follows_earlier_expected_starts_and_says_so(run: Run, site: Site) -> None:
    before = run("explain", "12", "--format", "json")
    assert before.code == 0, before.err
    assert "Too few expected starts are known" in before.err
    foresee(site, 10 * AHEAD_S)
    after = run("explain", "12", "--format", "json")
    assert (
        "Judging by earlier expected starts, the real start lies in the range four times out of five"
        in after.err
    )
    rolled, calibrated = json.loads(before.out)[0], json.loads(after.out)[0]
    assert rolled["likely start"] == calibrated["likely start"]
    assert rolled["not after"] < calibrated["not after"]


def test_a_job_that_cannot_start_precedes_nobody_and_whole_nodes_stay_whole(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = snapshot(
        running(1, cpus=8),
        running(2, cpus=8, nodes=("n2",)),
        waiting(3, dependency="afterok:1"),
        waiting(4),
        waiting(12, exclusive=True),
    )
    monkeypatch.setattr(backends, "open_queue", lambda _name: FakeQueue(found))
    told = run("explain", "12", "--format", "json")
    assert "job 12 waits: 1 other job comes first" in told.err
    assert [row["if it asked for"] for row in json.loads(told.out)] == [
        "as it is", "30 minutes of time, half of what it asks for",
    ]  # fmt: skip


def test_no_start_is_foreseen_for_a_job_that_is_not_simulated(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "open_queue", lambda _name: FakeQueue(snapshot(waiting(12, cpus=17))))
    told = run("explain", "12", "--format", "json")
    assert "its start cannot be estimated: equal parts of it do not fit on the nodes" in told.err
    assert [row["likely start"] for row in json.loads(told.out)] == [None]


@pytest.mark.parametrize(
    ("reason", "said"),
    [("BeginTime", "it begins no earlier than {}"), ("Licenses", "something else than missing resources")],
)
def test_a_job_that_begins_later_shows_its_earliest_time(
    run: Run, monkeypatch: pytest.MonkeyPatch, reason: str, said: str
) -> None:
    later_s = NOW_S + AHEAD_S
    queue = FakeQueue(snapshot(waiting(12, reason=reason, eligible_s=later_s)))
    monkeypatch.setattr(backends, "open_queue", lambda _name: queue)
    at = time.strftime("%m-%d %H:%M", time.localtime(later_s))
    assert said.format(at) in run("explain", "12").err


def test_what_the_simulation_leaves_out_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, licensed = waiting(12), waiting(13, other=("Licenses=matlab|octave", "Features=fast"))
    monkeypatch.setattr(backends, "open_queue", lambda _name: FakeQueue(snapshot(plain, licensed)))
    assert "as if it did not ask for" not in run("explain", "12").err
    node = NodeState(name="n1", cpus=8, mem_mib=16_000, gpus=0, partitions=("batch",), features=("fast",))
    monkeypatch.setattr(backends, "open_queue", lambda _name: FakeQueue(snapshot(licensed, nodes=(node,))))
    told = run("explain", "13")
    assert "as if it did not ask for Licenses=matlab|octave; it may start later" in told.err


def test_a_job_whose_nodes_power_up_is_told_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = snapshot(running(1, state="CONFIGURING"), running(2))
    monkeypatch.setattr(backends, "open_queue", lambda _name: FakeQueue(found))
    told, other = (run("explain", number, "--format", "json") for number in "12")
    assert "job 1 has its nodes but does not run yet: the nodes are being powered up or booted" in told.err
    assert "it is running; " not in told.err
    assert ("it is running; " in other.err, "has its nodes" in other.err) == (True, False)
    (row,), (runs,) = json.loads(told.out), json.loads(other.out)
    assert (row["state"], row["started"], runs["started"] is None) == ("CONFIGURING", None, False)
    # An hour from now; of the other job's limit ten minutes have passed.
    moments = [datetime.strptime(f"2027-{one['its limit']}", "%Y-%m-%d %H:%M") for one in (row, runs)]  # noqa: DTZ007
    assert (moments[0] - moments[1]).total_seconds() == 600


def test_a_job_that_preempts_and_one_that_is_preempted_are_told_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, ending = (running(number, cpus=8, nodes=(f"n{number}",)) for number in (1, 2))
    found = snapshot(
        full,
        msgspec.structs.replace(ending, end_s=NOW_S + 120),
        waiting(12, cpus=8, partitions=("owners",)),
        nodes=tuple(msgspec.structs.replace(one, partitions=("batch", "owners")) for one in snapshot().nodes),
        partitions=(
            PartitionState(name="batch", preempt_mode="REQUEUE"),
            PartitionState(name="owners", tier=2),
        ),
        terms=msgspec.structs.replace(TERMS, preempt_type="preempt/partition_prio", preempt_mode="REQUEUE"),
    )
    monkeypatch.setattr(backends, "open_queue", lambda _name: FakeQueue(found))
    first = run("explain", "12", "--format", "json")
    assert "it may preempt 2 of the running jobs" in first.err
    now = time.strftime("%m-%d %H:%M", time.localtime(NOW_S))
    assert json.loads(first.out)[0]["likely start"] == now
    told, other = (run("explain", number, "--format", "json") for number in "21")
    assert "it may be preempted by jobs that come first" in told.err
    # It is in its grace time, whose end Slurm shows.
    in_two_minutes = time.strftime("%m-%d %H:%M", time.localtime(NOW_S + 120))
    assert json.loads(told.out)[0]["its limit"] == in_two_minutes != json.loads(other.out)[0]["its limit"]


@pytest.mark.parametrize(
    ("node", "is_told"),
    [({"asleep": True}, True), ({}, False), ({"asleep": True, "away": True}, False),
     ({"asleep": True, "partitions": ("other",)}, False)],
)  # fmt: skip
def test_a_start_is_said_not_to_include_the_time_in_which_nodes_power_up(
    run: Run, monkeypatch: pytest.MonkeyPatch, node: dict[str, Any], *, is_told: bool
) -> None:
    awake, other = snapshot().nodes
    found = snapshot(waiting(12), nodes=(awake, msgspec.structs.replace(other, **node)))
    monkeypatch.setattr(backends, "open_queue", lambda _name: FakeQueue(found))
    assert ("the time that nodes take to power up, and the renewal" in run("explain", "12").err) is is_told


def test_a_job_that_slurm_cleans_up_after_is_not_said_to_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a node that does not answer, a job stays COMPLETING after NODE_FAIL (22.05): its end seemed to move on."""
    found = snapshot(running(1, state="COMPLETING"), running(2))
    monkeypatch.setattr(backends, "open_queue", lambda _name: FakeQueue(found))
    told, other = (run("explain", number, "--format", "json") for number in "12")
    assert ("it is running; " in told.err, "it has ended, and Slurm is cleaning up" in told.err) == (
        False,
        True,
    )
    assert ("it is running; " in other.err, "cleaning up" in other.err) == (True, False)
    (row,) = json.loads(told.out)
    assert (row["state"], row["likely end"], row["its limit"]) == ("COMPLETING", None, None)


def test_a_job_none_of_whose_nodes_is_up_is_not_said_to_be_too_large(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 26.05 says of nodes that are all drained: a reason for which Slurm may also mean reserved ones."""
    drained = NodeState(name="n1", cpus=8, mem_mib=16_000, gpus=0, partitions=("batch",), away=True)
    job = waiting(1, reason="ReqNodeNotAvail,_May_be_reserved_for_other_job")
    monkeypatch.setattr(backends, "open_queue", lambda _name: FakeQueue(snapshot(job, nodes=(drained,))))
    assert "its start cannot be estimated: no node that it may use is up" in run("explain", "1").err


def test_an_array_whose_nodes_power_up_is_told_so_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [
        running(10 + task, array_job_id=10, array_tasks=str(task), state=state)
        for task, state in enumerate(("CONFIGURING", "CONFIGURING", "RUNNING"), start=1)
    ]
    monkeypatch.setattr(backends, "open_queue", lambda _name: FakeQueue(snapshot(*tasks)))
    told = run("explain", "10").err
    assert told.count("has its nodes but does not run yet") == 1
    assert "job 10_1 (and 1 more of its tasks) has its nodes" in told
    assert "it is running; " in told


@pytest.mark.usefixtures("queue")
def test_the_basis_of_a_prediction_is_shown_only_for_ended_jobs(run: Run, site: Site) -> None:
    open_store(site.config.store.url, create=True).dispose()
    refused = run("explain", "--why", "12")
    assert refused.code == 1
    assert "the store has no job 12; if it has ended, run `rightsizer ingest`" in refused.err
    assert "queue" not in refused.err  # although the queue has it


@pytest.mark.parametrize(("weights", "sooner"), [({}, True), ({"cpu": 16_000.0}, False)])
def test_a_smaller_request_may_start_later_if_size_gives_priority(
    weights: dict[str, float], sooner: bool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight CPUs are free in half an hour: for job 12, or for 13, with the same request and a little less priority."""
    jobs = (
        running(1, cpus=8, limit_s=2400),
        waiting(12, cpus=8, priority=9000),
        waiting(13, cpus=8, priority=8900),
    )
    terms = msgspec.structs.replace(TERMS, tres_weights=weights)
    monkeypatch.setattr(
        backends, "open_queue", lambda _name: FakeQueue(snapshot(*jobs, nodes=1, terms=terms))
    )
    told = run("explain", "12", "--format", "json")
    as_it_is, fewer = json.loads(told.out)[:2]
    assert fewer["if it asked for"] == "4 CPUs, half of what it asks for"
    assert (fewer["likely start"] <= as_it_is["likely start"]) == sooner
    assert ("if it asked for less, it would lose up to 8,000 of its 9,000" in told.err) != sooner
