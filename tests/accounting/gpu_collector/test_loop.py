"""The collector's loop: windows, the job that it accompanies, and that its cost and memory stay bounded."""

import itertools
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from accounting.gpu_collector.loop import Collector, CollectorSettings, run
from accounting.gpu_collector.processes import JobProcesses
from accounting.gpu_spool.samples import parse_line
from accounting.labels.gpus import metered_gpus
from slurm_plugin.cli.collect import MOST_EVERY_S
from tests.accounting.gpu_collector.node import Node
from tests.builders import T0
from tests.spools import read_spool


@dataclass
class Clock:
    """Time that passes only while the loop waits."""

    now_s: float = float(T0)
    ends_after_s: float = 1e9
    at: dict[int, Callable[[], None]] = field(default_factory=dict)

    def time(self) -> float:
        return self.now_s + 0.25

    def stopped(self, seconds: float) -> bool:
        self.now_s += seconds
        for moment in [one for one in self.at if self.now_s >= T0 + one]:
            self.at.pop(moment)()
        return self.now_s >= T0 + self.ends_after_s


def drive(collector: Collector, jobs: JobProcesses, settings: CollectorSettings, clock: Clock) -> None:
    run(collector, jobs, settings, clock.stopped, clock.time, clock.time, lambda: 0.0)


def test_the_loop_writes_a_line_per_window_and_the_rest_at_its_end(node: Node) -> None:
    node.job(7, 100, SLURM_JOB_GPUS="0")
    jobs = node.jobs()
    drive(node.collector(jobs), jobs, CollectorSettings(), Clock(ends_after_s=135))
    lines = [line for file in sorted(node.spool.iterdir()) for line in file.read_bytes().splitlines()]
    told = [parse_line(line)[0] for line in lines]
    assert [use and (use.samples, use.first_s - T0, use.last_s - T0) for use in told] == [
        (30, 0, 29),
        (30, 30, 59),
        (30, 60, 89),
        (30, 90, 119),
        (15, 120, 134),
    ]
    assert node.fake.calls.count("init") == 1
    assert not node.fake.open


@pytest.mark.parametrize(("every_s", "samples", "last_s"), [(0.5, 2400, 1199), (MOST_EVERY_S, 20, 1140)])
def test_a_run_is_one_use_however_rarely_the_collector_looks(
    every_s: float, samples: int, last_s: int, node: Node
) -> None:
    """Otherwise each look would be another attempt's, too short to tell anything, with idle time in between."""
    node.job(7, 100, SLURM_JOB_GPUS="0")
    jobs, settings = node.jobs(), CollectorSettings(every_s=every_s)
    drive(node.collector(jobs, settings), jobs, settings, Clock(ends_after_s=1200))
    (use,) = read_spool(node.spool)[0]
    assert (use.samples, use.first_s - T0, use.last_s - T0) == (samples, 0, last_s)
    assert metered_gpus([use], 1, T0, T0 + 1200).quality == "sampled"


def test_a_collector_for_one_job_watches_that_job_and_ends_with_it(node: Node) -> None:
    settings = CollectorSettings(job_id=7, window_s=10.0)
    jobs = node.jobs()
    node.job(8, 200, SLURM_JOB_GPUS="1")
    clock = Clock(at={20: lambda: node.job(7, 100, SLURM_JOB_GPUS="0"), 60: lambda: node.end(7)})
    drive(node.collector(jobs, settings), jobs, settings, clock)
    assert clock.now_s == T0 + 60
    (use,) = read_spool(node.spool)[0]
    assert (use.job_id, use.first_s - T0, use.last_s - T0) == (7, 20, 59)


def test_the_loop_does_not_wait_for_ever_for_a_job_that_never_comes(node: Node) -> None:
    settings = CollectorSettings(job_id=7, window_s=10.0)
    jobs, clock = node.jobs(), Clock()
    drive(node.collector(jobs, settings), jobs, settings, clock)
    assert 120 < clock.now_s - T0 <= 140


def test_the_collector_does_not_count_itself_as_the_job(node: Node) -> None:
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


def test_a_process_that_outlives_a_jobs_cgroup_is_not_the_job(node: Node) -> None:
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


@pytest.mark.parametrize(("pass_s", "passes"), [(0.01, 100), (0.3, 7), (1.0, 4)])
def test_expensive_samples_make_the_collector_look_less_often_but_once_a_window(
    pass_s: float, passes: int, node: Node
) -> None:
    """A sample that takes 0.3 s of CPU time is followed by 15 s of rest."""
    jobs, clock, spent = node.jobs(), Clock(ends_after_s=100), itertools.count(step=pass_s)
    run(
        node.collector(jobs), jobs, CollectorSettings(), clock.stopped, clock.time, clock.time, spent.__next__
    )
    assert node.fake.calls.count("compute_v3") == passes * len(node.fake.gpus)


def test_memory_does_not_grow_however_long_the_collector_runs(node: Node) -> None:
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
