"""A request that slurmctld refuses delays no other: every failed job is looked at while slurmctld knows it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import SlurmError
from slurm_plugin.recovery.journal import LAST_ROUND, Journal
from slurm_plugin.recovery.judging import Recovery, judge
from slurm_plugin.recovery.refused import MOST_ROUNDS, Refused, shared_round
from slurm_plugin.recovery.rounds import TRIES_AGAIN, Outcome, Recoverer, watch
from slurm_plugin.slurm.gateway import DRY_RUN, RecoveryGate
from slurm_plugin.slurm.queue import Dependent, Failed, Requeue, Written
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
from slurm_plugin.slurm.snapshot import QueuedJob
from tests.slurm_plugin.recovery.controller import Controller, assert_back, entries
from tests.slurm_plugin.recovery.test_judging import failed

MOST = 3


class Cluster(ScontrolQueue):
    """Several jobs, each one a Controller; it notes which are tried, and whose dependencies are set again."""

    def __init__(self, jobs: Sequence[int], refuses: Sequence[int] = ()) -> None:
        self.jobs = {number: Controller(_failed(number)) for number in jobs}
        for number in refuses:
            self.jobs[number].refuses = "--uid"
        self.tried: list[int] = []
        self.dependents: list[Dependent] = []
        self.refused_dependents: set[int] = set()
        self.set_anew: list[int] = []

    def failed_jobs(self, *, again: bool) -> dict[int, str]:
        return {
            number: what
            for job in self.jobs.values()
            for number, what in job.failed_jobs(again=again).items()
        }

    def failed(self, job_id: int) -> Failed | None:
        return self.jobs[job_id].failed(job_id)

    def failed_of(self, job_ids: Sequence[int]) -> dict[int, Failed | None]:
        return {job_id: self.failed(job_id) for job_id in job_ids}

    def carries(self, job: QueuedJob) -> bool:
        return job.job_id in self.jobs

    def requeue(self, wanted: Requeue, kept_open: Sequence[int] = (), *, only_hold: bool = False) -> Written:
        self.tried.append(wanted.change.job_id)
        return self.jobs[wanted.change.job_id].requeue(wanted, kept_open, only_hold=only_hold)

    def given_up(self) -> list[Dependent]:
        return [job for job in self.dependents if "(failed)" in job.dependency]

    def depend(self, change: Dependent) -> Written:
        self.set_anew.append(change.job_id)
        if change.job_id in self.refused_dependents:
            return Written(job_id=change.job_id, problem="Access/permission denied")
        self.dependents = [change if job.job_id == change.job_id else job for job in self.dependents]
        return Written(job_id=change.job_id)

    def back(self) -> set[int]:
        return {
            number for number, job in self.jobs.items() if job.run and not job.run.job.held and job.requeues
        }


def _failed(number: int) -> Failed:
    run = failed()
    return msgspec.structs.replace(run, job=msgspec.structs.replace(run.job, job_id=number))


def recoverer(cluster: Cluster, folder: Path) -> Recoverer:
    return Recoverer(RecoveryGate(cluster, apply=True), Journal(folder), apply=True, most=MOST)


def test_a_dry_run_changes_neither_jobs_nor_their_dependents() -> None:
    cluster, waits = Cluster((7,)), Dependent(job_id=9, uid=1001, dependency="afterok:7")
    dry, wanted = RecoveryGate(cluster, apply=False), judge(_failed(7))
    assert isinstance(wanted, Recovery)
    assert wanted.requeue is not None
    assert [dry.requeue(wanted.requeue).problem, dry.depend(waits).problem] == [DRY_RUN, DRY_RUN]
    assert (cluster.tried, cluster.set_anew) == ([], [])


@pytest.mark.parametrize("error", [SlurmError("slurmctld does not answer"), ZeroDivisionError()])
def test_a_failing_round_is_logged_once_and_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    cluster, stop, rounds = Cluster((7,)), threading.Event(), list[int]()
    own = recoverer(cluster, tmp_path)
    as_it_is = own.round

    def third_time() -> list[Outcome]:
        rounds.append(len(rounds))
        if len(rounds) < 3:
            raise error
        assert not (tmp_path / LAST_ROUND).exists()
        stop.set()
        return as_it_is()

    monkeypatch.setattr(own, "round", third_time)
    watch(own, 0.0, stop)
    assert cluster.back() == {7}
    assert (tmp_path / LAST_ROUND).exists()
    assert [TRIES_AGAIN in line for line in caplog.messages if "round" in line] == [True]


def test_as_many_refused_jobs_as_a_round_takes_do_not_keep_others_waiting(tmp_path: Path) -> None:
    cluster = Cluster(range(1, 7), refuses=(1, 2, 3))
    own = recoverer(cluster, tmp_path)
    for _ in range(4):
        cluster.tried.clear()
        own.round()
        assert len(cluster.tried) <= MOST
    assert cluster.back() == {4, 5, 6}


def test_if_more_jobs_have_failed_than_a_round_takes_they_are_held_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld forgets jobs that have ended: all steps for each in turn would come too late for the last ones."""
    cluster, stop, held = Cluster(range(1, 3 * MOST)), threading.Event(), list[int]()
    own = Recoverer(RecoveryGate(cluster, apply=True), Journal(tmp_path), apply=True, most=MOST, goes_on=True)
    pauses: list[float] = []

    def wait(pause_s: float) -> bool:
        pauses.append(pause_s)
        held.append(sum(job.requeues for job in cluster.jobs.values()))
        if len(cluster.back()) == len(cluster.jobs) or len(pauses) > 10:
            stop.set()
        return True

    monkeypatch.setattr(stop, "wait", wait)
    watch(own, 10.0, stop)
    assert (held, pauses) == ([3, 6, 8, 8, 8], [0.0, 0.0, 10.0, 10.0, 10.0])
    for job in cluster.jobs.values():
        assert_back(job)
    assert [entry.what for entry in entries(tmp_path)] == ["requeued"] * len(cluster.jobs)


def test_a_refused_job_does_not_stop_the_rounds_that_hold_many(tmp_path: Path) -> None:
    cluster = Cluster((1,), refuses=(1,))
    own = Recoverer(RecoveryGate(cluster, apply=True), Journal(tmp_path), apply=True, most=MOST, goes_on=True)
    own.round()
    cluster.jobs |= {number: Controller(_failed(number)) for number in range(2, 3 * MOST)}
    own.round()
    assert own.is_behind
    assert sum(job.requeues for job in cluster.jobs.values()) == 1 + MOST


def test_a_failing_round_is_followed_by_a_pause_even_if_many_jobs_have_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, stop = Cluster(range(1, 3 * MOST)), threading.Event()
    own = Recoverer(RecoveryGate(cluster, apply=True), Journal(tmp_path), apply=True, most=MOST, goes_on=True)
    pauses: list[float] = []

    def fail(*_arguments: object, **_options: object) -> Written:
        raise SlurmError("slurmctld does not answer; check that it runs")

    monkeypatch.setattr(cluster, "requeue", fail)

    def wait(pause_s: float) -> None:
        pauses.append(pause_s)
        stop.set()

    monkeypatch.setattr(stop, "wait", wait)
    watch(own, 10.0, stop)
    assert pauses == [10.0]


def test_a_job_does_not_wait_on_for_one_that_waited_again_and_then_failed_by_itself(tmp_path: Path) -> None:
    cluster = Cluster((1,))
    own = recoverer(cluster, tmp_path)
    cluster.dependents = [Dependent(job_id=8, uid=1001, dependency="afterok:1(failed)", cancelled=True)]
    own.round()
    assert cluster.set_anew == [8]
    ended = _failed(8)
    job = msgspec.structs.replace(ended.job, state="FAILED", admin_comment="")
    cluster.jobs |= {2: Controller(_failed(2)), 8: Controller(msgspec.structs.replace(ended, job=job))}
    cluster.dependents = [Dependent(job_id=10, uid=1001, dependency="afterok:8(failed)", cancelled=True)]
    own.round()
    assert cluster.back() == {1, 2}
    assert cluster.set_anew == [8]


def test_a_single_round_leaves_no_job_held(tmp_path: Path) -> None:
    cluster = Cluster(range(1, 3 * MOST))
    recoverer(cluster, tmp_path).round()
    assert cluster.back() == {1, 2, 3}
    assert not any(job.run.job.held for job in cluster.jobs.values() if job.run)


def test_a_restarted_recovery_takes_new_jobs_at_once_among_many_refused(tmp_path: Path) -> None:
    cluster = Cluster(range(1, 10), refuses=range(1, 10))
    first = recoverer(cluster, tmp_path)
    for _ in range(6):
        first.round()
    assert set(cluster.tried) == set(range(1, 10))
    cluster.jobs |= Cluster((10, 11)).jobs
    anew = recoverer(cluster, tmp_path)
    anew.round()
    anew.round()
    assert cluster.back() == {10, 11}


def test_refused_jobs_are_tried_ever_more_rarely_but_never_given_up(tmp_path: Path) -> None:
    cluster = Cluster((1,), refuses=(1,))
    own = recoverer(cluster, tmp_path)
    rounds = []
    for number in range(150):
        before = len(cluster.tried)
        own.round()
        rounds += [number] * (len(cluster.tried) - before)
    assert rounds == [0, 1, 3, 7, 15, 31, 63, 127]
    cluster.jobs[1].refuses = ""
    for _ in range(MOST_ROUNDS):
        own.round()
    assert cluster.back() == {1}


def test_a_refusal_is_logged_once_and_again_when_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster = Cluster((1,), refuses=(1,))
    own = recoverer(cluster, tmp_path)

    def said() -> list[str]:
        lines = [line for line in caplog.messages if line.startswith("requeue job 1:")]
        caplog.clear()
        return [line.rsplit(": ", 1)[1] for line in lines]

    for _ in range(8):
        own.round()
    assert said() == ["Access/permission denied"]
    cluster.jobs[1].complaint = "Job is pinned"
    for _ in range(30):
        own.round()
    assert said() == ["Job is pinned"]
    cluster.jobs[1].refuses = ""
    for _ in range(MOST_ROUNDS):
        own.round()
    assert said() == ["done"]


def test_a_bounded_number_of_dependents_is_mended_each_round_and_a_refused_one_delays_no_other(
    tmp_path: Path,
) -> None:
    cluster = Cluster((7,))
    cluster.dependents = [
        Dependent(job_id=number, uid=1001, dependency="afterok:7(failed)") for number in range(11, 19)
    ]
    cluster.refused_dependents = {11, 12, 13}
    own = recoverer(cluster, tmp_path)
    for _ in range(5):
        before = len(cluster.set_anew)
        own.round()
        assert len(cluster.set_anew) - before <= MOST
    assert {job.job_id for job in cluster.dependents if job.dependency == "afterok:7"} == {14, 15, 16, 17, 18}
    before = len(cluster.set_anew)
    own.round()
    assert len(cluster.set_anew) == before
    # The next job that comes back is a reason to try all of them again.
    cluster.refused_dependents.clear()
    cluster.jobs[8] = Controller(_failed(8))
    own.round()
    assert {job.dependency for job in cluster.dependents} == {"afterok:7"}


def test_a_user_with_many_failed_jobs_does_not_keep_those_of_others_waiting(tmp_path: Path) -> None:
    """Bringing one back takes a tenth of a second: slurmctld had forgotten the others once it was their turn."""
    cluster = Cluster([*range(1, 40), 77, 78, 79])
    for number, uid in ((77, 1002), (78, 1002), (79, 1003)):
        one = cluster.jobs[number]
        assert one.run is not None
        one.run = msgspec.structs.replace(one.run, job=msgspec.structs.replace(one.run.job, uid=uid))
    own = recoverer(cluster, tmp_path)
    for _ in range(2):
        own.round()
    assert cluster.tried == [1, 77, 79, 2, 78, 3]
    for _ in range(12):
        own.round()
    assert cluster.back() == cluster.jobs.keys()


@given(
    st.lists(st.integers(1, 50), unique=True), st.lists(st.integers(51, 99), unique=True), st.integers(1, 20)
)
def test_a_round_is_full_while_jobs_wait_and_neither_new_nor_begun_ones_take_it_all(
    fresh: list[int], again: list[int], most: int
) -> None:
    new, begun = shared_round(fresh, again, most)
    assert (new, begun) == (fresh[: len(new)], again[: len(begun)])
    assert len(new) + len(begun) == min(most, len(fresh) + len(again))
    assert len(new) >= min(len(fresh), most // 2)
    assert len(begun) >= min(len(again), most // 2)


@pytest.mark.parametrize("refuses", ["AdminComment", "--uid"])
def test_a_job_that_was_refused_for_days_comes_back_once_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    gate, now_s = Controller(failed()), [time.time()]
    monkeypatch.setattr(time, "time", lambda: now_s[0])
    gate.refuses = refuses
    own = Recoverer(gate, Journal(tmp_path), apply=True, most=MOST)
    for _ in range(100):
        own.round()
        now_s[0] += 3600
    gate.refuses = ""
    for _ in range(MOST_ROUNDS):
        own.round()
    assert_back(gate)
    assert [entry.what for entry in entries(tmp_path)] == ["requeued"]


def test_a_job_that_is_gone_is_forgotten() -> None:
    refused = Refused[int]()
    refused.begin_round()
    refused.note(1)
    assert refused.whose_turn([1, 2]) == [2]
    assert refused.whose_turn([2]) == [2]
    assert refused.whose_turn([1, 2]) == [1, 2]


def test_what_is_refused_again_after_it_was_accepted_is_tried_again_in_the_next_round() -> None:
    refused = Refused[int]()
    for _ in range(3):
        refused.note(1)
    assert refused.whose_turn([]) == []
    refused.note(1)
    refused.begin_round()
    assert refused.whose_turn([1]) == [1]


def test_dependents_are_mended_even_if_slurmctld_falls_silent_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster([1, 2])
    own = recoverer(cluster, tmp_path)
    own.round()
    assert cluster.back() == {1, 2}
    cluster.jobs = {number: Controller(_failed(number)) for number in (3, 4)}
    cluster.dependents = [Dependent(job_id=9, uid=1001, dependency="afterok:3(failed)")]
    requeue = cluster.requeue

    def silent_at_4(wanted: Requeue, kept_open: Sequence[int] = (), *, only_hold: bool = False) -> Written:
        if wanted.change.job_id == 4:
            raise SlurmError("slurmctld does not answer; check that it runs")
        return requeue(wanted, kept_open, only_hold=only_hold)

    monkeypatch.setattr(cluster, "requeue", silent_at_4)
    with pytest.raises(SlurmError):
        own.round()
    del cluster.jobs[4]
    monkeypatch.setattr(
        cluster, "failed", lambda number: cluster.jobs[number].run if number in cluster.jobs else None
    )
    own.round()
    assert cluster.back() == {3}
    assert [job.dependency for job in cluster.dependents] == ["afterok:3"]
