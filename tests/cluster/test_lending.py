"""Pending jobs are let onto idle nodes of other owners, on a real Slurm: they start there, and owners come first."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from models.demand.prediction import ChainSettings
from slurm_plugin.advisor.cycle import Advisor, Means
from slurm_plugin.advisor.lending import Lending
from slurm_plugin.config.settings import Advisor as Settings
from slurm_plugin.config.settings import Config, LentPartition
from slurm_plugin.doctor.look_installation import look_at_lent
from slurm_plugin.sandbox.shape import Shape
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.slurm.gateway import Gateway
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
from tests.cluster.conftest import Shell, unhooked_site
from tests.cluster.gate_queue import TERMS, wait_known
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SHAPE = Shape(
    outside_main=2,
    lines=(
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "PartitionName=lent Nodes={node[1]},{node[2]} PreemptMode=REQUEUE DefMemPerNode=50",
        "PartitionName=owner Nodes={node[1]},{node[2]} PriorityTier=10 PreemptMode=OFF",
    ),
)
LENDS = LentPartition(name="lent", jobs_of=("main",))
WHOLE = ("-c16", "--mem=100", "--time=5")


@pytest.fixture(scope="module")
def shell(make_folder: Callable[[], Path]) -> Iterator[Shell]:
    with unhooked_site(make_folder() / "site", SHAPE, nodes=3) as sandbox:
        yield Shell(sandbox)


def advisor_on(folder: Path) -> Advisor:
    """Return an advisor that lets jobs of main into lent, and applies its changes."""
    settings = Settings(directory=str(folder), control_share=0.0, period_s=1)
    queue = ScontrolQueue()
    return Advisor(
        Means(
            settings=settings,
            cluster=queue.cluster(),
            gateway=Gateway(queue, folder, TERMS, apply=True, cluster=queue.cluster()),
            model=CurrentModel(folder / "models", ChainSettings()),
            apply=True,
            keeps=True,
            lending=Lending(Config(advisor=settings, lent_partitions=(LENDS,))),
        )
    )


def listed(shell: Shell, job: int) -> set[str]:
    """Return the partitions in the record of a job, or in those of an array's pending tasks."""
    said = shell.run("squeue", "--noheader", "--format=%P", f"--jobs={job}", "--states=PD").split()
    return {name for line in said for name in line.split(",")}


def test_a_job_keeps_its_own_partition_if_that_takes_no_new_jobs(shell: Shell, tmp_path: Path) -> None:
    fills = shell.submit(*WHOLE, script="sleep 1200")
    shell.wait_state(fills, "RUNNING")
    waits = shell.submit(*WHOLE, script="sleep 1200")
    wait_known(shell, waits)
    shell.run("scontrol", "update", "PartitionName=main", "State=DRAIN")
    try:
        outcome = advisor_on(tmp_path).cycle()
    finally:
        shell.run("scontrol", "update", "PartitionName=main", "State=UP")
    assert [one.problem for one in outcome.relisted] == ["main takes no new jobs now (DRAIN or INACTIVE)"]
    assert listed(shell, waits) == {"main"}
    shell.run("scancel", str(fills), str(waits))


def test_a_pending_job_starts_on_an_idle_node_and_yields_to_its_owner_once(
    shell: Shell, tmp_path: Path
) -> None:
    advisor = advisor_on(tmp_path)
    fills = shell.submit(*WHOLE, script="sleep 1200")
    shell.wait_state(fills, "RUNNING")
    never = shell.submit(*WHOLE, "--no-requeue", script="sleep 1200")
    opted_out = shell.submit(*WHOLE, "--comment=rightsize=off", script="sleep 1200")
    unasked = shell.submit("-c16", "--time=5", script="sleep 1200")
    array = shell.submit(*WHOLE, "--array=1-4", script="sleep 1200")
    wait_known(shell, never, unasked, array)
    advisor.cycle()
    # Three of the array's tasks cannot start yet, and stay listed; `never` may not be requeued, `opted_out` is left
    # alone, and `unasked`, which asks for no memory, would have that of its own partition no longer.
    wait_until(lambda: len(running(shell, array)) == 2)
    assert {row.split()[1] for row in running(shell, array)} == {"lent"}
    assert listed(shell, array) == {"main", "lent"}
    assert all(listed(shell, job) == {"main"} for job in (never, opted_out, unasked))

    owner = shell.submit("--partition=owner", *WHOLE, script="sleep 1200")
    shell.wait_state(owner, "RUNNING")
    # One task was requeued; of the remaining node nothing is known except that its owner has long been away.
    wait_until(lambda: len(running(shell, array)) == 1)

    advisor.cycle()
    again = [job for job in ScontrolQueue().read().jobs if job.waits and job.restarts]
    assert [(job.array_job_id, job.partitions) for job in again] == [(array, ("main",))]
    assert listed(shell, array) == {"main", "lent"}
    assert advisor.means.gateway.undo()
    assert listed(shell, array) == {"main"}
    assert len(running(shell, array)) == 1
    assert advisor.means.gateway.undo() == []


def running(shell: Shell, array: int) -> list[str]:
    """Return a line for each running task: its id, and its partition."""
    said = shell.run("squeue", "--noheader", "--format=%A %P", f"--jobs={array}", "--states=R")
    return said.splitlines()


@pytest.mark.usefixtures("shell")
def test_the_doctor_reports_partitions_that_cannot_be_lent() -> None:
    lends = (
        LENDS,
        LentPartition(name="main", jobs_of=("owner",)),
        LentPartition(name="nowhere", jobs_of=("main",)),
    )
    assert set(look_at_lent(Config(lent_partitions=lends))) == {"main", "nowhere"}
