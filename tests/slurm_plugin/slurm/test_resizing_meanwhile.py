"""What a resize leaves behind if its job starts in the middle of it. slurmctld's messages are captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from slurm_plugin.slurm import resizing
from slurm_plugin.slurm.queue import Resize
from slurm_plugin.slurm.snapshot import QueuedJob
from tests.slurm_plugin.slurm.queued import waiting

OLD, NEW = "old token", "new token"
ARRAY = waiting(1, array_job_id=1, array_tasks="7-12", tasks=6, mem_per_node_mib=8000, admin_comment=OLD)
SINGLE = waiting(2, mem_per_node_mib=8000, admin_comment=OLD)


def resize_while(job: QueuedJob, complaint: str, after: QueuedJob | None) -> tuple[str, list[str]]:
    """Resize a job while slurmctld complains like this; return the problem, and the comments written, by job."""
    change = Resize(
        job_id=job.job_id, uid=job.uid, num_tasks=1, reason="", mem_per_node_mib=500, admin_comment=NEW
    )
    records, written = iter([job, after]), list[str]()

    def update(words: Sequence[str]) -> str:
        if words[-1].startswith("AdminComment="):
            written.append(" ".join(words[-2:]))
            return ""
        return complaint

    found = resizing.resize(change, lambda _job_id: next(records), update)
    return found.problem, written


@pytest.mark.parametrize(
    "changed",
    [
        {"mem_per_node_mib": 16_000},
        {"cpus_per_task": 8, "min_cpus": 8},
        {"min_cpus": 8},
        {"comment": "rightsize=off"},
    ],
)
def test_what_a_user_changes_after_the_queue_was_read_is_not_overwritten(changed: dict[str, Any]) -> None:
    change = Resize(
        job_id=2, uid=SINGLE.uid, num_tasks=1, reason="", mem_per_node_mib=500, admin_comment=NEW, seen=SINGLE
    )
    now, written = msgspec.structs.replace(SINGLE, **changed), list[Sequence[str]]()

    def update(words: Sequence[str]) -> str:
        written.append(words)
        return ""

    assert resizing.resize(change, lambda _: now, update).problem == resizing.CHANGED
    assert not written


@pytest.mark.parametrize(
    "complaint",
    [
        "1_7-8: Job is no longer pending execution; 1_9-12: No error",
        "1_[7-8]: Job is no longer pending execution",
    ],
)
def test_tasks_that_started_in_between_get_their_old_comment_back(complaint: str) -> None:
    after = msgspec.structs.replace(
        ARRAY, array_tasks="9-12", tasks=4, mem_per_node_mib=500, admin_comment=NEW
    )
    problem, written = resize_while(ARRAY, complaint, after)
    assert problem == ""
    assert written == [f"JobId=1_[7-12] AdminComment={NEW}", f"JobId=1_[7-8] AdminComment={OLD}"]


def test_a_job_cancelled_in_between_is_gone_and_nothing_more_is_written() -> None:
    assert resize_while(SINGLE, "", None) == ("gone", [f"JobId=2 AdminComment={NEW}"])
