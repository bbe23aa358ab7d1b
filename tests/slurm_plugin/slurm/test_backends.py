"""How the queue is read: a backend that is tried runs no code of other users."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from accounting.errors import SlurmError
from models.past.job_names import normal_name
from slurm_plugin.slurm import backends, last_told, scontrol_queue
from slurm_plugin.slurm.backends import may_have_gpus, open_queue, why_no_pyslurm
from slurm_plugin.slurm.command import run
from slurm_plugin.slurm.nodes import read_nodes
from slurm_plugin.slurm.running import count_running
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
from slurm_plugin.slurm.snapshot import QosState
from tests.builders import executable


def test_a_pyslurm_in_the_working_directory_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = why_no_pyslurm()
    (tmp_path / "pyslurm.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert why_no_pyslurm() == before
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("script", "left_to_scontrol"),
    [
        ("echo 'GresTypes               = gpu,shard'", True),
        ("echo 'GresTypes               = nic'", False),
        ("echo 'GresTypes               = (null)'", False),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", True),
    ],
)
def test_a_cluster_that_may_have_gpus_is_left_to_scontrol(
    script: str, left_to_scontrol: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "scontrol", f"#!/bin/sh\n{script}\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert may_have_gpus() is left_to_scontrol


@pytest.mark.parametrize(
    ("complaint", "gpus", "name"),
    [("", False, "pyslurm"), ("", True, "scontrol"), ("25.05.1 is not 25.11", False, "scontrol")],
)
def test_the_backend_is_pyslurm_only_where_it_imports_and_there_are_no_gpus(
    complaint: str, gpus: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "why_no_pyslurm", lambda: complaint)
    monkeypatch.setattr(backends, "may_have_gpus", lambda: gpus)
    # Without pyslurm, the module that uses it cannot be imported.
    chosen = type("PyslurmQueue", (), {"name": "pyslurm"})
    monkeypatch.setitem(
        sys.modules,
        "slurm_plugin.slurm.pyslurm_queue",
        cast("ModuleType", SimpleNamespace(PyslurmQueue=chosen)),
    )
    assert open_queue("auto").name == name


@pytest.mark.parametrize(("release", "complaint"), [("25.05.1", "25.05.1 is not 25.11"), ("25.11.2", "")])
def test_another_release_of_pyslurm_is_not_used(
    release: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyslurm.py").write_text(f"__version__ = {release!r}\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert why_no_pyslurm() == complaint


def test_a_command_that_hangs_is_not_taken_for_a_missing_one() -> None:
    with pytest.raises(SlurmError, match=r"sleep did not answer within 0\.05 s; check that slurmctld"):
        run("sleep", "60", patience_s=0.05)
    with pytest.raises(SlurmError, match=r"cannot run no-such-squeue: .*; put Slurm's commands on the PATH"):
        run("no-such-squeue")


def test_what_a_command_said_before_it_hung_is_told(tmp_path: Path) -> None:
    """Slurm's commands look for a slurm.conf that is not there for a minute, and say so at once."""
    said = (
        "scontrol: error: s_p_parse_file: cannot stat file /s/slurm.conf: No such file or directory, retrying"
    )
    scontrol = executable(tmp_path / "scontrol", f"#!/bin/sh\necho '{said}' >&2\nexec sleep 60\n")
    with pytest.raises(SlurmError, match=rf"did not answer within 1 s \({said}\); check that slurmctld"):
        run(str(scontrol), "show", "config", patience_s=1.0)


@pytest.mark.parametrize(
    ("complaint", "fix"),
    [
        ("slurm_load_node error: Access/permission denied", "PrivateData.*as SlurmUser or an operator"),
        ("slurm_load_node error: Unable to contact slurm controller", "check that slurmctld"),
    ],
)
def test_hidden_data_is_not_taken_for_a_daemon_that_is_down(complaint: str, fix: str, tmp_path: Path) -> None:
    scontrol = executable(tmp_path / "scontrol", f"#!/bin/sh\necho '{complaint}' >&2\nexit 1\n")
    with pytest.raises(SlurmError, match=f"{complaint}; .*{fix}"):
        run(str(scontrol), "show", "node")


def test_slurms_output_is_read_alike_in_every_locale() -> None:
    code = (
        "import sys\n"
        "from slurm_plugin.slurm.command import run\n"
        "sys.stdout.buffer.write(run('printf', r'Gr\\303\\266\\303\\237e').encode())\n"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    said = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **ascii_only}, capture_output=True, check=True
    )
    assert said.stdout.decode() == "Größe"


@pytest.mark.parametrize(("kind", "shown"), [("basic", {}), ("multifactor", {7: 40})])
def test_factors_are_asked_for_only_if_slurm_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, shown: dict[int, int]
) -> None:
    executable(tmp_path / "scontrol", f"#!/bin/sh\necho 'PriorityType            = priority/{kind}'\n")
    fails = "echo \"Only 'priority/multifactor' is supported.\" >&2; exit 1\n"
    prints = "echo '7|40|0.5|0.1'\n"
    executable(tmp_path / "sprio", f"#!/bin/sh\n{fails if kind == 'basic' else prints}")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert ScontrolQueue().site_factors() == shown


def test_jobs_and_nodes_of_hidden_partitions_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As for everybody who is not an operator: Slurm hides their jobs and nodes unless --all is given.
    for name, line in (
        ("squeue", "train-7"),
        ("scontrol", "NodeName=n1 CPUTot=4 RealMemory=8000 State=IDLE"),
    ):
        executable(tmp_path / name, f'#!/bin/sh\ncase " $* " in *" --all "*) echo "{line}" ;; esac\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert count_running("ann", normal_name("train-7")) == 1
    assert [node.count for node in read_nodes().nodes] == [1]


def test_a_configuration_counts_even_if_the_ping_after_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "ClusterName             = alpha\n\nSlurmctld(primary) at head is DOWN\n"
    # 26.05 ends like this for a user whom slurmctld throttles.
    executable(tmp_path / "scontrol", f"#!/bin/sh\nprintf '{told}'\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert ScontrolQueue().cluster() == "alpha"
    executable(tmp_path / "scontrol", f"#!/bin/sh\nprintf '{told}'\necho lost >&2\nexit 1\n")
    with pytest.raises(SlurmError, match="scontrol failed: lost"):
        ScontrolQueue().cluster()
    executable(tmp_path / "scontrol", "#!/bin/sh\necho 'ClusterName             = alpha'\nexit 1\n")
    with pytest.raises(SlurmError, match="scontrol failed: no message"):
        ScontrolQueue().cluster()


def test_the_rest_of_a_budget_is_asked_only_for_associations_that_have_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = "AccountingStorageEnforce = associations,limits\nClusterName = c\n"
    told = {
        "qos": "normal||cluster|||1.000000||||||||||||\nq0||cluster|||1.000000|||||||||||cpu=9|\n",
        "association": "a0|||root|||||cpu=20|\nb0|||a0||||||\nb0|ann||||||||01:00:00\nc0|bob||||||||\n",
        "flags=assoc": "Account=a0 UserName= Partition= GrpWall=N(0.00) GrpTRESMins=cpu=20(12)\n",
        "flags=qos": "QOS=q0(2) GrpWall=N(0.00) GrpTRESMins=cpu=9(9)\n",
    }
    asked = list[tuple[str, ...]]()

    def ask(*command: str, **_: float) -> str:
        if command[3:4] == ("assoc_mgr",):
            asked.append(command[4:])
            if not told["flags=assoc"]:
                raise SlurmError("it is nobody's business")
        key = command[4] if command[0] == "sacctmgr" else command[-1]
        return config if key == "config" else told.get(key, "")

    monkeypatch.setattr(scontrol_queue, "_ask", ask)
    queue = ScontrolQueue()
    assert queue.read().left == {"account a0": {"cpu Mins": 8}, "qos q0": {"cpu Mins": 0}}
    assert asked == [("accounts=a0,b0", "users=ann", "flags=assoc"), ("qos=q0", "flags=qos")]
    told["flags=assoc"] = ""
    assert [queue.read().left for _ in range(2)] == [{}, {}]
    (record,) = caplog.records
    assert record.getMessage() == "what is left of budgets of time is not known: it is nobody's business"


def test_which_qos_preempts_which_is_asked_only_if_it_matters_and_then_remembered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = {
        "config": "PreemptType             = preempt/qos\nPreemptMode             = REQUEUE\n",
        "qos": "urgent|normal|cluster|||1.000000||||||||||||\n",
    }
    asked = list[str]()

    def ask(*command: str, **_: float) -> str:
        asked.append(command[0])
        if command[0] == "sacctmgr" and not said["qos"]:
            raise SlurmError("slurmdbd is away")
        return said.get("qos" if command[0] == "sacctmgr" else command[-1], "")

    monkeypatch.setattr(scontrol_queue, "_ask", ask)
    monkeypatch.setattr(last_told, "LASTS_S", 0.0)
    queue = ScontrolQueue()
    known = {"urgent": QosState(preempts=frozenset({"normal"}))}
    assert queue.read().qos == known
    said["qos"] = ""
    assert [queue.read().qos for _ in range(2)] == [known, known]
    # A watching advisor reads once a minute.
    assert [record.getMessage() for record in caplog.records] == [
        "what QOS allow and preempt is not known anew: slurmdbd is away"
    ]
    said["config"] = said["config"].replace("qos", "partition_prio")
    asked.clear()
    assert queue.read().qos == {}
    assert "sacctmgr" not in asked
