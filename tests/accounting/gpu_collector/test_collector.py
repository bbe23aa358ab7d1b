"""What the collector sees of jobs and GPUs, and what it does when a process ends."""

import os

import pynvml
import pytest

from accounting.gpu_collector.attribution import JobHere
from accounting.gpu_collector.loop import CollectorSettings
from accounting.labels.gpus import metered_gpus
from tests.accounting.fake_gpus import FakeGpu
from tests.accounting.gpu_collector.node import A, Node
from tests.builders import T0
from tests.spools import read_spool


def test_each_job_gets_what_its_own_gpus_did(node: Node) -> None:
    node.job(7, 100, SLURM_JOB_GPUS="0,1")
    node.job(8, 200)
    first, _, third, _ = node.fake.gpus
    first.processes, first.util_pct, first.power_w = [(100, 3000)], 70, 320.0
    third.processes, third.util_pct = [(200, 500)], 10
    uses = node.watch(node.collector())
    told = [(use.job_id, use.gpu, use.util_max_pct, use.mem_max_mib, use.power_mean_w) for use in uses]
    assert told == [(7, 0, 70.0, 3000.0, 320.0), (7, 1, 0.0, 0.0, 60.0), (8, 2, 10.0, 500.0, 60.0)]
    assert {(use.samples, use.first_s, use.last_s, use.node) for use in uses} == {(30, T0, T0 + 29, "n1")}
    assert node.said == []


def test_a_cgroup_that_was_left_behind_holds_no_gpu(node: Node) -> None:
    node.job(7, 100, SLURM_JOB_GPUS="0")
    collector = node.collector()
    node.watch(collector)
    for file in (node.folder / "cgroup").rglob("cgroup.procs"):
        file.write_text("")
    (use,) = node.watch(collector, first_s=T0 + 30)
    assert use.last_s == T0 + 29


def test_a_gpu_of_no_job_is_not_even_sampled(node: Node) -> None:
    node.process(300)
    node.fake.gpus[0].processes = [(300, 100)]
    assert node.watch(node.collector()) == []
    assert not {"util", "power", "memory_v2"} & set(node.fake.calls)
    assert not node.spool.exists()


def test_a_container_is_known_by_its_variables_if_its_user_has_that_job(node: Node) -> None:
    docker = "0::/docker/abc"
    node.job(7, 100)
    for pid, named in ((101, "7"), (102, "99"), (103, "７"), (104, "7")):
        node.process(pid, docker, SLURM_JOB_ID=named)
    own = os.getuid() or 4321
    if not os.getuid():
        # Root's own processes cannot claim a job.
        for pid in (100, 101, 102, 103):
            os.chown(node.folder / "proc" / str(pid), own, own)
    stranger = [] if os.getuid() else [104]
    jobs = node.jobs()
    jobs.look_again()
    found = jobs.jobs_of([100, 101, 102, 103, *stranger, 105])
    assert found == {100: A, 101: A, 102: None, 103: None, **dict.fromkeys(stranger), 105: None}
    for uid, expected in ((own + 1, None), (own, JobHere(99, "n1"))):
        jobs.trust(99, uid)
        jobs.look_again()
        assert jobs.jobs_of([102]) == {102: expected}


def test_memory_that_nvml_does_not_report_by_process_is_that_of_the_gpu(node: Node) -> None:
    node.job(7, 100)
    gpu = node.fake.gpus[0]
    gpu.processes, gpu.used_mib = [(100, None)], 4000
    (use,) = node.watch(node.collector())
    assert use.mem_max_mib == 4000.0
    gpu.lacks = frozenset({"memory_v2"})
    (use,) = node.watch(node.collector(), first_s=T0 + 1000)[1:]
    assert use.mem_max_mib == 4500.0


def test_two_jobs_on_one_gpu_each_get_their_own_share(node: Node) -> None:
    node.job(7, 100)
    node.job(8, 200)
    gpu = node.fake.gpus[3]
    gpu.processes, gpu.util_pct, gpu.used_mib = [(100, 1000), (200, None)], 95, 5000
    gpu.process_util_pct = {100: 60, 200: 35}
    seven, eight = node.watch(node.collector())
    assert (seven.util_max_pct, seven.mem_max_mib, seven.power_mean_w) == (60.0, 1000.0, None)
    assert (eight.util_max_pct, eight.mem_max_mib, eight.power_mean_w) == (35.0, 5000.0, None)


def test_a_collector_for_one_job_writes_only_that_jobs_share_of_a_gpu(node: Node) -> None:
    node.job(7, 100)
    node.job(8, 200)
    node.fake.gpus[3].processes = [(100, 1000), (200, 2000)]
    uses = node.watch(node.collector(settings=CollectorSettings(job_id=7)))
    assert [(use.job_id, use.mem_max_mib, use.power_mean_w) for use in uses] == [(7, 1000.0, None)]


@pytest.mark.parametrize(
    ("server_pct", "seven_pct", "seven_is", "eight_is"),
    [(95, 0, None, None), (95, 20, 20.0, None), (0, 0, 0.0, 0.0)],
)
def test_what_the_mps_server_does_may_be_any_of_its_clients(
    node: Node, server_pct: int, seven_pct: int, seven_is: float | None, eight_is: float | None
) -> None:
    node.job(7, 100)
    node.job(8, 200)
    node.process(300)
    gpu = node.fake.gpus[3]
    gpu.processes, gpu.util_pct = [(100, 1000), (200, 2000), (300, 66)], 95
    gpu.process_util_pct = {100: seven_pct, 300: server_pct}
    seven, eight = node.watch(node.collector())
    assert [(use.util_max_pct, use.util_mean_pct) for use in (seven, eight)] == [
        (seven_is, seven_is),
        (eight_is, eight_is),
    ]
    assert (seven.mem_max_mib, eight.mem_max_mib) == (1000.0, 2000.0)


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION])
def test_a_share_that_nvml_does_not_report_is_not_called_idle(node: Node, error: int) -> None:
    node.job(7, 100)
    node.job(8, 200)
    gpu = node.fake.gpus[3]
    gpu.processes, gpu.util_pct = [(100, 1000), (200, 2000)], 95
    gpu.fails = {"process_util": error}
    uses = node.watch(node.collector())
    assert [(use.util_max_pct, use.mem_max_mib, use.samples) for use in uses] == [
        (None, 1000, 30),
        (None, 2000, 30),
    ]
    assert node.said == []


def test_mig_instances_are_told_apart_and_have_no_utilisation(node: Node) -> None:
    node.job(7, 100)
    node.job(8, 200, CUDA_VISIBLE_DEVICES="MIG-c")
    instances = {n: FakeGpu(f"MIG-{name}") for n, name in ((1, "a"), (2, "b"), (5, "c"))}
    node.fake.gpus[1].instances = instances
    instances[1].processes = [(100, 700)]
    instances[2].processes = [(100, None)]
    instances[2].used_mib = 900
    uses = node.watch(node.collector())
    told = [(use.job_id, use.gpu, use.instance, use.mem_max_mib) for use in uses]
    assert told == [(7, 1, 1, 700.0), (7, 1, 2, 900.0), (8, 1, 5, 0.0)]
    assert {(use.util_max_pct, use.util_mean_pct, use.power_mean_w) for use in uses} == {(None, None, None)}


def test_compute_instances_of_one_gpu_instance_are_told_apart(node: Node) -> None:
    node.job(7, 100)
    parts = {n: FakeGpu(f"MIG-{name}") for n, name in ((3, "a"), (103, "b"), (203, "c"))}
    node.fake.gpus[1].instances = parts
    for number in (3, 103):
        parts[number].processes = [(100, number)]
    uses = node.watch(node.collector())
    assert [(use.gpu, use.instance, use.mem_max_mib, use.samples) for use in uses] == [
        (1, 3, 3.0, 30),
        (1, 103, 103.0, 30),
    ]
    assert metered_gpus(uses, 1, T0, T0 + 30).gpus == 2


def test_an_index_tells_nothing_behind_a_gpu_whose_instances_slurm_counts(node: Node) -> None:
    # Slurm's 1 and 2 are the instances of GPU 1; 3 is GPU 2, which job 9 has.
    node.job(7, 100, SLURM_JOB_GPUS="0")
    node.job(8, 200, SLURM_JOB_GPUS="1", CUDA_VISIBLE_DEVICES="MIG-a")
    node.job(9, 300, SLURM_JOB_GPUS="3")
    node.fake.gpus[1].instances = {n: FakeGpu(f"MIG-{name}") for n, name in ((0, "a"), (2, "b"))}
    node.fake.gpus[2].processes = [(300, 10)]
    collector = node.collector()

    def seen(first_s: int) -> list[tuple[int, int, int]]:
        uses = node.watch(collector, first_s=first_s)
        return [(use.job_id, use.gpu, use.instance) for use in uses if use.first_s >= first_s]

    assert seen(T0) == [(7, 0, -1), (8, 1, 0), (9, 2, -1)]
    node.fake.gpus[2].processes = []
    # A GPU in MIG mode without an instance is none of Slurm's, whose 1 is then GPU 2.
    node.fake.gpus[1].instances = {}
    assert seen(T0 + 1000) == [(7, 0, -1)]
    node.fake.gpus[1].instances = None
    assert seen(T0 + 2000) == [(7, 0, -1), (8, 1, -1), (9, 3, -1)]


def test_older_drivers_without_the_newest_calls_are_enough(node: Node) -> None:
    node.job(7, 100)
    gpu = node.fake.gpus[0]
    gpu.processes, gpu.lacks = [(100, 10)], frozenset({"compute_v3", "graphics_v3", "power"})
    (use,) = node.watch(node.collector())
    assert (use.mem_max_mib, use.power_mean_w, use.samples) == (10.0, None, 30)
    # a call that does not exist is not made again every second
    assert node.fake.calls.count("power") == 1


def test_a_process_id_that_is_reused_is_another_process(node: Node) -> None:
    node.job(7, 100)
    gpu = node.fake.gpus[0]
    collector = node.collector()
    collector.look_again()
    gpu.processes = [(100, 10)]
    collector.tick(T0)
    gpu.processes = []
    collector.tick(T0 + 1)
    node.process(100)
    gpu.processes = [(100, 10)]
    collector.tick(T0 + 2)
    collector.flush(T0 + 3)
    (use,) = read_spool(node.spool)[0]
    assert use.samples == 1


SLUID = "sEKNKTV3WPV500"


def test_a_cgroup_named_by_its_sluid_is_the_job_that_its_slurmstepd_serves(node: Node) -> None:
    # 26.05 names them so with cgroup/v2.
    scope = "system.slice/slurmstepd.scope"
    node.job(7, 100, name=SLUID, SLURM_JOB_GPUS="0,1")
    # The name that a user gives to a process of their own says nothing.
    node.stepd(101, "8.0", f"{scope}/{SLUID}/step_batch/user/task_1")
    node.stepd(90, "7.batch stepmgr", f"{scope}/{SLUID}/step_batch/slurm")
    node.fake.gpus[0].processes = [(100, 3000)]
    collector = node.collector()
    told = [(use.job_id, use.gpu, use.mem_max_mib) for use in node.watch(collector)]
    assert told == [(7, 0, 3000.0), (7, 1, 0.0)]
    # A job that has started since is known as soon as it has a process on a GPU.
    node.job(9, 300, node="n2_", name=SLUID.replace("E", "F"))
    node.stepd(91, "9.0+1", f"system.slice/n2_slurmstepd.scope/{SLUID.replace('E', 'F')}/step_0/slurm")
    node.fake.gpus[2].processes = [(300, 10)]
    collector.tick(T0 + 40)
    collector.flush(T0 + 60)
    uses, _ = read_spool(node.spool)
    assert {(use.job_id, use.node) for use in uses} == {(7, "n1"), (9, "n2")}


def test_a_cgroup_whose_slurmstepd_is_gone_belongs_to_no_job(node: Node) -> None:
    node.job(7, 100, name=SLUID, SLURM_JOB_GPUS="0")
    node.fake.gpus[0].processes = [(100, 3000)]
    assert node.watch(node.collector()) == []


def test_slurms_cgroups_may_be_in_a_slice_of_the_site(node: Node) -> None:
    node.job(7, 100, scope="batch.slice", SLURM_JOB_GPUS="0")
    node.job(8, 200, scope="user.slice", SLURM_JOB_GPUS="1")
    assert [(use.job_id, use.gpu) for use in node.watch(node.collector())] == [(7, 0)]


def test_in_a_container_slurms_cgroups_are_next_to_that_of_the_first_process(node: Node) -> None:
    node.process(1, "0::/docker/c0ffee/init")
    node.job(7, 100, scope="docker/c0ffee/system.slice", SLURM_JOB_GPUS="0,1")
    node.job(8, 200, scope="docker/c0ffee/other/system.slice", SLURM_JOB_GPUS="2")
    # Releases before 23.11 begin at the root all the same, and from 26.05 on names may be SLUIDs.
    node.job(9, 300, SLURM_JOB_GPUS="3")
    node.job(6, 400, scope="docker/c0ffee/system.slice", name=SLUID, SLURM_JOB_GPUS="2")
    node.stepd(90, "6.batch", f"docker/c0ffee/system.slice/slurmstepd.scope/{SLUID}/step_batch/slurm")
    node.fake.gpus[0].processes = [(100, 3000), (200, 10)]
    node.fake.gpus[3].processes = [(300, 20)]
    told = sorted((use.job_id, use.gpu, use.mem_max_mib) for use in node.watch(node.collector()))
    assert told == [(6, 2, 0.0), (7, 0, 3000.0), (7, 1, 0.0), (9, 3, 20.0)]


def test_where_slurm_makes_no_cgroups_the_collector_says_once_that_it_can_tell_nothing(node: Node) -> None:
    node.process(100, SLURM_JOB_ID="7")
    node.fake.gpus[0].processes = [(100, 3000)]
    collector = node.collector()
    for window in range(3):
        assert node.watch(collector, first_s=T0 + 30 * window) == []
    (said,) = node.said
    assert "job 7" in said
    assert "ProctrackType is not proctrack/cgroup" in said
    # That is nothing new to a collector for a single job, which is used for this very reason.
    beside = node.collector(settings=CollectorSettings(job_id=8))
    for window in range(3, 5):
        node.watch(beside, first_s=T0 + 30 * window)
    assert len(node.said) == 1


def test_an_allocation_without_a_step_is_asked_again_when_it_has_one(node: Node) -> None:
    path = "system.slice/slurmstepd.scope/job_7"
    node.stepd(90, "7.extern", f"{path}/step_extern/slurm")
    collector = node.collector()
    for window in range(20):
        assert node.watch(collector, first_s=T0 + 30 * window) == []
    node.procs(f"{path}/step_0/user/task_0", 100)
    node.process(100, f"0::/{path}/step_0/user/task_0", SLURM_STEP_GPUS="3")
    assert [(use.job_id, use.gpu) for use in node.watch(collector, first_s=T0 + 600)] == [(7, 3)]


def _step(node: Node, job_id: int, step: str, pid: int, **variables: str) -> None:
    path = f"system.slice/slurmstepd.scope/job_{job_id}/{step}/user/task_0"
    node.procs(path, pid)
    node.process(pid, f"0::/{path}", SLURM_JOB_ID=str(job_id), **variables)


def test_on_a_further_node_a_job_has_the_gpus_of_its_steps_there(node: Node) -> None:
    # srun hands SLURM_JOB_GPUS of the batch script's node on, also to steps without GPUs (22.05).
    _step(node, 7, "step_0", 100, SLURM_JOB_GPUS="0,1", SLURM_STEP_GPUS="2")
    _step(node, 7, "step_1", 101, SLURM_JOB_GPUS="0,1")
    collector = node.collector()
    assert [(use.job_id, use.gpu) for use in node.watch(collector)] == [(7, 2)]
    _step(node, 7, "step_2", 102, SLURM_JOB_GPUS="0,1", SLURM_STEP_GPUS="3")
    uses = node.watch(collector, first_s=T0 + 1000)
    assert [(use.job_id, use.gpu) for use in uses if use.first_s > T0 + 900] == [(7, 2), (7, 3)]


def test_a_job_that_comes_back_at_once_has_other_gpus(node: Node) -> None:
    node.job(7, 100, SLURM_JOB_GPUS="2,3")
    collector = node.collector()
    node.watch(collector)
    folder = node.folder / "cgroup/system.slice/slurmstepd.scope/job_7"
    folder.rename(folder.with_name("ended"))
    node.job(7, 200, SLURM_JOB_GPUS="0")
    uses = node.watch(collector, first_s=T0 + 1000)
    assert [(use.gpu, use.first_s > T0 + 900) for use in uses] == [(0, True), (2, False), (3, False)]


def test_a_job_does_not_claim_the_gpus_of_the_step_that_submitted_it(node: Node) -> None:
    # What sbatch ran in goes on to the job: SLURM_STEP_GPUS of the step, but no SLURM_JOB_GPUS (22.05).
    node.job(8, 200, SLURM_STEP_GPUS="0,1")
    node.job(7, 100, SLURM_JOB_GPUS="0", SLURM_STEP_GPUS="1")
    # In a container whose daemon started it, so only its allocation tells whose it is.
    node.process(300)
    node.fake.gpus[0].processes = [(300, 500)]
    node.fake.gpus[0].util_pct = 90
    (use,) = node.watch(node.collector())
    assert (use.job_id, use.gpu, use.util_max_pct, use.power_mean_w) == (7, 0, 90.0, 60.0)


def test_a_job_lives_although_one_of_its_steps_ends_during_the_look(node: Node) -> None:
    jobs = node.jobs()
    node.job(7, 100)
    ending = node.folder / "cgroup/system.slice/slurmstepd.scope/job_7/cgroup.procs"
    ending.symlink_to("gone")  # is there, and cannot be read
    jobs.look_again()
    assert jobs.lives(7)


def test_a_users_cgroup_that_goes_during_the_look_stops_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With cgroup/v1 the last job of a user removes the user's folder too."""
    folder = node.folder / "cgroup/freezer/slurm"
    (folder / "uid_1000/job_7/step_0").mkdir(parents=True)
    (folder / "uid_1000/job_7/step_0/cgroup.procs").write_text("100\n")
    node.process(100, "8:freezer:/slurm/uid_1000/job_7/step_0", SLURM_STEP_GPUS="0")
    (folder / "uid_2000").mkdir()
    scandir = os.scandir

    def too_late(path: object) -> object:
        if str(path).endswith("uid_2000"):
            raise FileNotFoundError(path)
        return scandir(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", too_late)
    assert [(use.job_id, use.gpu) for use in node.watch(node.collector())] == [(7, 0)]


def test_missing_permission_to_read_environments_is_reported_once(node: Node) -> None:
    node.job(7, 100)
    jobs = node.jobs()
    collector = node.collector(jobs)
    node.watch(collector)
    assert node.said == []
    jobs.kept_out = True
    node.watch(collector)
    node.watch(collector)
    (said,) = node.said
    assert "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH" in said
