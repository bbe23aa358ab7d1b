"""A job's partitions are changed in its user's name, if the job is as it was, and noted so that undo is possible."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from slurm_plugin.slurm.gateway import DRY_RUN, Gateway
from slurm_plugin.slurm.lease import Clock
from slurm_plugin.slurm.listed_by_us import Listed, added, by_us, still_there, without
from slurm_plugin.slurm.queue import Relist
from slurm_plugin.slurm.relisting import relist
from slurm_plugin.slurm.snapshot import QueuedJob
from tests.slurm_plugin.slurm.gates import gate
from tests.slurm_plugin.slurm.memory_queue import Killed, MemoryQueue
from tests.slurm_plugin.slurm.queued import waiting

JOB = waiting(7, uid=1000)
WANTED = Relist(job_id=7, uid=1000, before=("batch",), after=("batch", "lent"), reason="test", added="lent")
BACK = Relist(job_id=7, uid=1000, before=("batch", "lent"), after=("batch",), reason="test")

pytestmark = pytest.mark.usefixtures("quick_disk")


class Controller:
    """One job in slurmctld, and the commands it received; it may complain, or not keep a change that it accepts."""

    def __init__(
        self,
        job: QueuedJob | None,
        complaint: str = "",
        *,
        keeps: bool = True,
        closed: frozenset[str] = frozenset(),
    ) -> None:
        self.job, self.complaint, self.keeps, self.closed = job, complaint, keeps, closed
        self.told: list[Sequence[str]] = []

    def record(self, _job_id: int) -> QueuedJob | None:
        return self.job

    def update(self, words: Sequence[str]) -> str:
        self.told.append(words)
        if self.job is not None and self.keeps and not self.complaint:
            listed = words[-1].removeprefix("Partition=").split(",")
            names = tuple(name for name in listed if name not in self.closed)
            self.job = msgspec.structs.replace(self.job, partitions=names)
        return self.complaint

    def relist(self, change: Relist) -> str:
        return relist(change, self.record, self.update, lambda: self.closed).problem


def test_partitions_are_changed_in_the_name_of_the_user() -> None:
    slurm = Controller(JOB)
    assert slurm.relist(WANTED) == ""
    assert slurm.told == [["--uid=1000", "update", "JobId=7", "Partition=batch,lent"]]
    # A job that was preempted lists first the partition in which it ran.
    slurm.job = msgspec.structs.replace(JOB, partitions=("lent", "batch"))
    assert slurm.relist(BACK) == ""
    assert slurm.job is not None
    assert slurm.job.partitions == ("batch",)


@pytest.mark.parametrize(
    ("slurm", "problem"),
    [
        (Controller(None), "gone"),
        (Controller(msgspec.structs.replace(JOB, state="RUNNING")), "started"),
        (Controller(waiting(7, uid=1001)), "belongs to user 1001, not 1000"),
        (Controller(waiting(7, uid=1000, partitions=("gpu",))), "lists gpu meanwhile"),
        (Controller(JOB, "Invalid account"), "Invalid account"),
        (Controller(JOB, keeps=False), "not kept"),
    ],
)
def test_a_change_that_is_impossible_has_a_reason(slurm: Controller, problem: str) -> None:
    assert slurm.relist(WANTED) == problem


def test_no_list_is_written_from_which_slurmctld_would_drop_a_partition() -> None:
    slurm = Controller(JOB, closed=frozenset({"batch"}))
    assert "batch takes no new jobs now" in slurm.relist(WANTED)
    assert slurm.told == []
    both = msgspec.structs.replace(JOB, partitions=("batch", "big", "lent"))
    slurm = Controller(both, closed=frozenset({"big", "lent"}))
    back = msgspec.structs.replace(BACK, before=both.partitions, after=("batch", "big"))
    assert "big takes no new jobs now" in slurm.relist(back)
    assert slurm.job == both
    slurm.closed = frozenset({"lent"})
    assert slurm.relist(back) == ""


def of_queue(folder: Path, *, apply: bool = True) -> tuple[MemoryQueue, Gateway]:
    queue = MemoryQueue({7: 0, 8: 0})
    gateway = gate(queue, folder, apply=apply)
    gateway.read()
    return queue, gateway


def test_undo_removes_only_the_partition_that_we_added(tmp_path: Path) -> None:
    queue, gateway = of_queue(tmp_path)
    queue.partitions[8] = ("batch", "lent")
    assert gateway.relist(WANTED).problem == ""
    gateway.read()
    assert gateway.listed_by_us() == {7: "lent"}
    assert [one.job_id for one in gateway.undo()] == [7]
    assert queue.partitions == {7: ("batch",), 8: ("batch", "lent")}
    # From now on it is the user's own request.
    queue.partitions[7] = ("batch", "lent")
    gateway.read()
    assert gateway.listed_by_us() == {}


def test_a_refused_change_is_not_ours(tmp_path: Path) -> None:
    queue, gateway = of_queue(tmp_path)
    queue.refusing[7] = "Invalid account"
    assert gateway.relist(WANTED).problem == "Invalid account"
    queue.partitions[7] = ("batch", "lent")
    gateway.read()
    assert gateway.listed_by_us() == {}


def test_another_process_finds_a_change_that_was_noted_before_it_was_written(tmp_path: Path) -> None:
    queue, gateway = of_queue(tmp_path)
    queue.die_at = 0
    with pytest.raises(Killed):
        gateway.relist(WANTED)
    queue.die_at = None
    other = gate(queue, tmp_path)
    assert [one.job_id for one in other.undo()] == [7]
    assert queue.partitions[7] == ("batch",)


def test_without_apply_nothing_is_changed_or_noted(tmp_path: Path) -> None:
    queue, gateway = of_queue(tmp_path, apply=False)
    assert gateway.relist(WANTED).problem == DRY_RUN
    assert (queue.partitions, gateway.listed_by_us()) == ({}, {})


def test_a_job_id_that_was_given_out_again_is_not_ours() -> None:
    noted = added((), JOB, "lent")
    lists = msgspec.structs.replace(JOB, partitions=("batch", "lent"))
    assert by_us(noted, [lists]) == {7: "lent"}
    assert by_us(noted, [msgspec.structs.replace(lists, submit_s=JOB.submit_s + 1)]) == {}
    preempted = msgspec.structs.replace(lists, submit_s=JOB.submit_s + 1, restarts=1)
    assert by_us(noted, [preempted]) == {7: "lent"}
    assert by_us(noted, [JOB, msgspec.structs.replace(lists, state="RUNNING")]) == {}


def test_a_job_that_its_user_lets_wait_for_the_added_partition_alone_is_not_ours() -> None:
    """Without it, the job would list none, which Slurm refuses: «Invalid partition name» (seen on 22.05)."""
    assert by_us(added((), JOB, "lent"), [msgspec.structs.replace(JOB, partitions=("lent",))]) == {}


def at(since_boot_s: float, time_s: float = 1000.0) -> Clock:
    return Clock(time_s, "boot", since_boot_s)


def test_tasks_of_an_array_list_the_partitions_of_the_array() -> None:
    array = waiting(7, array_job_id=7, array_tasks="2-9", tasks=8)
    task = waiting(9, array_job_id=7, array_tasks="1", partitions=("lent", "batch"), restarts=1)
    noted = added((), array, "lent")
    assert by_us(noted, [array, task]) == {9: "lent"}
    assert without(noted, array) == noted == (Listed(7, "lent", array.submit_s),)
    assert still_there(noted, [task], at(100.0), 60.0) == noted
    assert still_there(noted, [JOB, waiting(8)], at(100.0), 60.0) == noted
    ended = still_there(noted, [waiting(8)], at(100.0), 60.0)
    # It may be requeued until slurmctld has forgotten it.
    assert still_there(ended, [JOB], at(150.0), 60.0) == noted
    assert still_there(ended, [], at(150.0), 60.0) == ended
    assert still_there(ended, [], at(150.0, time_s=99999.0), 60.0) == ended
    assert still_there(ended, [], at(161.0), 60.0) == ()
    assert without(added((), JOB, "lent"), JOB) == ()
