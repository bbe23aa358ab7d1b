"""The collector: whose a GPU is, what is written of it, and that nothing on the way ends it or makes it grow."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.gpu_collector.attribution import (
    Claim,
    GpuProcess,
    Held,
    JobHere,
    Load,
    Reading,
    Sample,
    claim_of,
    holders,
    job_of_cgroup,
    samples_of,
    slurm_variables,
)
from accounting.gpu_collector.loop import Collector, CollectorSettings, run
from accounting.gpu_collector.nvml import Nvml, NvmlFault
from accounting.gpu_collector.processes import JobProcesses
from accounting.gpu_collector.spool import SpoolWriter
from accounting.gpu_collector.windows import Windows
from accounting.gpu_samples import parse_line
from accounting.records import GpuUse
from bench import nvml_stand_in
from tests.accounting.fake_gpus import FakeGpu, FakePynvml
from tests.builders import T0, gpu_use
from tests.spools import read_spool

A, B = JobHere(7, "n1"), JobHere(8, "n1")
MIB = 1024**2
PATIENCE_S = 20.0


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("4:memory:/slurm/uid_0/job_123/step_0/task_0\n", JobHere(123, "host")),
        ("9:name=systemd:/x\n8:freezer:/slurm_n4/uid_1000/job_9/step_batch", JobHere(9, "n4")),
        ("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n", JobHere(123, "host")),
        ("0::/system.slice/node-3_slurmstepd.scope/job_5/step_batch/user/task_special", JobHere(5, "node-3")),
        ("0::/slurmstepd.scope/job_5/step_extern", JobHere(5, "host")),
        ("0::/system.slice/slurmstepd.scope/system", None),
        ("0::/system.slice/slurmstepd.scope/job_0/step_0", None),
        ("0::/system.slice/slurmstepd.scope/job_12x/step_0", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/slurm/uid_0/job_5/step_0", None),
        ("0::/user.slice/slurmstepd.scope/job_5", None),
        # What a user makes below his own job stays below it.
        ("0::/system.slice/slurmstepd.scope/job_1/step_0/user/slurmstepd.scope/job_2", JobHere(1, "host")),
        ("4:memory:/slurm/uid_1000/job_1/slurm/uid_0/job_2", JobHere(1, "host")),
        ("", None),
    ],
)
def test_a_job_is_read_from_slurms_own_cgroup_alone(text: str, job: JobHere | None) -> None:
    assert job_of_cgroup(text, "host") == job


@given(st.text(max_size=80))
def test_no_text_is_too_odd_for_a_cgroup(text: str) -> None:
    found = job_of_cgroup(text, "host")
    assert found is None or found.job_id > 0


@pytest.mark.parametrize(
    ("environ", "claim"),
    [
        (b"SLURM_JOB_GPUS=0,2-3\0CUDA_VISIBLE_DEVICES=0,1,2\0", Claim(frozenset({0, 2, 3}))),
        (b"SLURM_STEP_GPUS=1\0X=\xff\0", Claim(frozenset({1}))),
        (
            b"SLURM_JOB_ID=3\0CUDA_VISIBLE_DEVICES=MIG-a,GPU-b,7\0",
            Claim(frozenset(), frozenset({"MIG-a", "GPU-b"})),
        ),
        (b"CUDA_VISIBLE_DEVICES=0,1\0", Claim()),
        (b"SLURM_JOB_GPUS=0-9999\0", Claim(frozenset(range(1025)))),
        (b"SLURM_JOB_GPUS=a,-1,99999999999\0nothing", Claim()),
        (b"", Claim()),
    ],
)
def test_slurms_variables_name_the_gpus_of_a_job(environ: bytes, claim: Claim) -> None:
    assert claim_of(slurm_variables(environ)) == claim


def test_an_index_is_no_mig_instance() -> None:
    claim = Claim(frozenset({0}), frozenset({"MIG-a"}))
    assert claim.covers(0, -1, "GPU-x")
    assert not claim.covers(0, 3, "MIG-b")
    assert claim.covers(5, 3, "MIG-a")


def test_processes_decide_whose_a_gpu_is_before_claims_do() -> None:
    jobs = {1: A, 2: A, 3: B, 4: None}
    here = [GpuProcess(1, 100.0), GpuProcess(2, 50.0), GpuProcess(1, 120.0), GpuProcess(4, 9.0)]
    assert holders(here, jobs, [B]) == {A: Held((1, 2), 170.0)}
    assert holders([GpuProcess(3, None)], jobs, []) == {B: Held((3,), None)}
    # allocated, and nothing on it: held and idle
    assert holders([], jobs, [A]) == {A: Held((), 0.0)}
    # processes of nobody's are the only claimant's; of several nobody knows
    assert holders([GpuProcess(4, 9.0)], jobs, [A]) == {A: Held((), None)}
    assert holders([GpuProcess(4, 9.0)], jobs, [A, B]) == {}
    assert holders([GpuProcess(4, 9.0)], jobs, []) == {}


def test_a_shared_gpu_is_parted_by_process_and_its_power_is_nobodys() -> None:
    held = {A: Held((1, 2), 100.0), B: Held((3,), None)}
    load = Load(90.0, 5000.0, 300.0)
    both = samples_of(Reading(2, -1, held, load, {1: 30.0, 2: 80.0}))
    assert both == [Sample(A, 2, -1, 100.0, 100.0, None), Sample(B, 2, -1, 0.0, 5000.0, None)]
    alone = samples_of(Reading(2, -1, {A: Held((1,), 100.0)}, load))
    assert alone == [Sample(A, 2, -1, 90.0, 100.0, 300.0)]


def test_a_window_is_one_line_a_job_and_gpu() -> None:
    windows = Windows()
    for second in range(30):
        power_w = None if second == 5 else 200.0
        windows.add(Sample(A, 0, -1, float(second), 100.0 + second, 300.0), T0 + second)
        windows.add(Sample(B, 1, 3, None, 10.0, power_w), T0 + second)
    first, second_ = windows.flush()
    assert first == gpu_use(
        job_id=7,
        samples=30,
        first_s=T0,
        last_s=T0 + 29,
        util_max_pct=29.0,
        util_mean_pct=14.5,
        mem_max_mib=129.0,
        power_mean_w=300.0,
    )
    assert (second_.instance, second_.util_max_pct, second_.power_mean_w) == (3, None, None)
    assert windows.flush() == []


def test_a_clock_that_is_set_back_turns_no_window_round() -> None:
    windows = Windows()
    for now_s in (T0, T0 - 500, T0 - 499):
        windows.add(Sample(A, 0, -1, 1.0, 1.0, None), now_s)
    (line,) = windows.flush()
    assert (line.first_s, line.last_s, line.samples) == (T0 - 500, T0, 3)


@dataclass
class Node:
    """A host of the test's making: GPUs, /proc, Slurm's cgroups, a spool, and what the collector said."""

    folder: Path
    fake: FakePynvml
    said: list[str] = field(default_factory=list)

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def process(self, pid: int, cgroup: str = "0::/init.scope", **variables: str) -> None:
        here = self.folder / "proc" / str(pid)
        here.mkdir(parents=True, exist_ok=True)
        (here / "cgroup").write_text(cgroup + "\n")
        (here / "environ").write_bytes(
            b"\0".join(f"{name}={value}".encode() for name, value in variables.items())
        )

    def job(self, job_id: int, pid: int, node: str = "", **variables: str) -> None:
        path = f"system.slice/{node}slurmstepd.scope/job_{job_id}/step_batch/user/task_0"
        here = self.folder / "cgroup" / path
        here.mkdir(parents=True, exist_ok=True)
        (here / "cgroup.procs").write_text(f"{pid}\n")
        self.process(pid, f"0::/{path}", SLURM_JOB_ID=str(job_id), **variables)

    def end(self, job_id: int) -> None:
        shutil.rmtree(self.folder / "cgroup" / f"system.slice/slurmstepd.scope/job_{job_id}")

    def jobs(self) -> JobProcesses:
        return JobProcesses("n1", self.folder / "proc", self.folder / "cgroup")

    def collector(
        self, jobs: JobProcesses | None = None, settings: CollectorSettings | None = None
    ) -> Collector:
        writer = SpoolWriter(self.spool, "n1", 64 * MIB, self.said.append)
        return Collector(Nvml, jobs or self.jobs(), writer, settings or CollectorSettings(), self.said.append)

    def watch(self, collector: Collector, seconds: int = 30, first_s: int = T0) -> list[GpuUse]:
        """Let a window pass and return all that the spool holds then."""
        collector.look_again()
        for second in range(seconds):
            collector.tick(first_s + second)
        collector.flush(first_s + seconds)
        uses, quarantined = read_spool(self.spool)
        assert quarantined == []
        return sorted(uses, key=lambda use: (use.job_id, use.gpu, use.instance, use.first_s))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    fake = FakePynvml([FakeGpu(f"GPU-{number}") for number in range(4)])
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    (tmp_path / "proc").mkdir()
    return Node(tmp_path, fake)


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


def test_a_gpu_of_nobody_is_not_even_asked_what_it_does(node: Node) -> None:
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
        # Root's own processes name nobody's job.
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


def test_memory_that_nvml_does_not_tell_by_process_is_the_gpus(node: Node) -> None:
    node.job(7, 100)
    gpu = node.fake.gpus[0]
    gpu.processes, gpu.used_mib = [(100, None)], 4000
    (use,) = node.watch(node.collector())
    assert use.mem_max_mib == 4000.0
    gpu.lacks = frozenset({"memory_v2"})
    (use,) = node.watch(node.collector(), first_s=T0 + 100)[1:]
    assert use.mem_max_mib == 4500.0


def test_two_jobs_on_one_gpu_get_their_own_share(node: Node) -> None:
    node.job(7, 100)
    node.job(8, 200)
    gpu = node.fake.gpus[3]
    gpu.processes, gpu.util_pct = [(100, 1000), (200, 2000)], 95
    gpu.process_util_pct = {100: 60, 200: 35}
    seven, eight = node.watch(node.collector())
    assert (seven.util_max_pct, seven.mem_max_mib, seven.power_mean_w) == (60.0, 1000.0, None)
    assert (eight.util_max_pct, eight.mem_max_mib, eight.power_mean_w) == (35.0, 2000.0, None)


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


def test_a_lost_gpu_is_said_once_and_the_others_go_on(node: Node) -> None:
    node.job(7, 100, SLURM_JOB_GPUS="0,1,2,3")
    collector = node.collector()
    node.watch(collector)
    node.fake.gpus[2].broken = pynvml.NVML_ERROR_GPU_IS_LOST
    for window in range(1, 4):
        uses = node.watch(collector, first_s=T0 + 30 * window)
    assert {use.gpu: use.samples for use in uses} == {0: 120, 1: 120, 2: 30, 3: 120}
    assert len(node.said) == 1
    assert node.said[0].startswith("GPU 2 does not answer (GPU is lost)")
    node.fake.gpus[2].broken = None
    node.watch(collector, first_s=T0 + 120)
    assert node.said[1:] == ["GPU 2 answers again"]


def test_a_driver_that_is_restarted_is_asked_again(node: Node) -> None:
    node.job(7, 100, SLURM_JOB_GPUS="0")
    collector = node.collector()
    node.watch(collector)
    node.fake.driver = pynvml.NVML_ERROR_UNINITIALIZED
    node.watch(collector, first_s=T0 + 30)
    node.fake.driver = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    node.watch(collector, first_s=T0 + 60)
    node.watch(collector, first_s=T0 + 90)
    node.fake.driver, node.fake.open = None, False
    (before, after) = node.watch(collector, first_s=T0 + 120)
    assert (before.samples, after.samples, after.first_s) == (30, 30, T0 + 120)
    assert [line.partition(";")[0] for line in node.said] == [
        "NVML does not answer (Uninitialized)",
        "NVML does not answer (Driver Not Loaded)",
        "NVML answers again",
    ]


def test_a_driver_that_was_replaced_needs_a_new_process(node: Node) -> None:
    collector = node.collector()
    node.watch(collector)
    node.fake.driver = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    with pytest.raises(NvmlFault, match="mismatch") as caught:
        collector.tick(T0)
    assert caught.value.stale


def test_older_drivers_without_the_newest_calls_do_as_well(node: Node) -> None:
    node.job(7, 100)
    gpu = node.fake.gpus[0]
    gpu.processes, gpu.lacks = [(100, 10)], frozenset({"compute_v3", "graphics_v3", "power"})
    (use,) = node.watch(node.collector())
    assert (use.mem_max_mib, use.power_mean_w, use.samples) == (10.0, None, 30)
    # what is not there is not asked for each second
    assert node.fake.calls.count("power") == 1


def test_an_id_that_comes_again_is_another_process(node: Node) -> None:
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


@dataclass
class Clock:
    """Time that passes only where the loop waits."""

    now_s: float = float(T0)
    ends_after_s: float = 1e9
    at: dict[int, Callable[[], None]] = field(default_factory=dict)

    def time(self) -> float:
        return self.now_s

    def stopped(self, seconds: float) -> bool:
        self.now_s += seconds
        for moment in [one for one in self.at if self.now_s >= T0 + one]:
            self.at.pop(moment)()
        return self.now_s >= T0 + self.ends_after_s


def drive(collector: Collector, jobs: JobProcesses, settings: CollectorSettings, clock: Clock) -> None:
    run(collector, jobs, settings, clock.stopped, clock.time, clock.time, lambda: 0.0)


def test_the_loop_writes_a_line_a_window_and_the_rest_at_its_end(node: Node) -> None:
    node.job(7, 100, SLURM_JOB_GPUS="0")
    jobs = node.jobs()
    drive(node.collector(jobs), jobs, CollectorSettings(), Clock(ends_after_s=75))
    lines = [line for file in sorted(node.spool.iterdir()) for line in file.read_bytes().splitlines()]
    told = [parse_line(line)[0] for line in lines]
    assert [use and (use.samples, use.first_s - T0, use.last_s - T0) for use in told] == [
        (30, 0, 29),
        (30, 30, 59),
        (15, 60, 74),
    ]
    assert not node.fake.open


def test_beside_a_job_it_watches_that_job_and_ends_with_it(node: Node) -> None:
    settings = CollectorSettings(job_id=7, window_s=10.0)
    jobs = node.jobs()
    node.job(8, 200, SLURM_JOB_GPUS="1")
    clock = Clock(at={20: lambda: node.job(7, 100, SLURM_JOB_GPUS="0"), 60: lambda: node.end(7)})
    drive(node.collector(jobs, settings), jobs, settings, clock)
    assert clock.now_s == T0 + 60
    (use,) = read_spool(node.spool)[0]
    assert (use.job_id, use.first_s - T0, use.last_s - T0) == (7, 20, 59)


def test_it_does_not_wait_for_ever_for_a_job_that_never_comes(node: Node) -> None:
    settings = CollectorSettings(job_id=7, window_s=10.0)
    jobs, clock = node.jobs(), Clock()
    drive(node.collector(jobs, settings), jobs, settings, clock)
    assert 120 < clock.now_s - T0 <= 140


def test_it_does_not_count_itself_as_the_job(node: Node) -> None:
    jobs = node.jobs()
    node.job(7, os.getpid())
    jobs.look_again()
    assert not jobs.lives(7)
    node.job(7, 100)
    jobs.look_again()
    assert jobs.lives(7)


def test_another_slurmds_job_of_the_same_number_is_not_the_job(node: Node) -> None:
    jobs = node.jobs()
    node.job(7, 100, node="other_")
    jobs.look_again()
    assert not jobs.lives(7)
    node.job(7, 101, node="n1_")
    jobs.look_again()
    assert jobs.lives(7)


def test_whoever_outlives_a_jobs_cgroup_is_not_the_job(node: Node) -> None:
    jobs = node.jobs()
    jobs.trust(7, os.getuid())
    node.process(300, SLURM_JOB_ID="7")
    jobs.look_again()
    assert jobs.lives(7)
    node.job(7, 100)
    jobs.look_again()
    assert jobs.lives(7)
    node.end(7)
    jobs.look_again()
    assert not jobs.lives(7)


def test_dear_passes_make_it_look_less_often(node: Node) -> None:
    jobs, clock, spent = node.jobs(), Clock(ends_after_s=100), iter(range(10**6))
    collector = node.collector(jobs)
    # Each pass takes a second of CPU time: 50 s of rest for it.
    stopped = clock.stopped
    run(collector, jobs, CollectorSettings(), stopped, clock.time, clock.time, lambda: float(next(spent)))
    assert node.fake.calls.count("compute_v3") <= 5 * 4


def test_it_does_not_grow_however_long_it_runs(node: Node) -> None:
    collector = node.collector()

    def hour(begin: int) -> None:
        for window in range(120):
            base = begin + window * 30
            node.job(base, base, SLURM_JOB_GPUS="0,1,2,3")
            node.fake.gpus[0].processes = [(base, 100)]
            collector.look_again()
            collector.tick(T0 + base)
            collector.flush(T0 + base)
            node.fake.calls.clear()
            node.end(base)

    hour(1)
    tracemalloc.start()
    try:
        hour(10_000)
        before = tracemalloc.take_snapshot()
        hour(20_000)
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    here = [tracemalloc.Filter(inclusive=True, filename_pattern="*/accounting/*")]
    grown = after.filter_traces(here).compare_to(before.filter_traces(here), "filename")
    assert sum(one.size_diff for one in grown) < 20_000


def test_the_spool_is_bounded_and_says_what_it_dropped(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "n1-gpu-20200101-0000.jsonl").write_text("another node's\n")
    writer = SpoolWriter(tmp_path, "n1", 80_000, said.append)
    for number in range(2000):
        writer.write([gpu_use(job_id=number + 1)], T0 + number * 60)
        ours = sum(file.stat().st_size for file in tmp_path.glob("n1-2*.jsonl"))
        assert ours <= 80_000 + 10_000
    kept = {use.job_id for use in read_spool(tmp_path)[0]}
    dropped = sum(int(line.partition(" with ")[2].split()[0]) for line in said)
    assert 2000 in kept
    assert len(kept) + dropped == 2000
    assert (tmp_path / "n1-gpu-20200101-0000.jsonl").exists()


def test_lines_that_the_disk_refuses_wait_for_it_as_many_as_may(tmp_path: Path) -> None:
    said: list[str] = []
    spool = tmp_path / "spool"
    spool.write_text("in the way")
    writer = SpoolWriter(spool, "n1", 64 * MIB, said.append)
    for number in range(9000):
        writer.write([gpu_use(job_id=number + 1)] if number < 5 or number > 8990 else [], T0)
    assert len(said) == 1
    assert "cannot write the spool" in said[0]
    spool.unlink()
    writer.write([gpu_use(job_id=9001)], T0)
    assert said[1].endswith("takes lines again; 0 were lost")
    assert len(read_spool(spool)[0]) == 5 + 9 + 1


def test_a_line_that_the_disk_cut_off_is_written_again_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    writer = SpoolWriter(tmp_path, "n1", 64 * MIB, said.append)
    whole = os.write
    line = len(msgspec.json.encode(gpu_use())) + 1
    for room in (line + 10, 5, 0, line):
        monkeypatch.setattr(os, "write", lambda handle, data, room=room: whole(handle, data[:room]))
        writer.write([gpu_use(job_id=1, node=f"n{room}")], T0)
    monkeypatch.setattr(os, "write", whole)
    writer.write([gpu_use(job_id=1, node="last")], T0)
    uses, torn = read_spool(tmp_path)
    assert len(torn) == 1
    assert sorted((use.node, use.samples) for use in uses) == sorted(
        (name, 3) for name in (f"n{line + 10}", "n5", "n0", f"n{line}", "last")
    )


def test_the_line_that_an_earlier_collector_left_unfinished_swallows_none_of_ours(tmp_path: Path) -> None:
    for number in range(3):
        SpoolWriter(tmp_path, "n1", 64 * MIB, print).write([gpu_use(node=f"n{number}")], T0)
        (file,) = tmp_path.iterdir()
        with file.open("ab") as spool:
            spool.write(b'{"job_id":')
    uses, torn = read_spool(tmp_path)
    assert [use.node for use in uses] == ["n0", "n1", "n2"]
    assert len(torn) == 2


def test_a_node_name_makes_no_path(tmp_path: Path) -> None:
    SpoolWriter(tmp_path, "../../n 1", 64 * MIB, print).write([gpu_use()], T0)
    assert [file.name for file in tmp_path.iterdir()] == [".._.._n_1-20231114-0000.jsonl"]


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = nvml_stand_in.build(tmp_path_factory.mktemp("nvml"))
    if built is None:
        pytest.skip("needs a C compiler")
    return built


def started(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    (folder / "rightsizer.toml").write_text(f'[accounting]\ngpu_spool = "{folder}/spool"\n')
    command = [
        sys.executable,
        "-m",
        "slurm_plugin.cli",
        "collect",
        "--config",
        str(folder / "rightsizer.toml"),
    ]
    with (folder / "said").open("wb") as said:
        return subprocess.Popen([*command, *arguments], env=environment, stderr=said)


def said_by(folder: Path) -> str:
    return (folder / "said").read_text()


def wait_for(what: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not what() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)


def test_the_command_writes_what_it_saw_when_it_is_told_to_end(tmp_path: Path, stand_in: Path) -> None:
    named = {**os.environ, "SLURM_JOB_ID": "41"}
    with subprocess.Popen(["sleep", "60"], env=named) as sleeping:
        environment = nvml_stand_in.environment(stand_in, gpus="3", pids=f"{sleeping.pid};1", lost="2")
        environment["SLURMD_NODENAME"] = "n5"
        process = started(tmp_path, environment, "--job", "41", "--every", "0.1")
        try:
            wait_for(lambda: "is lost" in said_by(tmp_path), process)
            time.sleep(1.5)
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            sleeping.kill()
    watching, lost = said_by(tmp_path).splitlines()
    assert process.returncode == 0
    assert watching.startswith("watching 3 GPUs of n5 every 0.1 s")
    assert lost.startswith("GPU 2 does not answer (GPU is lost)")
    (file,) = (tmp_path / "spool").iterdir()
    assert file.name.startswith("n5-job41-")
    (line,) = file.read_text().splitlines()
    told = json.loads(line)
    assert 3 <= told.pop("samples") <= 30
    assert abs(told.pop("first_s") - time.time()) < 60
    del told["last_s"]
    assert told == {
        "job_id": 41,
        "node": "n5",
        "gpu": 0,
        "instance": -1,
        "source": "nvml",
        "util_max_pct": 80.0,
        "util_mean_pct": 80.0,
        "mem_max_mib": 1000.0,
        "power_mean_w": 350.0,
    }


def test_the_command_ends_with_its_job(tmp_path: Path, stand_in: Path) -> None:
    named = {**os.environ, "SLURM_JOB_ID": "42"}
    with subprocess.Popen(["sleep", "4"], env=named) as sleeping:
        environment = nvml_stand_in.environment(stand_in, gpus="1", pids=str(sleeping.pid))
        process = started(tmp_path, environment, "--job", "42", "--node", "n5")
        try:
            process.wait(60)
        finally:
            process.kill()
    assert process.returncode == 0
    (use,) = read_spool(tmp_path / "spool")[0]
    assert (use.job_id, use.node) == (42, "n5")


def test_without_a_gpu_it_says_so_and_ends_well(tmp_path: Path, stand_in: Path) -> None:
    environment = nvml_stand_in.environment(stand_in, gpus="0")
    process = started(tmp_path, environment, "--node", "n5")
    assert (process.wait(PATIENCE_S), said_by(tmp_path)) == (0, "no GPU to watch on n5: NVML knows none\n")
    try:
        Nvml().close()
    except NvmlFault:
        process = started(tmp_path, dict(os.environ), "--node", "n5")
        assert process.wait(PATIENCE_S) == 0
        (said,) = said_by(tmp_path).splitlines()
        assert said.startswith("no GPU to watch on n5: ")


def test_without_pynvml_it_says_which_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NvmlFault, match="nvidia-ml-py is not installed"):
        Nvml()


# A process that holds 512 MiB of the first GPU and writes them again and again, by the driver's own interface.
BUSY_ON_A_GPU = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
size = ctypes.c_size_t(512 * 1024**2)
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), size)
print("ready", flush=True)
while True:
    for _ in range(1000):
        call("cuMemsetD8_v2", memory, ctypes.c_ubyte(1), size)
    call("cuCtxSynchronize")
"""


@pytest.fixture
def real_nvml() -> Iterator[Nvml]:
    try:
        nvml = Nvml()
    except NvmlFault as fault:
        pytest.skip(f"needs an NVIDIA GPU: {fault.reason}")
    yield nvml
    nvml.close()


def test_real_nvml_answers_as_its_stand_ins_do(real_nvml: Nvml) -> None:
    devices = [device for gpu in range(real_nvml.count()) for device in real_nvml.devices_of(gpu)]
    assert devices
    for device in devices:
        load = real_nvml.load(device, memory=True)
        assert load.mem_mib >= 0.0
        assert device.instance >= 0 or (load.util_pct is not None and 0 <= load.util_pct <= 100)
        assert load.power_w is None or 0 < load.power_w < 10_000
        assert all(process.pid > 0 for process in real_nvml.processes(device))
        assert all(0 <= share <= 100 for share in real_nvml.process_util_pct(device).values())


def test_on_a_real_gpu_it_sees_what_a_process_does(real_nvml: Nvml, tmp_path: Path) -> None:
    if real_nvml.devices_of(0)[0].instance >= 0:
        pytest.skip("the first GPU is parted (MIG)")
    named = {**os.environ, "SLURM_JOB_ID": "43"}
    with subprocess.Popen([sys.executable, "-c", BUSY_ON_A_GPU], env=named, stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            assert busy.stdout.readline() == b"ready\n"
            process = started(tmp_path, dict(os.environ), "--job", "43", "--node", "n5")
            time.sleep(8.0)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            busy.kill()
    use, *others = (one for one in read_spool(tmp_path / "spool")[0] if one.gpu == 0)
    assert others == []
    assert (use.job_id, use.instance, use.node) == (43, -1, "n5")
    assert 512 <= use.mem_max_mib < 2048
    assert use.util_max_pct is not None
    assert use.util_max_pct > 10
    assert use.power_mean_w is not None
    assert use.power_mean_w > 20
