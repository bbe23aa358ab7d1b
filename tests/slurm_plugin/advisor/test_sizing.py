"""One pass over the queue: which jobs are sized, in which order, what is recorded, and what is read of the past."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from accounting.decisions.decision import Decision, decode_decision
from accounting.decisions.token import format_token
from models.demand.prediction import ChainSettings, Predictor
from models.past.attempts import past_job, request_of
from models.past.history import History
from slurm_plugin.advisor.sizing import JOURNAL, LateSizing
from slurm_plugin.brakes.pulled import Pulled, pulled_file
from slurm_plugin.config.settings import Advisor, Brakes, Config, Hook, Models, Service
from slurm_plugin.policy.braked import ALL, family_brake
from slurm_plugin.policy.facts import Partition, SiteFacts
from slurm_plugin.service import current_facts
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.service.decide import SITE_NOT_KNOWN, decide
from slurm_plugin.service.journal import Journal
from slurm_plugin.slurm.facts import Gathered
from slurm_plugin.slurm.queue import Resize, Written
from slurm_plugin.slurm.snapshot import QueuedJob, Snapshot
from tests.builders import SCRIPT, attempt, submission
from tests.slurm_plugin.slurm.queued import TERMS, waiting

SUBMITTED_S = time.time() - 60


class Taken:
    """Accepts changes as the gateway does, except for jobs that it refuses."""

    def __init__(self, *refused: int) -> None:
        self.refused = refused
        self.changes: list[Resize] = []

    def resize(self, change: Resize) -> Written:
        self.changes.append(change)
        return Written(job_id=change.job_id, problem="started" if change.job_id in self.refused else "")


class Site:
    """A journal, a model that knows what `jobs` jobs named fit used, and what was submitted before it knew that."""

    def __init__(self, folder: Path, *, limits_needed: bool = False, **advisor: Any) -> None:
        self.journal = folder / "journal"
        self.config = Config(
            mode="enforce",
            service=Service(journal=str(self.journal), limits_needed=limits_needed),
            hook=Hook(kill_switch=str(folder / "disabled")),
            brakes=Brakes(directory=str(folder / "brakes")),
            models=Models(directory=str(folder / "models")),
            advisor=Advisor(**advisor),
        )
        self.model = CurrentModel(folder / "models", ChainSettings())
        self.model.predictor = Predictor("m", History(recent_jobs=50), {}, ChainSettings())
        self.ended = 0
        self.late = LateSizing(self.config, self.model)
        self.served = Journal(self.journal)

    def learn(self, mem_mib: float, jobs: int = 12) -> None:
        """Let `jobs` more jobs end that used about `mem_mib`."""
        predictor = self.model.predictor
        assert predictor is not None
        for number in range(jobs):
            self.ended += 1
            one = attempt(
                job_id=self.ended, user="alice", job_name=f"fit{self.ended}", mem_mib=mem_mib + number % 3
            )
            assert predictor.join(request_of(one), past_job(one))

    def submitted(self, job_id: int, *, known: bool = False, **fields: Any) -> QueuedJob:
        """Return a job decided at submission, with what is known now or with nothing known."""
        asked = submission(
            user="alice", name=f"fit{job_id}", script=SCRIPT, cpus_per_task=8, mem_per_node_mib=8000
        )
        predictor = self.model.predictor if known else None
        decision = decide(asked, predictor, self.config, f"d{job_id}", SUBMITTED_S).decision
        self.served.append(decision)
        waits = {
            "user": "alice", "name": f"fit{job_id}", "submit_s": SUBMITTED_S, "cpus": 8, "mem_mib": 8000,
            "cpus_per_task": decision.grant.cpus_per_task or 8,
            "mem_per_node_mib": decision.grant.mem_per_node_mib or 8000,
            "admin_comment": format_token(decision), "priority": job_id,
        }  # fmt: skip
        return waiting(job_id, **{**waits, **fields})

    def recorded(self) -> list[Decision]:
        lines = [
            line for file in self.journal.glob(f"{JOURNAL}-*") for line in file.read_bytes().splitlines()
        ]
        return [one for one in map(decode_decision, lines) if one]


def snapshot(*jobs: QueuedJob) -> Snapshot:
    return Snapshot(time_s=time.time(), jobs=jobs, nodes=(), partitions=(), reservations=(), terms=TERMS)


@pytest.fixture(autouse=True)
def _a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_plugin.advisor.sizing.read_release", lambda: (22, 5, 8))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_pending_job_is_sized_and_recorded_once_slurm_has_accepted_it(site: Site) -> None:
    jobs = [site.submitted(number) for number in (1, 2, 3)]
    assert site.late.run(snapshot(*jobs), Taken(), frozenset()) == []
    assert site.late.left == {"no-evidence": 3}
    site.learn(200.0)
    taken = Taken(2)
    written = site.late.run(snapshot(*jobs), taken, frozenset())
    assert [one.job_id for one in written] == [3, 2, 1]
    assert all((one.mem_per_node_mib or 8000) < 1000 and one.num_tasks == 1 for one in taken.changes)
    recorded = site.recorded()
    assert [(one.replaces, one.applied) for one in recorded] == [("d3", True), ("d1", True)]
    assert [one.request.job_name for one in recorded] == ["fit3", "fit1"]
    assert len({one.id for one in recorded}) == 2


def test_the_next_cycle_knows_the_changes_of_the_last_one(site: Site) -> None:
    job = site.submitted(1)
    site.learn(200.0)
    taken = Taken()
    site.late.run(snapshot(job), taken, frozenset())
    [change] = taken.changes
    now = msgspec.structs.replace(
        job,
        admin_comment=change.admin_comment or "",
        mem_per_node_mib=change.mem_per_node_mib,
        cpus_per_task=change.cpus_per_task or 8,
    )
    assert site.late.run(snapshot(now), taken, frozenset()) == []
    assert site.late.left == {"fits": 1}
    site.learn(6000.0)
    [written] = site.late.run(snapshot(now), taken, frozenset())
    assert written.problem == ""
    assert (taken.changes[-1].mem_per_node_mib or 0) > 6000
    assert [one.replaces for one in site.recorded()] == ["d1", site.recorded()[0].id]


def test_jobs_that_get_more_come_first_then_the_order_of_the_queue(site: Site) -> None:
    site.learn(200.0)
    cut = site.submitted(1, known=True)
    site.learn(3000.0)
    waits = [site.submitted(number) for number in (2, 3)]
    taken = Taken()
    site.late.run(snapshot(*waits, cut), taken, frozenset())
    assert [one.job_id for one in taken.changes] == [1, 3, 2]


def test_a_job_that_starts_now_is_left_alone_but_an_array_is_not(site: Site) -> None:
    site.learn(200.0)
    single = site.submitted(1)
    array = site.submitted(2, array_job_id=2, array_tasks="5-9", tasks=5)
    taken = Taken()
    site.late.run(snapshot(single, array), taken, frozenset({1, 2}))
    assert [one.job_id for one in taken.changes] == [2]
    assert site.late.left == {"starts-now": 1}


def test_a_brake_gives_back_to_a_bounded_number_of_pending_jobs_in_each_cycle(tmp_path: Path) -> None:
    site = Site(tmp_path, most_changes=2)
    site.learn(200.0)
    jobs = [site.submitted(number, known=True) for number in (1, 2, 3)]
    taken = Taken()
    assert site.late.run(snapshot(*jobs), taken, frozenset()) == []
    assert site.late.left == {"fits": 3}
    brake = family_brake("alice", "fit1")
    pulled_file(site.config.brakes).pull(Pulled(brake=brake, time_s=0.0, why="by hand"))
    site.late.refresh()
    site.late.run(snapshot(*jobs), taken, frozenset())
    assert [(one.job_id, one.mem_per_node_mib) for one in taken.changes] == [(3, 8000), (2, 8000)]
    assert [(one.replaces, one.reason, one.applied) for one in site.recorded()] == [
        ("d3", "braked", False),
        ("d2", "braked", False),
    ]


def test_slurm_is_asked_again_if_a_waiting_job_names_a_partition_made_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, asked = [1000.0], []

    def gathered(known: SiteFacts) -> Gathered:
        asked.append(now_s[0])
        return Gathered(msgspec.structs.replace(known, partitions={"old": Partition()}, missing=()), ())

    monkeypatch.setattr(current_facts, "gather", gathered)
    monkeypatch.setattr(current_facts, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    site = Site(tmp_path, limits_needed=True)
    site.learn(200.0)
    for passed_s in (0.0, 60.0, 61.0):
        now_s[0] = 1000.0 + passed_s
        site.late.refresh()
        assert site.late.run(snapshot(site.submitted(1, partitions=("new",))), Taken(), frozenset()) == []
        assert site.late.left == {SITE_NOT_KNOWN: 1}
    assert asked == [1000.0, 1060.0]


def test_nothing_is_cut_while_the_kill_switch_is_on_and_a_brake_still_gives_back(site: Site) -> None:
    site.learn(200.0)
    jobs = [site.submitted(1), site.submitted(2, known=True)]
    switch, taken = Path(site.config.hook.kill_switch), Taken()
    switch.touch()
    assert site.late.run(snapshot(*jobs), taken, frozenset()) == []
    assert site.late.left == {"kill-switch": 1, "fits": 1}
    pulled_file(site.config.brakes).pull(Pulled(brake=ALL, time_s=0.0, why="too many failures"))
    site.late.refresh()
    site.late.run(snapshot(*jobs), taken, frozenset())
    assert [(one.job_id, one.mem_per_node_mib) for one in taken.changes] == [(2, 8000)]
    pulled_file(site.config.brakes).let_go(ALL)
    site.late.refresh()
    switch.unlink()
    site.late.run(snapshot(*jobs), taken, frozenset())
    assert [one.job_id for one in taken.changes] == [2, 1]


def test_a_kill_switch_that_is_made_meanwhile_counts_from_the_next_job_on(site: Site) -> None:
    class Disabling(Taken):
        def resize(self, change: Resize) -> Written:
            Path(site.config.hook.kill_switch).touch()
            return super().resize(change)

    site.learn(200.0)
    taken = Disabling()
    site.late.run(snapshot(*(site.submitted(number) for number in (1, 2, 3))), taken, frozenset())
    assert [one.job_id for one in taken.changes] == [3]
    assert site.late.left == {"kill-switch": 2}


def test_slow_writes_leave_the_other_half_of_the_cycle_to_the_order(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)

    class Slow(Taken):
        def resize(self, change: Resize) -> Written:
            nonlocal now_s
            now_s += 0.3 * site.config.advisor.period_s
            return super().resize(change)

    site.learn(200.0)
    taken = Slow()
    site.late.run(snapshot(*(site.submitted(number) for number in (1, 2, 3))), taken, frozenset())
    assert [one.job_id for one in taken.changes] == [3, 2]


def test_the_number_of_changes_in_a_cycle_is_bounded(tmp_path: Path) -> None:
    site = Site(tmp_path, most_changes=2)
    site.learn(200.0)
    taken = Taken()
    site.late.run(snapshot(*(site.submitted(number) for number in range(1, 6))), taken, frozenset())
    assert [one.job_id for one in taken.changes] == [5, 4]


def test_a_change_that_slurm_refuses_does_not_count_as_sized(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    site.learn(200.0)
    site.late.run(snapshot(site.submitted(1), site.submitted(2)), Taken(1), frozenset())
    assert "sized again: 1 of 2 jobs; none left" in caplog.text


def test_a_disk_that_refuses_the_record_stops_no_change(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.learn(200.0)
    jobs = [site.submitted(1), site.submitted(2)]

    def full(_handle: int, _line: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    taken = Taken()
    site.late.run(snapshot(*jobs), taken, frozenset())
    assert len(taken.changes) == 2


def test_a_job_that_was_left_is_looked_at_again_when_it_changes_or_similar_jobs_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    look = site.late._look

    def watched(job: QueuedJob, *known: Any) -> Any:
        looked.append(job.job_id)
        return look(job, *known)

    monkeypatch.setattr(site.late, "_look", watched)
    jobs = [site.submitted(1), site.submitted(2)]
    for _ in range(3):
        site.late.run(snapshot(*jobs), Taken(), frozenset())
        assert site.late.left == {"no-evidence": 2}
    assert looked == [2, 1]
    jobs[0] = msgspec.structs.replace(jobs[0], comment="rightsize=off")
    site.late.run(snapshot(*jobs), Taken(), frozenset())
    assert looked == [2, 1, 1]
    assert site.late.left == {"no-evidence": 1, "opted-out": 1}
    site.learn(200.0, jobs=1)
    taken = Taken()
    site.late.run(snapshot(*jobs), taken, frozenset())
    assert looked == [2, 1, 1, 2]
    assert [change.job_id for change in taken.changes] == [2]


def test_a_job_requeued_in_hold_is_sized_once_it_is_released(site: Site) -> None:
    job = site.submitted(1)
    site.learn(200.0)
    held = msgspec.structs.replace(job, held=True, reason="job_requeued_in_held_state")
    taken = Taken()
    assert site.late.run(snapshot(held), taken, frozenset()) == []
    assert site.late.left == {"held-again": 1}
    assert site.late.run(snapshot(job), taken, frozenset()) == [Written(job_id=1)]
    assert [change.before for change in taken.changes] == [job.admin_comment]


def test_a_journal_that_takes_long_to_read_leaves_time_to_size(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.learn(200.0)
    now_s, read = 1000.0, site.late._decided.of

    def slowly(*asked: Any) -> Any:
        nonlocal now_s
        now_s += site.config.advisor.period_s
        return read(*asked)

    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(site.late._decided, "of", slowly)
    assert len(site.late.run(snapshot(site.submitted(1)), Taken(), frozenset())) == 1


def test_jobs_for_which_there_is_no_time_wait_for_the_next_cycle(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.learn(200.0)
    jobs = [site.submitted(number) for number in (1, 2, 3)]
    now_s, look = 1000.0, site.late._look

    def slowly(*asked: Any) -> Any:
        nonlocal now_s
        now_s += 0.2 * site.config.advisor.period_s
        return look(*asked)

    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(site.late, "_look", slowly)
    assert [one.job_id for one in site.late.run(snapshot(*jobs), Taken(), frozenset())] == [3, 2]
    assert site.late.left == {"next-time": 1}
