"""What is asked for if partitions accept only some accounts or groups."""

from __future__ import annotations

import os
import pwd

import pytest

from accounting.errors import SlurmError
from slurm_plugin.slurm import last_told, scontrol_queue
from slurm_plugin.slurm.partition_access import accounts_are_inherited, user_groups
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
from slurm_plugin.slurm.snapshot import PartitionState
from tests.slurm_plugin.slurm.queued import waiting

CONFIG = "ClusterName             = alpha\nSLURM_VERSION           = {}\n"
PARTITIONS = (PartitionState(name="batch"), PartitionState(name="own", groups=("staff",)))


@pytest.mark.parametrize(("release", "inherited"), [("22.05.8", False), ("23.02.0", True), ("26.05.1", True)])
def test_from_which_release_on_child_accounts_count(release: str, inherited: bool) -> None:
    assert accounts_are_inherited(CONFIG.format(release)) is inherited


def test_the_groups_of_users_are_asked_for_only_if_they_matter() -> None:
    me = pwd.getpwuid(65534)
    several = waiting(1, user=me.pw_name, uid=me.pw_uid, partitions=("batch", "own"))
    assert me.pw_name in user_groups([several], PARTITIONS)
    alone = waiting(1, user=me.pw_name, uid=me.pw_uid, partitions=("own",))
    assert user_groups([alone], PARTITIONS) == {}
    # Slurm checks no groups of root, and a user unknown on this host may be in any group.
    others = [waiting(2, user="root", uid=0, partitions=("batch", "own"))]
    others.append(waiting(3, user=f"nobody-{os.getpid()}", partitions=("batch", "own")))
    assert user_groups(others, PARTITIONS) == {}


def test_parent_accounts_are_asked_for_only_if_they_matter_and_then_remembered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = list[tuple[str, ...]]()
    said = {
        "accounts": "physics|||root||||||\nlasers|||physics||||||\n",
        "partition": "PartitionName=batch\n",
    }

    def ask(*command: str, **_: float) -> str:
        asked.append(command)
        if command[0] != "sacctmgr":
            return {"config": CONFIG.format("24.11.5"), **said}.get(command[-1], "")
        if not said["accounts"]:
            raise SlurmError("slurmdbd is away")
        return said["accounts"]

    queue = ScontrolQueue()
    monkeypatch.setattr(scontrol_queue, "_ask", ask)
    monkeypatch.setattr(last_told, "LASTS_S", 0.0)
    monkeypatch.setattr(queue, "_jobs", lambda: [waiting(1, partitions=("batch", "own"))])
    assert queue.read().account_parents == {}
    assert "sacctmgr" not in {command[0] for command in asked}
    said["partition"] += "PartitionName=own AllowAccounts=physics\n"
    known = {"physics": "root", "lasers": "physics"}
    assert queue.read().account_parents == known
    (accounts,) = (command for command in asked if command[0] == "sacctmgr")
    assert accounts[-2:] == ("cluster=alpha", "user=")
    said["accounts"] = ""
    assert [queue.read().account_parents for _ in range(2)] == [known, known]
    assert len(caplog.records) == 1
