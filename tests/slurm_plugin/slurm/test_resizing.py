"""A resize is done completely or not at all, whatever slurmctld answers, in the user's and in an operator's name."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from slurm_plugin.slurm.queue import Resize
from slurm_plugin.slurm.resizing import has, resize, said
from slurm_plugin.slurm.snapshot import QueuedJob
from tests.slurm_plugin.slurm.queued import waiting

JOB = waiting(
    7, uid=1000, cpus=16, num_tasks=2, cpus_per_task=8, min_cpus_per_node=16, mem_mib=4000, mem_per_node_mib=4000,
    admin_comment="old",
)  # fmt: skip
WANTED = Resize(
    job_id=7,
    uid=1000,
    num_tasks=2,
    reason="test",
    cpus_per_task=2,
    mem_per_node_mib=500,
    admin_comment="new token",
)
PER_CPU = msgspec.structs.replace(JOB, mem_per_node_mib=None, mem_per_cpu_mib=250)


@dataclass
class Controller:
    """One job in slurmctld 26.05; it takes the updates that this project sends and no others.

    `refuses` are fields whose updates it refuses, `ignores` those whose updates it accepts but does not keep. The job
    starts after `start_after` updates; after that only its memory can still be changed.
    """

    job: QueuedJob | None = JOB
    refuses: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    start_after: int | None = None
    sent: list[tuple[str, ...]] = field(default_factory=list)

    def record(self, job_id: int) -> QueuedJob | None:
        """Return the job."""
        assert job_id == 7
        return self.job

    def update(self, words: Sequence[str]) -> str:
        """Execute an update, or complain."""
        self.sent.append(tuple(words))
        assert self.job is not None
        fields = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("--"))
        assert fields.pop("JobId") == "7"
        assert ("AdminComment" in fields) != (words[0] == "--uid=1000")
        if refused := [name for name in fields if name in self.refuses]:
            return f"{refused[0]}: Access/permission denied"
        if not self.job.waits and fields.keys() - {"AdminComment", "MinMemoryNode"}:
            return "Job is no longer pending execution"
        changed: dict[str, Any] = {}
        for name, value in fields.items():
            if name not in self.ignores:
                changed |= self._field(name, value)
        self.job = msgspec.structs.replace(self.job, **changed)
        if self.start_after == len(self.sent):
            self.job = msgspec.structs.replace(self.job, state="RUNNING")
        return ""

    def _field(self, name: str, value: str) -> dict[str, Any]:
        known = {
            "AdminComment": {"admin_comment": value},
            "CPUsPerTask": {"cpus_per_task": value},
            "NumCPUs": {"cpus": value},
            "MinCPUsNode": {"min_cpus_per_node": value},
            "TresPerTask": {"tres_per_task": value},
            "MinMemoryNode": {"mem_per_node_mib": value, "mem_mib": value},
            "MinMemoryCPU": {"mem_per_cpu_mib": value},
        }
        texts = ("admin_comment", "tres_per_task")
        return {key: one if key in texts else int(one) for key, one in known[name].items()}


def test_every_part_is_changed_in_the_name_of_the_right_user() -> None:
    controller = Controller()
    assert resize(WANTED, controller.record, controller.update).problem == ""
    assert controller.sent == [
        ("update", "JobId=7", "AdminComment=new token"),
        (
            "--uid=1000",
            "update",
            "JobId=7",
            "MinMemoryNode=500",
            "CPUsPerTask=2",
            "NumCPUs=4",
            "MinCPUsNode=4",
        ),
    ]


def test_fields_that_do_not_change_are_not_sent() -> None:
    controller = Controller()
    wanted = msgspec.structs.replace(WANTED, mem_per_node_mib=None, admin_comment=None)
    assert resize(wanted, controller.record, controller.update).problem == ""
    assert controller.sent == [
        ("--uid=1000", "update", "JobId=7", "CPUsPerTask=2", "NumCPUs=4", "MinCPUsNode=4")
    ]


@pytest.mark.parametrize(
    ("stands", "becomes"),
    [("cpu=8", "cpu=2"), ("cpu=8,gres/gpu:a100=1", "cpu=2,gres/gpu:a100=1"), ("gres/gpu=1", "gres/gpu=1")],
)
def test_cpus_in_the_tres_of_a_task_change_with_the_cpus_per_task(stands: str, becomes: str) -> None:
    controller = Controller(job=msgspec.structs.replace(JOB, tres_per_task=stands))
    assert resize(WANTED, controller.record, controller.update).problem == ""
    assert controller.job is not None
    assert controller.job.tres_per_task == becomes
    assert any("TresPerTask" in word for word in controller.sent[1]) == (stands != becomes)
    not_kept = Controller(job=msgspec.structs.replace(JOB, tres_per_task=stands), ignores=("NumCPUs",))
    assert resize(WANTED, not_kept.record, not_kept.update).problem == "not kept"
    assert not_kept.job == msgspec.structs.replace(JOB, tres_per_task=stands)


def test_a_memory_share_that_slurm_splits_at_its_limit_counts_as_kept() -> None:
    wanted = msgspec.structs.replace(WANTED, mem_per_node_mib=None, mem_per_cpu_mib=4500)
    split = msgspec.structs.replace(PER_CPU, cpus_per_task=6, mem_per_cpu_mib=1500, admin_comment="new token")
    assert has(split, wanted)
    assert not has(msgspec.structs.replace(split, admin_comment="old"), wanted)
    assert not has(msgspec.structs.replace(split, mem_per_cpu_mib=1499), wanted)
    assert not has(msgspec.structs.replace(split, cpus_per_task=7), wanted)
    # Slurm does not change memory per node.
    assert not has(JOB, WANTED)


def test_memory_per_cpu_is_changed_and_restored_in_its_own_form() -> None:
    wanted = msgspec.structs.replace(WANTED, cpus_per_task=None, mem_per_node_mib=None, mem_per_cpu_mib=100)
    controller = Controller(job=PER_CPU)
    assert resize(wanted, controller.record, controller.update).problem == ""
    assert controller.sent[1:] == [("--uid=1000", "update", "JobId=7", "MinMemoryCPU=100", "CPUsPerTask=8")]
    cpus_alone_stay = Controller(job=PER_CPU, ignores=("NumCPUs",))
    wanted = msgspec.structs.replace(wanted, cpus_per_task=2)
    assert resize(wanted, cpus_alone_stay.record, cpus_alone_stay.update).problem == "not kept"
    assert cpus_alone_stay.job == PER_CPU


@pytest.mark.parametrize(
    ("controller", "problem"),
    [
        (Controller(refuses=("AdminComment",)), "denied"),
        (Controller(refuses=("MinMemoryNode",)), "denied"),
        (Controller(ignores=("NumCPUs",)), "not kept"),
        (Controller(ignores=("MinMemoryNode",)), "not kept"),
    ],
)
def test_a_resize_that_fails_or_is_not_kept_leaves_the_job_as_it_was(
    controller: Controller, problem: str
) -> None:
    assert problem in resize(WANTED, controller.record, controller.update).problem
    assert controller.job == JOB


def test_the_memory_of_a_job_that_has_just_started_is_not_cut() -> None:
    controller = Controller(start_after=1)
    memory_alone = msgspec.structs.replace(WANTED, cpus_per_task=None)
    assert "no longer pending" in resize(memory_alone, controller.record, controller.update).problem
    assert controller.job == msgspec.structs.replace(JOB, state="RUNNING")


@pytest.mark.parametrize(
    ("job", "change", "problem"),
    [
        (None, WANTED, "gone"),
        (msgspec.structs.replace(JOB, state="RUNNING"), WANTED, "started"),
        (msgspec.structs.replace(JOB, uid=1001), WANTED, "belongs to user 1001, not 1000"),
        (msgspec.structs.replace(JOB, num_tasks=3), WANTED, "has 3 tasks, not 2"),
        (
            msgspec.structs.replace(JOB, held=True, reason="job_requeued_in_held_state"),
            WANTED,
            "was queued again and is held",
        ),
        (
            msgspec.structs.replace(JOB, admin_comment="old;recovery=out_of_memory:0"),
            msgspec.structs.replace(WANTED, before="old"),
            "has another admin comment meanwhile",
        ),
        (
            PER_CPU,
            WANTED,
            "asks for memory per CPU, not per node",
        ),
        (
            JOB,
            msgspec.structs.replace(WANTED, mem_per_node_mib=None, mem_per_cpu_mib=100),
            "asks for memory per node, not per CPU",
        ),
        (
            JOB,
            msgspec.structs.replace(WANTED, cpus_per_task=8, mem_per_node_mib=4000),
            "is that size already",
        ),
    ],
)
def test_a_resize_that_is_impossible_is_not_begun(
    job: QueuedJob | None, change: Resize, problem: str
) -> None:
    controller = Controller(job=job)
    assert resize(change, controller.record, controller.update).problem == problem
    assert controller.sent == []


def test_a_job_that_starts_meanwhile_keeps_its_size_and_its_comment() -> None:
    controller = Controller(start_after=1)
    assert "no longer pending" in resize(WANTED, controller.record, controller.update).problem
    assert controller.job == msgspec.structs.replace(JOB, state="RUNNING")


def test_a_job_that_starts_with_its_new_size_counts_as_resized() -> None:
    controller = Controller(start_after=2)
    assert resize(WANTED, controller.record, controller.update).problem == ""
    assert controller.job is not None
    assert (controller.job.state, controller.job.cpus_per_task) == ("RUNNING", 2)
    assert controller.job.admin_comment == "new token"
    # Its node may allocate whole cores.
    assert has(msgspec.structs.replace(controller.job, cpus=6), WANTED)


def test_a_job_that_starts_with_part_of_its_new_size_keeps_that_and_its_old_comment() -> None:
    controller = Controller(start_after=2, ignores=("CPUsPerTask",))
    assert resize(WANTED, controller.record, controller.update).problem == "started"
    assert controller.job is not None
    assert (controller.job.admin_comment, controller.job.mem_per_node_mib) == ("old", 500)
    assert len(controller.sent) == 3


def test_tasks_that_have_started_do_not_count_as_a_failure_of_the_array() -> None:
    assert (
        said("7_1: Job is no longer pending execution; 7_2-3: Job/step already completing or completed") == ""
    )
    assert said("7_1: Job is no longer pending execution; 7_4: Access/permission denied") == (
        "7_4: Access/permission denied"
    )
    assert said("Job is no longer pending execution") == "Job is no longer pending execution"
