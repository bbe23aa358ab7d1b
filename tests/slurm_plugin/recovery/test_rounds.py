"""A job comes back once, whichever process dies at whichever step, and however many processes see it."""

import errno
import os
from pathlib import Path

import msgspec
import pytest

from accounting.errors import ServiceError, SlurmError, StoreError
from accounting.wants import Said
from slurm_plugin.recovery.journal import Entry, Journal, told
from slurm_plugin.recovery.judging import SiteTerms
from slurm_plugin.recovery.mending import LOOKED_BACK_S
from slurm_plugin.recovery.rounds import Outcome, Recoverer
from slurm_plugin.slurm import requeuing
from slurm_plugin.slurm.job_lines import HELD_AGAIN
from slurm_plugin.slurm.queue import Dependent, Failed
from tests.slurm_plugin.recovery.controller import Controller, assert_back, entries, kill_at, recoverer
from tests.slurm_plugin.recovery.test_judging import ASKED, GRANT, failed, token
from tests.slurm_plugin.slurm.memory_queue import Killed


def test_a_job_comes_back_once_but_not_a_second_time(tmp_path: Path) -> None:
    gate = Controller(failed(accrues_s=1000.0, start_s=2800.0))
    terms = SiteTerms(age_points=1000, most_age_s=3600.0)
    own = Recoverer(gate, Journal(tmp_path), apply=True, most=10, terms=terms)
    assert [one.problem for one in own.round()] == [""]
    assert_back(gate)
    assert [words[0] for words in gate.writes] == ["requeuehold", "update", "--uid=1000", "release"]
    assert ";recovery=out_of_memory:0" in gate.writes[1][2]
    assert gate.writes[1][3:] == ("SiteFactor=500",)
    assert (own.round(), len(gate.writes)) == ([], 4)
    gate.fail()
    assert own.round() == recoverer(gate, tmp_path).round() == []
    assert len(gate.writes) == 4
    assert [entry.what for entry in entries(tmp_path)] == ["requeued"]


@pytest.mark.parametrize("job", [failed(), failed(requeues=False)], ids=["to come back", "lost"])
def test_a_job_whose_user_may_have_written_the_token_is_left_and_nothing_is_owed(
    tmp_path: Path, job: Failed
) -> None:
    gate = Controller(job)
    gate.forgers = {job.job.job_id}
    assert recoverer(gate, tmp_path).round() == []
    assert (gate.writes, entries(tmp_path)) == ([], [])
    gate.forgers.clear()
    assert len(recoverer(gate, tmp_path).round()) == 1


def test_gpus_come_back_in_the_same_step_as_everything_else(tmp_path: Path) -> None:
    asked = msgspec.structs.replace(ASKED, gpus_per_task=4)
    grant = msgspec.structs.replace(GRANT, gpus_per_task=1)
    run = failed(admin_comment=token(asked, grant))
    of_task = "cpu=2,gres/gpu=1"
    job = msgspec.structs.replace(run.job, tres_per_task=of_task)
    gate = Controller(msgspec.structs.replace(run, job=job, gpu_fields={"TresPerTask": of_task}))
    assert [one.problem for one in recoverer(gate, tmp_path).round()] == [""]
    assert_back(gate)
    assert gate.run is not None
    assert gate.run.gpu_fields == {"TresPerTask": "cpu=8,gres/gpu=4"}
    assert [words[0] for words in gate.writes] == ["requeuehold", "update", "--uid=1000", "release"]
    assert sum(word.startswith("TresPerTask=") for word in gate.writes[2]) == 1


@pytest.mark.parametrize("with_journal", [True, False])
@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("step", range(4))
def test_the_next_round_goes_on_where_one_was_killed_at_any_step(
    tmp_path: Path, step: int, after: bool, with_journal: bool
) -> None:
    """Without the journal too, except between the requeue and the mark: then anybody may have held the job."""
    gate = Controller(failed())
    kill_at(gate, tmp_path, step, after=after)
    other = tmp_path if with_journal else tmp_path / "lost"
    recoverer(gate, other).round()
    if not with_journal and (step, after) in ((0, True), (1, False)):
        assert gate.run is not None
        assert gate.run.job.held
        assert gate.requeues == 1
        return
    assert_back(gate)
    recoverer(gate, other).round()
    gate.fail()
    recoverer(gate, other).round()
    assert gate.requeues == 1


def test_what_is_continued_without_the_journal_is_told_too(tmp_path: Path) -> None:
    gate = Controller(failed())
    kill_at(gate, tmp_path, 2, after=False)
    assert [one.problem for one in recoverer(gate, tmp_path / "lost").round()] == [""]


def test_a_round_cut_off_before_its_last_entry_is_completed_by_the_next(tmp_path: Path) -> None:
    gate = Controller(failed())
    gate.after_write = lambda number: (_ for _ in ()).throw(Killed) if number == 3 else None
    with pytest.raises(Killed):
        recoverer(gate, tmp_path).round()
    gate.fail()
    assert [one.problem for one in recoverer(gate, tmp_path).round()] == [""]
    assert [entry.what for entry in entries(tmp_path)] == ["requeued"]
    assert gate.requeues == 1


def test_a_dry_run_writes_nothing_anywhere(tmp_path: Path) -> None:
    gate = Controller(failed(requeues=False))
    folder = tmp_path / "none"
    [found] = recoverer(gate, folder, apply=False).round()
    assert found.problem == "its user forbids requeueing it"
    assert (gate.writes, folder.exists()) == ([], False)


def test_lost_jobs_are_journalled_once_with_the_hours_that_are_owed(tmp_path: Path) -> None:
    gate = Controller(failed(requeues=False, cpus=4, mem_mib=2048, start_s=1000.0, end_s=8200.0))
    for _ in range(2):
        recoverer(gate, tmp_path).round()
    [file] = tmp_path.glob("recoveries-*.jsonl")
    assert len(file.read_text(encoding="utf-8").splitlines()) == 1
    [entry] = entries(tmp_path)
    assert (entry.what, entry.user, entry.cpu_hours, entry.mem_gib_hours) == ("lost", "ann", 8.0, 4.0)
    assert "owed 8 CPU hours and 4 GiB hours; it could not be requeued: its user" in told(entry, "2_1")


def test_nothing_is_owed_for_the_time_that_a_job_was_suspended(tmp_path: Path) -> None:
    run = failed(requeues=False, cpus=4, start_s=1000.0, end_s=102_600.0)
    job = msgspec.structs.replace(run.job, stopped_s=99_000.0, ran_before_s=3600.0)
    gate = Controller(msgspec.structs.replace(run, job=job))
    recoverer(gate, tmp_path).round()
    assert [entry.cpu_hours for entry in entries(tmp_path)] == [8.0]


def test_the_entry_of_a_job_says_if_its_cpus_cannot_be_given_back(tmp_path: Path) -> None:
    """Slurm 23.11 to 24.11.0; also for a recovery that another process has begun."""
    gate = Controller(failed())
    gate.refuses = "release"
    recovering = Recoverer(gate, Journal(tmp_path), apply=True, most=10, terms=SiteTerms(cpus_stay=True))
    recovering.round()
    (began,) = entries(tmp_path)
    gate.refuses = ""
    recoverer(gate, tmp_path).round()
    (done,) = entries(tmp_path)
    assert (began.what, done.what) == ("begun", "requeued")
    for one in (began, done):
        assert "with its original request, but this Slurm release cannot change the CPUs" in told(one, "7")


def test_a_job_that_somebody_changed_meanwhile_is_left_to_them(tmp_path: Path) -> None:
    gate = Controller(failed())

    def released(number: int) -> None:
        if number == 0:
            gate._set(held=False, reason="None")

    gate.after_write = released
    [found] = recoverer(gate, tmp_path).round()
    assert found.problem == requeuing.CHANGED
    assert [entry.what for entry in entries(tmp_path)] == ["lost"]
    assert len(gate.writes) == 1


def test_a_change_that_slurmctld_makes_with_a_complaint_counts_as_made(tmp_path: Path) -> None:
    """For example on a job that lists a partition whose MaxMemPerNode is less than its request."""
    gate = Controller(failed())
    gate.complains = "Requested partition configuration not available now for job 7"
    [outcome] = recoverer(gate, tmp_path).round()
    assert outcome.problem == ""
    assert_back(gate)
    assert len(gate.writes) == 4


def test_a_job_that_slurmctld_refuses_to_change_stays_held_and_is_tried_again(tmp_path: Path) -> None:
    gate = Controller(failed())
    gate.refuses = "MinMemoryNode"
    own = recoverer(gate, tmp_path)
    assert [one.problem for one in own.round()] == ["Access/permission denied"]
    assert [one.problem for one in own.round()] == ["Access/permission denied"]
    gate.refuses = ""
    assert [one.problem for one in recoverer(gate, tmp_path).round()] == [""]
    assert_back(gate)
    [file] = tmp_path.glob("recoveries-*.jsonl")
    assert len(file.read_text(encoding="utf-8").splitlines()) == 2, "that it was begun, and that it is back"


def test_recovery_of_one_job_goes_on_with_what_another_process_has_begun(tmp_path: Path) -> None:
    gate = Controller(failed())
    gate.refuses = "release"
    recoverer(gate, tmp_path).round()
    gate.refuses = ""
    assert [one.problem for one in recoverer(gate, tmp_path).one(7, 60.0)] == [""]
    [file] = tmp_path.glob("recoveries-*.jsonl")
    assert len(file.read_text(encoding="utf-8").splitlines()) == 2, "that it was begun, and that it is back"


def test_a_job_is_left_for_the_next_round_if_slurmctld_is_silent(tmp_path: Path) -> None:
    gate = Controller(failed())

    def silent(_: int) -> None:
        raise SlurmError("slurmctld does not answer; check that it runs")

    gate.before_write = silent
    own = recoverer(gate, tmp_path)
    with pytest.raises(SlurmError):
        own.round()
    gate.before_write = lambda _: None
    own.round()
    assert_back(gate)


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        (errno.ENOSPC, "free some space there"),
        (errno.EDQUOT, "free some space there"),
        (errno.EROFS, "let the systemd unit write there with ReadWritePaths="),
        (errno.EACCES, "set recovery.directory to"),
    ],
)
def test_a_disk_that_refuses_is_reported_with_a_remedy(
    refusal: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no job is requeued without an entry in the journal."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    gate = Controller(failed())
    monkeypatch.setattr("slurm_plugin.recovery.journal.append_line", refuse)
    with pytest.raises(ServiceError, match=f"{os.strerror(refusal)}; {remedy}"):
        recoverer(gate, tmp_path).round()
    assert gate.writes == []


def test_a_journal_that_cannot_be_listed_is_reported_in_one_line(tmp_path: Path) -> None:
    """The same holds for a journal that is closed to a user who runs a dry run."""
    folder = tmp_path / "recovery"
    folder.touch()
    with pytest.raises(StoreError, match=f"cannot read {folder}: Not a directory; run this as"):
        recoverer(Controller(failed()), folder, apply=False).round()
    with pytest.raises(ServiceError, match=f"cannot write to {folder}: "):
        recoverer(Controller(failed()), folder).round()


def test_a_job_that_vanishes_after_its_recovery_began_is_owed_its_hours(tmp_path: Path) -> None:
    gate = Controller(failed())
    gate.refuses = "MinMemoryNode"
    recoverer(gate, tmp_path).round()
    gate.run = None
    assert recoverer(gate, tmp_path).round() == []
    assert [(entry.what, entry.why) for entry in entries(tmp_path)] == [("lost", requeuing.GONE)]


def test_a_job_with_the_id_of_one_whose_recovery_began_comes_back_too(tmp_path: Path) -> None:
    """After a cold start slurmctld counts from the first id again."""
    gate = Controller(failed())
    gate.refuses = "MinMemoryNode"
    recoverer(gate, tmp_path).round()
    own = Controller(failed(admin_comment=token(id="of another")))
    assert [one.problem for one in recoverer(own, tmp_path).round()] == [""]
    assert_back(own)
    assert [(entry.what, entry.why) for entry in entries(tmp_path)] == [
        ("lost", requeuing.GONE),
        ("requeued", ""),
    ]


def test_a_job_with_the_id_of_one_that_came_back_is_not_taken_for_it(tmp_path: Path) -> None:
    recoverer(Controller(failed()), tmp_path).round()
    comment = token(id="other")
    own = Controller(failed("PENDING", held=True, reason=HELD_AGAIN, restarts=1, admin_comment=comment))
    own.dependents = [Dependent(job_id=9, uid=1001, dependency="afterok:7(failed)")]
    assert recoverer(own, tmp_path).round() == []
    assert [(entry.what, entry.why) for entry in entries(tmp_path)] == [("requeued", "")]
    assert [job.dependency for job in own.dependents] == ["afterok:7(failed)"]


def test_recovery_of_one_job_waits_until_it_has_ended(tmp_path: Path) -> None:
    ended = failed()
    gate = Controller(
        msgspec.structs.replace(ended, job=msgspec.structs.replace(ended.job, state="COMPLETING"))
    )
    looks: list[int] = []
    seen = gate.failed

    def look(job_id: int) -> Failed | None:
        looks.append(job_id)
        if len(looks) == 3:
            gate.run = ended
        return seen(job_id)

    gate.failed = look  # type: ignore[method-assign]
    gate.dependents = [Dependent(job_id=9, uid=1001, dependency="afterok:7(failed)")]
    assert [one.problem for one in recoverer(gate, tmp_path).one(7, 60.0)] == [""]
    assert_back(gate)
    assert [job.dependency for job in gate.dependents] == ["afterok:7"]


def test_a_job_that_waits_for_a_task_of_an_array_that_waits_again_waits_again_too(tmp_path: Path) -> None:
    gate = Controller(failed())
    gate.dependents = [
        Dependent(job_id=11, uid=1001, dependency="afterok:7(failed)", tasks="1-2", cancelled=True),
        Dependent(job_id=12, uid=1001, dependency="afterok:11_2(failed)", cancelled=True),
        Dependent(job_id=13, uid=1001, dependency="afterok:11_3(failed)", cancelled=True),
    ]
    recoverer(gate, tmp_path).round()
    assert [job.dependency for job in gate.dependents] == [
        "afterok:7",
        "afterok:11_2",
        "afterok:11_3(failed)",
    ]


def test_a_dependent_that_waited_again_and_is_gone_lets_no_other_wait_on(tmp_path: Path) -> None:
    gate = Controller(failed())
    gate.dependents = [Dependent(job_id=11, uid=1001, dependency="afterok:7(failed)", cancelled=True)]
    own = recoverer(gate, tmp_path)
    own.round()
    assert [job.dependency for job in gate.dependents] == ["afterok:7"]
    # slurmctld has forgotten it, and what it no longer shows may have failed by itself.
    gate.dependents = [Dependent(job_id=12, uid=1001, dependency="afterok:11(failed)")]
    gate.run = failed(job_id=8)
    assert [one.problem for one in own.round()] == [""]
    assert [job.dependency for job in gate.dependents] == ["afterok:11(failed)"]


def test_recovery_of_one_job_that_does_not_end_gives_up(tmp_path: Path) -> None:
    gate = Controller(failed("COMPLETING"))
    assert recoverer(gate, tmp_path).one(7, 0.0) == []
    assert gate.writes == []


def test_a_job_that_slurmctld_has_forgotten_is_none_of_ours(tmp_path: Path) -> None:
    assert recoverer(Controller(failed()), tmp_path).one(8, 60.0) == []


def test_a_line_cut_off_swallows_no_other_and_old_days_are_not_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entry = Entry(
        job_id=1, restarts=0, what="begun", time_s=1e9, cause="killed", user="ann", decision_id="d1"
    )
    journal.append(entry)
    [file] = tmp_path.glob("recoveries-*.jsonl")
    file.write_bytes(file.read_bytes() + b'{"job_id":2,')
    journal.append(msgspec.structs.replace(entry, what="requeued"))
    assert [one.what for one in journal.newest().values()] == ["requeued"]
    assert journal.newest(1e9 + 2 * LOOKED_BACK_S) == {}


def test_only_outputs_of_cut_jobs_without_another_reason_are_read(tmp_path: Path) -> None:
    read: list[int] = []

    def said_by(run: Failed) -> Said:
        read.append(run.job.job_id)
        return "said_no_memory"

    def left(run: Failed) -> list[Outcome]:
        journal = Journal(tmp_path / run.job.state)
        return Recoverer(Controller(run), journal, apply=True, most=9, said_by=said_by).round()

    assert [outcome.run.job.job_id for outcome in left(failed("OUT_OF_MEMORY"))] == [7]
    assert left(failed("FAILED", "1:0", admin_comment="jobstats")) == []
    assert left(failed("TIMEOUT", "0:0", admin_comment="jobstats")) == []
    assert read == []
    assert [outcome.problem for outcome in left(failed("FAILED", "1:0"))] == [""]
    assert read == [7]
    # An idle job may have waited for CPUs; a busy one comes back without its output.
    assert left(msgspec.structs.replace(failed("TIMEOUT", "0:0"), busy_share=0.1)) == []
    assert read == [7, 7]
    busy = msgspec.structs.replace(failed("TIMEOUT", "0:0"), busy_share=0.9)
    assert [outcome.problem for outcome in left(busy)] == [""]
    assert read == [7, 7]


def test_an_output_that_cannot_be_read_says_nothing_and_is_not_read_again(tmp_path: Path) -> None:
    asked: list[int] = []

    def said_by(run: Failed) -> Said:
        asked.append(run.job.job_id)
        raise PermissionError(1, "Operation not permitted")

    own = Recoverer(
        Controller(failed("FAILED", "1:0")), Journal(tmp_path), apply=True, most=9, said_by=said_by
    )
    assert own.round() == own.round() == []
    assert asked == [7]
