"""The minimum of a QOS, also of one that Slurm gives by default, its maximum, and what nodes have, on every release."""

import os
import pwd
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_plugin.advisor.standing import cpus_must_stay
from slurm_plugin.sandbox.cluster import Sandbox
from slurm_plugin.sandbox.shape import NodeShape, Shape
from slurm_plugin.slurm.release import parse_release
from tests.cluster.conftest import CPUS_STAY, Shell
from tests.cluster.matrix.family import script_of
from tests.cluster.matrix.form import form
from tests.cluster.matrix.prefixes import releases, why_missing
from tests.cluster.matrix.release import Trial, trained_cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RELEASES = releases()
SHAPE = Shape(
    nodes=(NodeShape(),),
    lines=(
        "AccountingStorageEnforce=associations,limits,qos",
        "PartitionName=own Nodes={node[0]}",
        "PartitionName=narrow Nodes={node[0]}",
        "PartitionName=tight Nodes={node[0]} MaxMemPerCPU=1000",
    ),
)
_ADD = ("sacctmgr", "--immediate", "add")
_NAME = pwd.getpwuid(os.geteuid()).pw_name
_USER = (*_ADD, "user", _NAME)
_RESERVE = ("scontrol", "create", "reservation", "StartTime=now", "Duration=60", f"Users={_NAME}")
MOST = {
    "job": "MaxTRESPerJob=cpu=4",
    "user": "MaxTRESPerUser=mem=4000",
    "account": "MaxTRESPerAccount=cpu=4",
    "all": "GrpTRES=cpu=4",
}
# Limits of accounts, for which a QOS refuses jobs that sets none of the same kind itself.
MOST_OF_ACCOUNT = {
    "each": "MaxTRES=cpu=4",
    "together": "GrpTRES=mem=4000",
    "pernode": "MaxTRESPerNode=cpu=4",
    "minutes": "MaxTRESMins=cpu=8",
    "running": "GrpTRESRunMins=cpu=8",
}
COMMANDS = (
    (*_ADD, "qos", "large", "MinTRESPerJob=cpu=4", "Flags=DenyOnLimit"),
    (*_ADD, "qos", "roomy", "MinTRESPerJob=mem=4000", "Flags=DenyOnLimit"),
    # Slurm refuses a job before it counts the CPUs that its memory brings, so this one does not refuse.
    (*_ADD, "qos", "patient", "MinTRESPerJob=cpu=4"),
    *((*_ADD, "qos", name, limit, "Flags=DenyOnLimit") for name, limit in MOST.items()),
    (*_ADD, "qos", "strict", "Flags=DenyOnLimit"),
    (*_ADD, "qos", "wide", "MaxTRESPerJob=cpu=32", "Flags=DenyOnLimit"),
    # They multiply what an account lets a job have.
    *(
        (*_ADD, "qos", name, f"LimitFactor={factor}", "Flags=DenyOnLimit")
        for name, factor in (("half", 0.5), ("triple", 3))
    ),
    (*_ADD, "account", "several", "large", "roomy", "divided"),
    *((*_ADD, "account", name, limit) for name, limit in MOST_OF_ACCOUNT.items()),
    (*_ADD, "account", "below", "parent=together"),
    *(
        (*_USER, f"account={name}", "qos=normal,strict,wide,half,triple")
        for name in (*MOST_OF_ACCOUNT, "below")
    ),
    (*_USER, "account=several", f"qos=normal,large,roomy,patient,{','.join(MOST)}"),
    *((*_USER, f"account={name}", f"qos={name}") for name in ("large", "roomy")),
    (*_USER, "account=divided", "qos=normal"),
    *(
        (*_USER, "account=divided", f"partition={name}", "qos=normal,large", "defaultqos=large")
        for name in ("main", "own")
    ),
    ("scontrol", "update", "PartitionName=own", "QOS=large"),
    ("scontrol", "update", "PartitionName=narrow", "QOS=job"),
    (*_RESERVE, "ReservationName=kept", "PartitionName=own", "CoreCnt=8"),
)
FORMS = (
    form("named", "-A several -q large -c 8 --mem=8000", cpu=4, mem=256),
    form("named-memory", "-A several -q roomy -c 8 --mem=8000", cpu=2, mem=4000),
    # Memory comes with the CPUs.
    form("named-default", "-A several -q roomy -c 8", cpu=4, mem=4000),
    form("named-per-cpu", "-A several -q roomy -c 8 --mem-per-cpu=1000", cpu=4, mem=4000),
    form("of-partition", "-A several -p own -c 8 --mem=8000", cpu=4, mem=256),
    # Its memory brings the CPUs: eight as it is.
    form("brought", "-A several -q patient -p tight --mem=8000", cpu=4, mem=4000),
    # Slurm takes the reservation's partition.
    form("of-reservation", "-A several --reservation=kept -c 8 --mem=8000", cpu=4, mem=256),
    form("not-named", "-A several -c 8 --mem=8000", cpu=2, mem=256),
    # It is the user's only QOS in this account, though not marked as the default.
    form("only-one", "-A large -c 8 --mem=8000", cpu=4, mem=256),
    form("only-one-memory", "-A roomy -c 8 --mem=8000", cpu=2, mem=4000),
    # It is the user's default in the default partition.
    form("default-there", "-A divided -c 8 --mem=8000", cpu=4, mem=256),
    form("default-named-there", "-A divided -p main -c 8 --mem=8000", cpu=4, mem=256),
)
# Slurm refuses these requests as they are.
REFUSED = (
    *(form(f"beyond-{name}", f"-A several -q {name} -c 8 --mem=8000") for name in MOST),
    form("beyond-partition", "-A several -p narrow -c 8 --mem=8000"),
    *(
        form(f"beyond-account-{name}", f"-A {name} -q strict -c 8 --mem=8000")
        for name in (*MOST_OF_ACCOUNT, "below")
    ),
    form("beyond-halved", "-A each -q half -c 4 --mem=4000"),
)
BEYOND_NODES = (
    form("beyond-memory", "-A several -c 8 --mem=65000"),
    form("beyond-share", "-A several -c 8 --mem-per-cpu=9000"),
    form("beyond-gpus", "-A several -c 8 --mem=8000 --gres=gpu:5"),
)
WITHIN = (
    *(form(f"within-{name}", f"-A several -q {name} -c 4 --mem=4000", cpu=2, mem=256) for name in MOST),
    form("within-partition", "-A several -p narrow -c 4 --mem=8000", cpu=2, mem=256),
    *(
        form(f"within-account-{name}", f"-A {name} -q strict -c 4 --mem=4000", cpu=2, mem=256)
        for name in (*MOST_OF_ACCOUNT, "below")
    ),
    form("within-tripled", "-A each -q triple -c 8 --mem=8000", cpu=2, mem=256),
    # Its QOS lets it have what its account does not.
    form("above-account", "-A each -q wide -c 8 --mem=8000", cpu=2, mem=256),
)


MOVED = form("moved", "-c 8 --mem=8000")
ALL = (*FORMS, *WITHIN, *REFUSED, *BEYOND_NODES)


@pytest.fixture(scope="module", params=RELEASES)
def sandbox(request: pytest.FixtureRequest, make_folder: Callable[[], Path]) -> Iterator[Sandbox]:
    prefix: Path | None = RELEASES[request.param]
    if reason := why_missing(prefix):
        pytest.skip(reason)
    with trained_cluster(make_folder() / "site", prefix, (*ALL, MOVED), SHAPE, COMMANDS) as sandbox:
        yield sandbox


def test_no_job_is_cut_below_the_minimum_of_its_qos_or_admitted_above_a_maximum(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    trial = Trial(sandbox, ALL, tmp_path)
    trial.submit()
    cells = trial.collect()
    refused = (*REFUSED, *BEYOND_NODES)
    problems = {cell.form.name: cell.problem for cell in cells if cell.form not in refused}
    assert problems == dict.fromkeys(problems, "")
    for cell in cells[-len(refused) :]:
        assert cell.ours.states == cell.twin.states, cell.form.name
        if cell.form in REFUSED:
            assert (cell.ours.states, "Job violates accounting/QOS policy" in cell.ours.said) == ((), True)
        else:  # what no node has is refused, or fails before it runs (BadConstraints)
            assert cell.ours.states in ((), ("FAILED",)), cell.form.name


def test_a_job_that_is_moved_below_a_minimum_is_told_how_to_get_its_request_back(sandbox: Sandbox) -> None:
    if cpus_must_stay(parse_release(sandbox.manifest.release)):
        pytest.skip(CPUS_STAY)
    shell = Shell(sandbox)
    asked = ("--hold", f"--job-name={MOVED.name}", "--account=several", "-c8", "--mem=8000")
    job = shell.submit(*asked, script=script_of(MOVED))
    shell.run("scontrol", "update", f"JobId={job}", "QOS=patient")
    shell.run("scontrol", "release", str(job))
    why = ("squeue", "--noheader", "--format=%r", f"--jobs={job}")
    wait_until(lambda: shell.run(*why).strip() == "QOSMinCpuNotSatisfied")
    _, said = shell.run_both("rightsizer", "explain", str(job))
    command = re.search("`(scontrol update .*?)`", said)
    assert command, said
    shell.run(*command[1].split())
    assert shell.wait_ended(job) == "COMPLETED"
    allocated = shell.allocated(job)
    assert (allocated["cpu"], allocated["mem"]) == ("8", "8000M")
