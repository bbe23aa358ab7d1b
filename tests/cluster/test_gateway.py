"""The gateway at a real slurmctld: sprio shows what it writes, undo restores it exactly, and limits still hold."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from accounting.errors import SlurmError
from accounting.slurm.sacct import known_fields, query_sacct
from slurm_plugin.config.file import load_config
from slurm_plugin.sandbox import cluster, daemons, teardown
from slurm_plugin.sandbox.cluster import ACCOUNT, Sandbox
from slurm_plugin.sandbox.shape import Shape
from slurm_plugin.slurm import resizing
from slurm_plugin.slurm.backends import open_queue, why_no_pyslurm
from slurm_plugin.slurm.gateway import DRY_RUN, HIDDEN, Gateway, open_gateway
from slurm_plugin.slurm.queue import Resize
from slurm_plugin.slurm.scontrol_lines import run_update
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
from tests.cluster.advised_site import is_numbered
from tests.cluster.conftest import Shell, unhooked_site, usable
from tests.cluster.gate_queue import (
    TERMS,
    array_records,
    asked,
    change,
    in_force,
    running,
    shown,
    wait_known,
    waiting,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

SHAPE = Shape(
    lines=(
        "AccountingStorageEnforce=limits,qos",
        "FederationParameters=fed_display",
        "PrologFlags=Contain",
    )
)
# How long a slow machine may take until it says that slurmctld does not answer.
TOLD_S = 120.0
# Not nobody: newer releases have no associations for the highest possible user id.
MEMBER = "daemon"
EVIL = "x\n   UserId=root(0) GroupId=root(0) MCS_label=N/A\n\nJobId=1 JobName=y"


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Iterator[Sandbox]:
    """Yield a sandbox that enforces limits; the Slurm commands of this process work on it too."""
    with unhooked_site(make_folder() / "gateway", SHAPE) as sandbox:
        shell = Shell(sandbox)
        shell.run("sacctmgr", "-i", "add", "user", MEMBER, f"account={ACCOUNT}")
        shell.run("sacctmgr", "-i", "add", "qos", "tight", "MaxTRESPerUser=cpu=4")
        shell.run("sacctmgr", "-i", "modify", "user", MEMBER, "set", "qos+=tight")
        yield sandbox


@pytest.fixture(scope="module")
def full(site: Sandbox) -> Shell:
    """Return a shell on it; eight of sixteen CPUs are free, so that jobs of sixteen wait."""
    shell = Shell(site)
    shell.wait_state(
        shell.submit("--cpus-per-task=8", "--mem=1000", "--time=120", script="sleep 3600"), "RUNNING"
    )
    return shell


@pytest.fixture(scope="module")
def user(site: Sandbox) -> Shell:
    """Return the shell of a user without privileges; skip the test if that user cannot run this Slurm's programs."""
    if os.geteuid() != 0:
        pytest.skip("only root can submit as another user")
    return usable(Shell(site, user=MEMBER))


@pytest.fixture(params=["scontrol", "pyslurm"])
def queue(request: pytest.FixtureRequest, site: Sandbox) -> ScontrolQueue:
    """Return each backend."""
    assert site.directory.is_dir()
    if request.param == "pyslurm" and (reason := why_no_pyslurm()):
        pytest.skip(f"pyslurm does not import: {reason}")
    return open_queue(request.param)


def test_variables_of_the_caller_for_another_cluster_or_other_formats_are_ignored(
    full: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, queue = full.submit("--cpus-per-task=16"), ScontrolQueue()
    wait_known(full, job)
    with monkeypatch.context() as callers:
        callers.setenv("SLURM_CLUSTERS", "elsewhere")
        callers.setenv("SQUEUE_STATES", "RUNNING")
        callers.setenv("SPRIO_FORMAT", "%u")
        [found] = waiting(queue.read(), job)
        assert [one.problem for one in queue.set_site_factors([change(found, 7)])] == [""]
        wait_until(lambda: queue.site_factors().get(job) == 7)
        assert known_fields("sacct")
        until_s = int(time.time())
        wait_until(lambda: f"{job}".encode() in query_sacct("sacct", until_s - 600, until_s + 60).figures)
    assert shown(full)[job] == 7
    full.run("scancel", str(job))


def test_a_deadline_and_the_minimum_time_limit_are_read(full: Shell, queue: ScontrolQueue) -> None:
    job = full.submit("--cpus-per-task=16", "--time=10", "--time-min=2", "--deadline=now+2hours")
    (found,) = waiting(queue.read(), job)
    full.run("scancel", str(job))
    assert (found.limit_s, found.least_limit_s, found.other) == (600, 120, ())
    assert found.deadline_s - found.submit_s == pytest.approx(7200, abs=120)


def test_factors_are_those_in_sprio_and_are_undone_exactly(
    full: Shell, queue: ScontrolQueue, tmp_path: Path
) -> None:
    big = ("--cpus-per-task=16", "--time=5")
    single = full.submit(*big)
    array = full.submit(*big, "--array=0-30:2%3")
    wait_known(full, single, array)
    full.run("scontrol", "hold", f"{array}_4")
    full.run("scontrol", "release", f"{array}_4")
    het = int(full.run("sbatch", "--parsable", *big, ":", *big, "--wrap=true").split(";")[0])
    operators = full.submit(*big)
    wait_known(full, het, operators)
    full.run("scontrol", "update", f"JobId={operators}", "SiteFactor=-41")
    # sprio shows a job once the scheduler has looked at it.
    wait_until(lambda: len(shown(full)) == 6)
    gateway = Gateway(queue, tmp_path, TERMS, apply=True)
    with gateway:
        jobs = waiting(gateway.read(), single, array, het, operators)
        assert len(jobs) == 6
        before = shown(full)
        assert before[operators] == -41
        wanted = {job.job_id: 100 * number - 250 for number, job in enumerate(jobs)}
        assert {
            one.problem for one in gateway.reorder([change(job, wanted[job.job_id]) for job in jobs])
        } == {""}
        assert shown(full) == before | wanted
        assert in_force(tmp_path) == {job: factor for job, factor in wanted.items() if factor != before[job]}
        assert sorted(array_records(full, array)) == ["0,2,6,8,10,12,14,16,18,20,22,24,26,28,30%3", "4"]
        jobs = waiting(gateway.read(), single, array, het, operators)
        assert {one.problem for one in gateway.reorder([change(job, 0) for job in jobs])} == {""}
        assert shown(full) == before | dict.fromkeys(wanted, 0)
        gateway.undo()
        assert shown(full) == before
        assert in_force(tmp_path) == {}
    full.run("scancel", *map(str, (single, array, het, operators)))


def test_an_array_of_every_other_task_is_changed_as_one_record(
    full: Shell, queue: ScontrolQueue, tmp_path: Path
) -> None:
    array = full.submit("--cpus-per-task=16", "--time=5", "--array=0-30:2%3")
    wait_known(full, array)
    before = shown(full)
    with Gateway(queue, tmp_path, TERMS, apply=True) as gateway:
        (record,) = waiting(gateway.read(), array)
        assert record.array_tasks == "0-30:2%3"
        assert [one.problem for one in gateway.reorder([change(record, 300)])] == [""]
        assert shown(full) == before | {array: 300}
        gateway.undo()
    assert shown(full) == before
    assert array_records(full, array) == ["0-30:2%3"]
    full.run("scancel", str(array))


def test_a_task_split_off_with_our_factor_is_undone_too(
    full: Shell, queue: ScontrolQueue, tmp_path: Path
) -> None:
    array = full.submit("--cpus-per-task=16", "--time=5", "--array=1-3")
    wait_known(full, array)
    before = shown(full)
    with Gateway(queue, tmp_path, TERMS, apply=True) as gateway:
        (record,) = waiting(gateway.read(), array)
        assert [one.problem for one in gateway.reorder([change(record, -300)])] == [""]
        full.run("scontrol", "hold", f"{array}_2")
        full.run("scontrol", "release", f"{array}_2")
        wait_until(lambda: len(shown(full)) > len(before))
        (task,) = set(shown(full)) - set(before)
        assert shown(full)[task] == -300
        gateway.undo()
        assert shown(full) == before | {task: 0}
    full.run("scancel", str(array))


def test_an_array_with_running_tasks_stays_one_record(
    full: Shell, queue: ScontrolQueue, tmp_path: Path
) -> None:
    array = full.submit("--array=1-9%2", "--time=20", "--mem=10", script="sleep 900")
    wait_until(lambda: running(full, array) == 2 and is_numbered(full, array))
    with Gateway(queue, tmp_path, TERMS, apply=True) as gateway:
        (rest,) = waiting(gateway.read(), array)
        assert (rest.array_tasks, rest.tasks) == ("3-9%2", 7)
        # Another two start between the read and the write: the list that was read is longer than what is still pending.
        full.run("scontrol", "update", f"JobId={array}", "ArrayTaskThrottle=4")
        wait_until(lambda: running(full, array) == 4)
        assert [one.problem for one in queue.set_site_factors([change(rest, 77)])] == [""]
        assert array_records(full, array) == ["5-9%4"]
        (rest,) = waiting(gateway.read(), array)
        assert rest.tasks == 5
        full.run("scancel", str(array))


def test_a_gateway_opened_by_configuration_changes_nothing_in_a_dry_run(
    site: Sandbox, full: Shell, tmp_path: Path
) -> None:
    job = full.submit("--cpus-per-task=16", "--time=5")
    wait_known(full, job)
    config = load_config(str(site.layout.rightsizer_toml))
    advisor = msgspec.structs.replace(config.advisor, queue="scontrol", directory=str(tmp_path / "absent"))
    with open_gateway(msgspec.structs.replace(config, advisor=advisor), apply=False) as gateway:
        (found,) = waiting(gateway.read(), job)
        assert [one.problem for one in gateway.reorder([change(found, 9)])] == [DRY_RUN]
        resize = Resize(job_id=job, uid=0, num_tasks=1, reason="test", cpus_per_task=1)
        assert gateway.resize(resize).problem == DRY_RUN
        assert waiting(gateway.read(), job)[0].cpus == 16
    assert shown(full)[job] == 0
    assert not (tmp_path / "absent").exists()
    full.run("scancel", str(job))


def test_a_job_that_vanished_meanwhile_is_a_problem_but_not_an_error(
    full: Shell, queue: ScontrolQueue, tmp_path: Path
) -> None:
    first, second = (full.submit("--cpus-per-task=16", "--time=5") for _ in range(2))
    wait_known(full, first, second)
    with Gateway(queue, tmp_path, TERMS, apply=True) as gateway:
        jobs = waiting(gateway.read(), first, second)
        full.run("scancel", str(first))
        assert [one.problem for one in gateway.reorder([change(job, 9) for job in jobs])] == [HIDDEN, ""]
        assert shown(full)[second] == 9
        assert queue.set_site_factors([change(jobs[0], 3)])[0].problem
        assert (
            queue.set_site_factors([msgspec.structs.replace(change(jobs[0], 3), job_id=999_999)])[0].problem
            == "gone"
        )
        gateway.undo()
    full.run("scancel", str(second))


def test_limits_hold_after_our_resize_but_not_after_that_of_an_operator(
    full: Shell, user: Shell, queue: ScontrolQueue, tmp_path: Path
) -> None:
    tight = ("--qos=tight", "--time=20", "--mem=10")
    first = user.submit(*tight, "--cpus-per-task=2", script="sleep 900")
    user.wait_state(first, "RUNNING")
    ours, theirs = (user.submit(*tight, "--cpus-per-task=4", script="sleep 900") for _ in range(2))
    wait_until(lambda: is_numbered(full, ours) and is_numbered(full, theirs))
    gateway = Gateway(queue, tmp_path, TERMS, apply=True)
    (job,) = waiting(gateway.read(), ours)
    assert (job.user, job.cpus_per_task) == (MEMBER, 4)
    resize = Resize(
        job_id=ours,
        uid=job.uid,
        num_tasks=1,
        reason="test",
        cpus_per_task=3,
        mem_per_node_mib=5,
        admin_comment="a b=c",
    )
    assert gateway.resize(resize).problem == ""
    (job,) = waiting(gateway.read(), ours)
    assert (job.cpus, job.min_cpus_per_node, job.mem_per_node_mib, job.admin_comment) == (3, 3, 5, "a b=c")
    full.run("scontrol", "update", f"JobId={theirs}", "CPUsPerTask=3", "NumCPUs=3", "MinCPUsNode=3")
    # Two run, and three more would be five: the limit is four. What an operator changed does not count against it.
    user.wait_state(theirs, "RUNNING")
    # A change clears the reason until Slurm looks at the job again.
    waits = ("squeue", "--noheader", "--format=%T %r", f"--jobs={ours}")
    wait_until(lambda: full.run(*waits).split() == ["PENDING", "QOSMaxCpuPerUserLimit"])
    full.run("scancel", *map(str, (first, theirs)))
    user.wait_state(ours, "RUNNING")
    tres = full.run("scontrol", "--oneliner", "show", "job", str(ours))
    assert "cpu=3,mem=5M" in tres
    full.run("scancel", str(ours))


def test_a_failing_resize_leaves_the_job_as_it_was(full: Shell, user: Shell, queue: ScontrolQueue) -> None:
    big = ("--cpus-per-task=16", "--time=5", "--mem-per-cpu=100")
    array = user.submit(*big, "--array=1-5")
    wait_until(lambda: is_numbered(full, array))
    full.run("scontrol", "update", f"JobId={array}", "AdminComment=before us")
    (job,) = waiting(queue.read(), array)
    wanted = Resize(job_id=array, uid=job.uid, num_tasks=1, reason="test", admin_comment="ours")
    for fields, problem in (
        ({"cpus_per_task": 200, "mem_per_cpu_mib": 50}, ""),
        ({"mem_per_node_mib": 50}, "per CPU, not per node"),
        ({"cpus_per_task": 2, "uid": 0}, "belongs to user"),
        ({"cpus_per_task": 2, "num_tasks": 3}, "has 1 tasks, not 3"),
    ):
        said = queue.resize(msgspec.structs.replace(wanted, **fields)).problem
        assert said
        assert problem in said
        (after,) = waiting(queue.read(), array)
        assert asked(after) == asked(job)
    # Still more than is free, so that it goes on waiting.
    resized = msgspec.structs.replace(wanted, cpus_per_task=10, mem_per_cpu_mib=50)
    assert queue.resize(resized).problem == ""
    (after,) = waiting(queue.read(), array)
    assert (after.cpus, after.mem_mib, after.admin_comment, after.array_tasks) == (10, 500, "ours", "1-5")
    full.run("scancel", str(array))


def test_memory_is_not_cut_if_the_job_starts_between_look_and_write(
    full: Shell, user: Shell, queue: ScontrolQueue
) -> None:
    started = user.submit("--mem=1000", "--time=20", "--hold", script="sleep 900")
    (before,) = waiting(queue.read(), started)
    full.run("scontrol", "release", str(started))
    user.wait_state(started, "RUNNING")
    # 26.05 would cut only the memory once the job has an extern step.
    wait_until(lambda: "extern" in full.run("squeue", "--steps", "--noheader", f"--jobs={started}"))
    change = Resize(job_id=started, uid=before.uid, num_tasks=1, reason="test", mem_per_node_mib=10)
    looks = iter([before])
    resized = resizing.resize(
        change,
        lambda job: next(looks, None) or queue._record(job),
        lambda words: run_update(*words, patience_s=10),
    )
    assert "no longer pending" in resized.problem
    assert "mem=1000M" in full.run("scontrol", "--oneliner", "show", "job", str(started))
    full.run("scancel", str(started))


def test_a_job_name_full_of_records_forges_nothing(full: Shell, user: Shell, queue: ScontrolQueue) -> None:
    evil = user.submit("--cpus-per-task=16", "--time=5", f"--job-name={EVIL}")
    jobs = {job.job_id: job for job in queue.read().jobs}
    assert jobs[evil].user == MEMBER
    assert jobs[evil].cpus == 16
    (filler,) = [job for job in jobs.values() if job.state == "RUNNING" and job.cpus == 8]
    assert filler.user == "root"
    assert not any(job.name == "y" for job in jobs.values())
    full.run("scancel", str(evil))


def test_both_backends_see_the_same(full: Shell) -> None:
    reason = why_no_pyslurm()
    if reason:
        pytest.skip(f"pyslurm does not import: {reason}")
    made = [
        full.submit("--cpus-per-task=3", "--ntasks=5", "--time=5", "--mem=200", "--comment=hello world"),
        full.submit("--cpus-per-task=16", "--time=UNLIMITED", "--array=0-70:2%3", "--mem-per-cpu=7"),
        full.submit("--cpus-per-task=16", "--time=1-0", "--hold", "--exclusive", "--gpus=2", "--mem=0"),
        full.submit("--cpus-per-task=16", "--dependency=singleton", "--contiguous", "--ntasks-per-node=1"),
        full.submit("--cpus-per-task=16", "--begin=now+1hour", "--job-name=\xe4\xf6"),
    ]
    full.run("scontrol", "update", f"JobId={made[0]}", "Priority=77")
    wait_until(lambda: {made[0], made[1]} <= shown(full).keys())
    stopped = next(job.job_id for job in open_queue("scontrol").read().jobs if job.state == "RUNNING")
    full.run("scontrol", "suspend", str(stopped))
    # Slurm's estimates of starts change within a moment, and pyslurm has no text of what is requested for a task or a
    # GPU.
    untold = {"reason": "", "tres_per_task": "", "cpus_per_gpu": 0, "mem_per_gpu_mib": 0}
    seen = [
        {
            job.job_id: msgspec.structs.replace(job, start_s=0.0, end_s=0.0, **untold)
            for job in open_queue(name).read().jobs
        }
        for name in ("scontrol", "pyslurm")
    ]
    full.run("scontrol", "resume", str(stopped))
    assert seen[0] == seen[1]
    assert set(made) <= seen[0].keys()
    assert seen[1][stopped].suspended
    assert seen[1][stopped].stopped_s
    full.run("scancel", *map(str, made))


def test_a_silent_slurmctld_is_reported_in_time(site: Sandbox, full: Shell, tmp_path: Path) -> None:
    job = full.submit("--cpus-per-task=16", "--time=5")
    wait_known(full, job)
    gateway = Gateway(ScontrolQueue(), tmp_path, TERMS, apply=True)
    found = waiting(gateway.read(), job)
    gateway.reorder([change(found[0], 5)])
    teardown.end_daemon(site.layout, daemons.SLURMCTLD)
    acts: tuple[Callable[[], object], ...] = (lambda: gateway.reorder([change(found[0], 9)]), gateway.undo)
    for act in acts:
        began = time.monotonic()
        with pytest.raises(SlurmError, match="check that"):
            act()
        assert time.monotonic() - began < TOLD_S
    cluster.bring_up([daemons.slurmctld(site.cluster)], site.cluster, lambda _: None)
    gateway.undo()
    # sprio shows a job once the scheduler has looked at it.
    wait_until(lambda: job in shown(full))
    assert shown(full)[job] == 0
