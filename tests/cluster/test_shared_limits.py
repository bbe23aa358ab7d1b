"""Limits of QOS, accounts and arrays, and licences on a real Slurm: a job at a limit starts when foreseen."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from models.planning.rollout import expected_starts
from slurm_plugin.advisor.problem import problem_of
from slurm_plugin.advisor.run_time import RunTime, by_limit
from slurm_plugin.sandbox.shape import Shape
from slurm_plugin.slurm.release import read_release
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
from slurm_plugin.slurm.snapshot import QueuedJob
from tests.cluster.conftest import Shell, unhooked_site
from tests.cluster.foreseen import foreseen
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LIMIT_S = 1200
# Limits by which one job of 4 CPUs, 100 MiB and a GPU, or of a whole node, may run: for a QOS, and for an account.
OF_QOS = (
    "MaxJobsPU=1",
    "MaxTRESPU=cpu=6",
    "MaxTRESPU=gres/gpu=1",
    "MaxTRESPA=mem=150",
    "GrpTRES=cpu=4",
    "GrpJobs=1",
    "MaxTRESPU=node=1",
    "MaxTRESPU=billing=5",
    "GrpTRESRunMins=cpu=95",
    "MaxTRESRunMinsPU=mem=2400",
)
OF_ACCOUNTS = ("MaxJobs=1", "GrpTRES=mem=100", "GrpTRES=gres/gpu=1", "GrpJobs=1", "GrpTRESRunMins=cpu=95")
# MaxTRESRunMinsPU and PA count from this release on.
FOR_EACH_SINCE = (24, 5)
# It lets two jobs of 4 CPUs for 20 minutes run, and a third once the first of them has ended early.
BUDGET = "GrpTRESMins=cpu=165"
OF_PARTITION, TWICE, DOUBLE = "of-partition", "over-partition", "double"
MANAGE = ("sacctmgr", "--immediate")


@pytest.fixture(scope="module")
def shell(make_folder: Callable[[], Path]) -> Iterator[Shell]:
    lines = (
        "AccountingStorageEnforce=associations,limits,qos,safe",
        "AccountingStorageTRES=gres/gpu",
        "PriorityCalcPeriod=1",
        "PartitionName=held Nodes={node[0]}",
        "Licenses=matlab:3",
    )
    with unhooked_site(make_folder() / "site", Shape(lines=lines), nodes=2) as sandbox:
        shell = Shell(sandbox)
        qos = {f"q{number}": limit for number, limit in enumerate(OF_QOS)}
        qos |= {OF_PARTITION: "MaxJobsPU=1", TWICE: "MaxJobsPU=2 Flags=OverPartQOS"}
        qos |= {DOUBLE: "LimitFactor=2"}
        for name, limits in qos.items():
            shell.run(*MANAGE, "add", "qos", name, "set", *limits.split())
        accounts = {f"a{number}": f"set {limit}" for number, limit in enumerate(OF_ACCOUNTS)}
        for name, limits in {"free": "", **accounts, "budget": f"set {BUDGET}"}.items():
            shell.run(*MANAGE, "add", "account", name, *limits.split())
            below = f"below-{name}"
            shell.run(*MANAGE, "add", "account", below, f"parent={name}")
            shell.run(*MANAGE, "add", "user", "root", f"account={below}", f"qos=normal,{','.join(qos)}")
        shell.run("scontrol", "update", "PartitionName=held", f"QOS={OF_PARTITION}")
        known = ("scontrol", "show", "assoc_mgr", "users=root", "flags=assoc")
        wait_until(lambda: "below-budget" in shell.run(*known))
        yield shell


@pytest.fixture(autouse=True)
def _empty(shell: Shell) -> Iterator[None]:
    yield
    shell.empty("--user=root")


def submit(shell: Shell, *options: str) -> int:
    asked = ("--account=below-free", "-c4", "--mem=100", "--gres=gpu:1", f"--time={LIMIT_S // 60}")
    return shell.submit(*asked, *options, script=f"sleep {LIMIT_S}")


def wait_held(shell: Shell, job: int) -> None:
    """Wait until Slurm has looked at a job and says that a limit holds it."""
    asked = ("squeue", "--noheader", "--Format=Reason:64", f"--jobs={job}")
    wait_until(lambda: shell.run(*asked).strip() not in ("None", "Priority", "Resources", ""))


def states(shell: Shell, *jobs: int) -> set[str]:
    return {*shell.run("squeue", "--noheader", "--format=%T", f"--jobs={','.join(map(str, jobs))}").split()}


CASES = (
    *(
        (f"--qos=q{number}", *(["--exclusive"] if "node" in limit else []))
        for number, limit in enumerate(OF_QOS)
    ),
    *((f"--account=below-a{number}",) for number in range(len(OF_ACCOUNTS))),
    ("--partition=held",),
    ("--licenses=matlab:2",),
)


@pytest.mark.parametrize(
    "options", CASES, ids=(*OF_QOS, *(f"account {limit}" for limit in OF_ACCOUNTS), "partition", "licences")
)
def test_a_job_at_a_limit_starts_as_foreseen(
    shell: Shell, options: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    if "RunMinsPU" in request.node.name and read_release() < FOR_EACH_SINCE:
        pytest.skip("this release does not look at it")
    first = submit(shell, *options)
    shell.wait_state(first, "RUNNING")
    second, third = submit(shell, *options), submit(shell, *options)
    for job in (second, third):
        wait_held(shell, job)
    _, found = foreseen()
    assert LIMIT_S / 2 < found[second] <= LIMIT_S < 3 * LIMIT_S / 2 < found[third] <= 2 * LIMIT_S
    # It blocks no other job.
    shell.wait_state(submit(shell), "RUNNING")
    shell.run("scancel", str(first))
    # Slurm may be looking at the second just when the limit is freed, and start the third.
    wait_until(lambda: bool(states(shell, second, third) & {"RUNNING"}))
    assert states(shell, second, third) == {"RUNNING", "PENDING"}
    (left,) = (at_s for job, at_s in foreseen()[1].items() if job in (second, third))
    assert LIMIT_S / 2 < left <= LIMIT_S


def test_a_job_that_waits_for_a_run_minutes_limit_starts_as_running_jobs_use_theirs_up(shell: Shell) -> None:
    # Of 95 CPU minutes the first may still use 80; what the second needs is free within a minute.
    options = (f"--account=below-a{OF_ACCOUNTS.index('GrpTRESRunMins=cpu=95')}",)
    shell.wait_state(submit(shell, *options), "RUNNING")
    second = submit(shell, *options, "--time=4")
    wait_held(shell, second)
    now, found = foreseen()
    assert 0 < found[second] < LIMIT_S / 10
    shell.wait_state(second, "RUNNING")
    (started,) = (job for job in ScontrolQueue().read().jobs if job.job_id == second)
    # Slurm looks at pending jobs every few seconds.
    assert started.start_s - now.time_s == pytest.approx(found[second], abs=10)


def test_a_job_that_waits_for_a_budget_starts_once_running_jobs_leave_enough_of_it(shell: Shell) -> None:
    jobs = [submit(shell, "--account=below-budget") for _ in range(3)]
    for job in jobs[:2]:
        shell.wait_state(job, "RUNNING")
    wait_held(shell, jobs[2])
    # If all jobs ran to their limits, nothing would be left.
    assert math.isinf(foreseen()[1][jobs[2]])
    said = shell.run_both("rightsizer", "explain", str(jobs[2]), "--format", "json")[1]
    assert "account budget: cpu Mins: 165 minutes are left, and running jobs may use 1" in said
    now = ScontrolQueue().read()
    runs_s = {jobs[0]: now.time_s - next(job for job in now.jobs if job.job_id == jobs[0]).start_s + 30}
    problem = problem_of(now, lambda job: run_time(job, runs_s))
    (span,) = expected_starts(problem, samples=0)
    assert 0 < span.start_s < LIMIT_S / 10
    shell.run("scancel", str(jobs[0]))
    shell.wait_state(jobs[2], "RUNNING")


def run_time(job: QueuedJob, runs_s: dict[int, float]) -> RunTime:
    """Return how long a job runs, if that is known."""
    if job.job_id not in runs_s:
        return by_limit(job, "this is a test")
    return RunTime(
        likely_s=runs_s[job.job_id], upper_s=runs_s[job.job_id] + 1, basis="this is a test", jobs=9
    )


def test_a_qos_that_overrides_its_partition_lets_two_jobs_run(shell: Shell) -> None:
    options = ("--partition=held", f"--qos={TWICE}")
    jobs = [submit(shell, *options) for _ in range(3)]
    for job in jobs[:2]:
        shell.wait_state(job, "RUNNING")
    wait_held(shell, jobs[2])
    assert LIMIT_S / 2 < foreseen()[1][jobs[2]] <= LIMIT_S


def test_a_qos_that_doubles_the_limit_of_an_account_lets_two_jobs_run(shell: Shell) -> None:
    options = (f"--account=below-a{OF_ACCOUNTS.index('GrpTRES=mem=100')}", f"--qos={DOUBLE}")
    jobs = [submit(shell, *options) for _ in range(3)]
    for job in jobs[:2]:
        shell.wait_state(job, "RUNNING")
    wait_held(shell, jobs[2])
    assert LIMIT_S / 2 < foreseen()[1][jobs[2]] <= LIMIT_S


def test_an_array_runs_as_many_tasks_as_its_limit_allows(shell: Shell) -> None:
    job = submit(shell, "--array=1-3%1")
    wait_until(lambda: bool(shell.run("squeue", "--noheader", "--states=RUNNING", f"--jobs={job}")))
    wait_held(shell, job)
    assert LIMIT_S / 2 < foreseen()[1][job] <= LIMIT_S
