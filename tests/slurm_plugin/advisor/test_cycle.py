"""One cycle on a queue with state: what is changed, recorded, kept and left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from accounting.errors import ServiceError, SlurmError, StoreError
from accounting.journal.advice import Cycle, decode_cycle
from models.demand.chain import Estimate
from models.planning import planning
from models.planning.interval_calibration import Calibration, Reach
from models.planning.problem import Bounds, Coming, Plan, Problem
from models.planning.shadow import OLDEST_S
from slurm_plugin.advisor.cycle import Advisor, bounds_of
from slurm_plugin.advisor.state_file import NAME, read_state
from slurm_plugin.config.settings import Advisor as Settings
from slurm_plugin.slurm.snapshot import PartitionState, QosState, Snapshot
from tests.slurm_plugin.advisor.conftest import MakeAdvisor
from tests.slurm_plugin.slurm.fake_queue import FakeQueue
from tests.slurm_plugin.slurm.queued import NOW_S, TERMS, waiting


def journaled(folder: Path) -> list[Cycle]:
    files = sorted((folder / "advisor").glob("cycles-*.jsonl"))
    lines = [decode_cycle(line) for file in files for line in file.read_bytes().splitlines()]
    return [cycle for cycle in lines if cycle is not None]


def test_a_cycle_changes_exactly_what_it_announces_and_undo_restores_all(
    make: MakeAdvisor, queue: FakeQueue, tmp_path: Path
) -> None:
    before = queue.snapshot
    advisor = make()
    outcome = advisor.cycle()
    assert outcome.changes
    assert queue.factors() == {change.job_id: change.after for change in outcome.changes}
    assert not any(one.problem for one in outcome.written)
    order = sorted((job for job in queue.snapshot.jobs if job.waits), key=lambda job: -job.priority)
    assert {job.job_id for job in order[:6]} == set(range(7, 13))
    (written,) = journaled(tmp_path)
    assert (written.applied, written.control, written.order) == (True, False, outcome.plan.order)
    assert {job.job_id: job.after for job in written.jobs if job.before != job.after} == queue.factors()
    advisor.means.gateway.undo()
    assert queue.snapshot == before


def test_a_queue_in_the_best_order_is_left_alone(make: MakeAdvisor, queue: FakeQueue) -> None:
    advisor = make()
    advisor.cycle()
    queue.writes.clear()
    queue.pass_s(1)
    assert advisor.cycle().changes == ()
    assert queue.writes == []


def test_the_advisor_refuses_if_a_partition_or_a_qos_preempts_by_priority(
    make: MakeAdvisor, queue: FakeQueue
) -> None:
    modes = {
        "terms": replace(TERMS, preempt_mode="REQUEUE"),
        "qos": {"urgent": QosState(preempt_mode="WITHIN")},
    }
    own = PartitionState(name="batch", preempt_mode="PRIORITY,REQUEUE")
    queue.snapshot = replace(queue.snapshot, **modes, partitions=(own,))
    with pytest.raises(
        SlurmError, match=r"of partition batch without PRIORITY.*of QOS urgent without WITHIN"
    ):
        make().cycle()
    plain = PartitionState(name="batch", preempt_mode="REQUEUE")
    queue.snapshot = replace(
        queue.snapshot, partitions=(plain,), qos={"urgent": QosState(preempt_mode="CANCEL")}
    )
    make().cycle()


def test_the_advisor_waits_until_it_knows_which_qos_preempts_which(
    make: MakeAdvisor, queue: FakeQueue
) -> None:
    queue.snapshot = replace(queue.snapshot, terms=replace(TERMS, preempt_type="preempt/qos"))
    with pytest.raises(SlurmError, match="until slurmdbd says which QOS preempts which"):
        make().cycle()
    assert queue.writes == []
    queue.snapshot = replace(queue.snapshot, qos={"normal": QosState()})
    make().cycle()
    assert queue.writes


def test_a_dry_run_writes_nothing(make: MakeAdvisor, queue: FakeQueue, tmp_path: Path) -> None:
    outcome = make(apply=False, keeps=False).cycle()
    assert outcome.changes
    assert (queue.writes, outcome.written) == ([], ())
    assert not (tmp_path / "advisor").exists()
    make(apply=False).cycle()
    (written,) = journaled(tmp_path)
    assert (written.applied, written.control) == (False, False)
    assert not any(job.problem for job in written.jobs)


def test_a_control_cycle_only_watches_and_undoes_earlier_changes(
    make: MakeAdvisor, queue: FakeQueue, tmp_path: Path
) -> None:
    make().cycle()
    assert queue.factors()
    watching = make(control_share=1.0)
    outcome = watching.cycle()
    assert queue.factors() == {}
    assert (outcome.cycle.control, outcome.cycle.applied, outcome.written) == (True, False, ())
    assert [one.control for one in journaled(tmp_path)] == [False, True]


def test_the_queue_without_us_is_kept_so_that_delays_do_not_add_up(
    make: MakeAdvisor, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    make().cycle()
    # The first of the two running jobs has ended. In reality a short one takes its place; without us a long one would.
    queue.pass_s(100)
    queue.remove(1)
    seen: list[Problem] = []
    plan_for = planning.plan

    def planned(problem: Problem, bounds: Bounds) -> Plan:
        seen.append(problem)
        return plan_for(problem, bounds)

    monkeypatch.setattr(planning, "plan", planned)
    # Another process: the queue without us is on disk.
    make().cycle()
    queue.change(7, state="RUNNING", nodes=("n1",), start_s=queue.snapshot.time_s, site_factor=0)
    queue.pass_s(60)
    make().cycle()
    starts_s = {job.job_id: job.unmoved_start_s for job in seen[-1].pending}
    # The long one would have begun when the first was taken to have ended, halfway between two cycles.
    assert starts_s[3] == pytest.approx(-110)
    assert 7 not in starts_s
    assert seen[-1].longest_wait_s > 0


def test_a_queue_without_us_that_is_too_old_or_from_the_future_starts_anew(
    make: MakeAdvisor, queue: FakeQueue, tmp_path: Path
) -> None:
    make().cycle()
    for passed_s in (OLDEST_S + 1, -10.0):
        queue.pass_s(passed_s)
        make().cycle()
        shadow = read_state(tmp_path / "advisor").shadow
        assert shadow is not None
        assert shadow.time_s == shadow.seen_s == queue.snapshot.time_s
        assert {one.job_id for one in shadow.waiting} == {
            job.job_id for job in queue.snapshot.jobs if job.waits
        }


@pytest.mark.parametrize("content", [b"", b"{", b'{"shadow": 5}', b"\xff\xfe", b"[]"])
def test_a_damaged_state_is_put_aside_and_reported(
    content: bytes, make: MakeAdvisor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "advisor"
    folder.mkdir()
    (folder / NAME).write_bytes(content)
    assert make().cycle().changes
    assert "was damaged" in caplog.text
    assert (folder / "state.damaged").read_bytes() == content
    assert json.loads((folder / NAME).read_bytes())["shadow"]


def test_a_damaged_state_that_cannot_be_put_aside_is_reported(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{")
    (tmp_path / "state.damaged" / "in the way").mkdir(parents=True)
    with pytest.raises(ServiceError, match=r"cannot write the advisor's state to .*; set advisor\.directory"):
        read_state(tmp_path)


def test_a_line_cut_off_by_a_crash_does_not_swallow_the_next_cycle(make: MakeAdvisor, tmp_path: Path) -> None:
    advisor = make()
    advisor.cycle()
    (file,) = (tmp_path / "advisor").glob("cycles-*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole + whole[: len(whole) // 2])
    advisor.cycle()
    first, _cut_off, second = map(decode_cycle, file.read_bytes().splitlines())
    assert first is not None
    assert second is not None
    assert first.id != second.id


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"priority_type": "priority/basic"}, "PriorityType=priority/multifactor"),
        ({"parameters": ("bf_interval=2",)}, "bf_continue"),
        ({"scheduler_type": "sched/builtin"}, "SchedulerType=sched/backfill"),
        ({"site_factor_plugin": "site_factor/example"}, "site_factor/example sets the SiteFactor itself"),
        ({"preempt_mode": "WITHIN,REQUEUE"}, "PreemptMode without WITHIN"),
        ({"preempt_mode": "PRIORITY,CANCEL"}, "PreemptMode without PRIORITY"),
    ],
)
def test_the_advisor_refuses_if_a_factor_would_not_order_the_queue(
    terms: dict[str, object], says: str, make: MakeAdvisor, queue: FakeQueue
) -> None:
    queue.snapshot = replace(queue.snapshot, terms=replace(TERMS, **terms))
    with pytest.raises(SlurmError, match=says):
        make().cycle()
    assert queue.writes == []


def test_a_plan_has_the_bounds_that_the_site_sets() -> None:
    wanted: dict[str, Any] = {
        "objective": "wait",
        "horizon_s": 2,
        "most_delay_s": 3,
        "most_wait_s": 4,
        "most_inversion": 0.5,
        "most_factor": 6,
        "most_changes": 7,
        "least_gain": 0.8,
    }
    assert bounds_of(Settings(**wanted)) == Bounds(**wanted)


def test_a_factor_that_somebody_else_has_set_stays(make: MakeAdvisor, queue: FakeQueue) -> None:
    moved = make(apply=False, keeps=False).cycle().changes[0].job_id
    queue.change(moved, site_factor=1)
    outcome = make().cycle()
    assert outcome.changes
    assert queue.factors()[moved] == 1


class Minutes:
    """Stands for a model, by which all jobs run for a minute."""

    def joined(self, _families: object) -> int:
        return 0

    def wall_time(self, _request: object) -> Estimate:
        return Estimate(likely=60.0, upper=60.0, jobs=5)


def test_a_new_model_says_how_long_jobs_run(make: MakeAdvisor) -> None:
    advisor, minutes = make(apply=False, keeps=False), Minutes()
    assert {job.likely_s for job in advisor.cycle().problem.pending} == {300, 3600, 18_000}
    advisor.means.model.predictor = minutes  # type: ignore[assignment]
    assert {job.likely_s for job in advisor.cycle().problem.pending} == {60}


def test_no_factor_takes_a_priority_below_the_lowest_that_slurm_uses(
    make: MakeAdvisor, queue: FakeQueue
) -> None:
    for job in queue.snapshot.jobs:
        if job.waits and not job.held:
            queue.own[job.job_id] = 3
            queue.change(job.job_id)
    make().cycle()
    for job in queue.snapshot.jobs:
        if job.waits and not job.held:
            assert job.priority == 3 + job.site_factor


def test_a_moved_job_that_must_keep_its_place_goes_back_to_it(make: MakeAdvisor, queue: FakeQueue) -> None:
    make().cycle()
    moved = next(iter(queue.factors()))
    queue.change(moved, other=("features",))
    queue.pass_s(60)
    outcome = make().cycle()
    assert moved not in queue.factors()
    (change,) = [one for one in outcome.changes if one.job_id == moved]
    assert "asks for features" in change.reason


def test_jobs_that_vanish_between_read_and_write_are_reported(make: MakeAdvisor, queue: FakeQueue) -> None:
    changed = make(apply=False, keeps=False).cycle().changes[0].job_id
    queue.before_write = lambda: queue.remove(changed)
    outcome = make().cycle()
    assert {one.job_id: one.problem for one in outcome.written if one.problem} == {changed: "gone"}
    assert changed not in queue.factors()


@pytest.mark.parametrize(
    "wrong", [{"at_s": float("nan")}, {"demand": (-5, 0, 0)}, {"limit_s": -1.0}, {"likely_s": float("nan")}]
)
def test_a_plan_is_made_without_a_forecast_that_makes_no_sense(
    wrong: dict[str, Any], make: MakeAdvisor, queue: FakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    fields: dict[str, Any] = {"at_s": 5.0, "demand": (1000, 1, 0), "limit_s": 60.0, "likely_s": 6.0, **wrong}
    one = Coming(pools=frozenset({0}), priority=5, **fields)
    advisor = Advisor(replace(make().means, forecast=lambda _snapshot: ((one,),)))
    outcome = advisor.cycle()
    assert outcome.problem.coming == ()
    assert queue.factors()
    assert "go without a forecast" in caplog.text


def test_a_failing_forecast_does_not_stop_the_plan(
    make: MakeAdvisor, caplog: pytest.LogCaptureFixture
) -> None:
    def away(_snapshot: Snapshot) -> tuple[()]:
        raise StoreError("the store is away; start it")

    outcome = Advisor(replace(make().means, forecast=away)).cycle()
    assert outcome.changes
    assert "the store is away" in caplog.text


def test_intervals_are_calibrated_by_past_starts_in_the_table_and_in_the_journal(
    make: MakeAdvisor, queue: FakeQueue, tmp_path: Path
) -> None:
    rolled = make(apply=False, keeps=False).cycle()
    wide = (Reach(low_log=2.0, high_log=2.0, trust=1.0),) * 4
    asked: list[Snapshot] = []

    def known(snapshot: Snapshot) -> Calibration:
        asked.append(snapshot)
        return wide

    outcome = Advisor(replace(make(apply=False).means, past_starts=known)).cycle()
    assert asked == [queue.snapshot]
    assert outcome.changes == rolled.changes
    late = [job for job in rolled.plan.jobs if 600 < job.start_s < 86_400]
    found = {job.job_id: job for job in outcome.plan.jobs}
    assert late
    assert all(found[job.job_id].high_s > 5 * job.start_s for job in late if job.high_s < 86_400)
    (written,) = journaled(tmp_path)
    told = {job.job_id: job.high_s for job in written.jobs if job.high_s is not None}
    assert told == {number: NOW_S + found[number].high_s for number in told}


def test_unreadable_past_starts_do_not_stop_the_plan_and_are_logged_once(
    make: MakeAdvisor, caplog: pytest.LogCaptureFixture
) -> None:
    def away(_snapshot: Snapshot) -> Calibration:
        raise StoreError("the store is away; start it")

    advisor = Advisor(replace(make(apply=False).means, past_starts=away))
    rolled = make(apply=False, keeps=False).cycle()
    outcome = advisor.cycle()
    assert outcome.plan == rolled.plan
    advisor.cycle()
    assert caplog.text.count("the store is away") == 1


def test_a_new_job_is_journalled_once_and_a_changed_one_at_every_change(
    make: MakeAdvisor, queue: FakeQueue, tmp_path: Path
) -> None:
    advisor = make()
    advisor.cycle()
    queue.pass_s(5)
    late = waiting(50, cpus=8, limit_s=18_000, priority=10)
    queue.snapshot = replace(queue.snapshot, jobs=(*queue.snapshot.jobs, late))
    queue.own[50] = 10
    advisor.cycle()
    first, second = journaled(tmp_path)
    assert {job.job_id for job in first.jobs} == set(range(3, 15))
    assert {job.job_id for job in second.jobs if job.before == job.after} == {50}
    assert second.time_s == NOW_S + 5


class Sized:
    """Stands for the sizing of pending jobs, and notes when it happens."""

    def __init__(self, queue: FakeQueue, folder: Path) -> None:
        self.queue, self.folder = queue, folder
        self.starting: list[frozenset[int]] = []
        self.refreshed = 0

    def refresh(self) -> None:
        self.refreshed += 1

    def run(self, _snapshot: Snapshot, _gateway: object, starting: frozenset[int]) -> list[object]:
        # Whatever becomes of it: the order is in force, and journalled.
        assert self.queue.factors()
        assert journaled(self.folder)
        self.starting.append(starting)
        return []


def test_pending_jobs_are_sized_after_the_order_except_those_that_start_now(
    make: MakeAdvisor, queue: FakeQueue, tmp_path: Path
) -> None:
    sized: Any = Sized(queue, tmp_path)
    # 2 CPUs of the first node are free: one short job starts at once.
    queue.change(1, cpus=6)
    outcome = Advisor(replace(make().means, late_sizing=sized)).cycle()
    soon = {job.job_id for job in outcome.plan.jobs if job.start_s <= 1}
    assert soon
    assert soon <= sized.starting[0]
    assert sized.refreshed == 1
    queue.pass_s(1)
    watching = make(control_share=1.0)
    Advisor(replace(watching.means, late_sizing=sized)).cycle()
    Advisor(replace(make(apply=False).means, late_sizing=sized)).cycle()
    assert len(sized.starting) == 1
