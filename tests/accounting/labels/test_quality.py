"""What each release and plugin measures, and at which figures each quality begins."""

import numpy as np
import pytest

from accounting.labels.gpus import metered_gpus, recorded_gpus
from accounting.labels.quality import counts_cache, knows_peak, loses_tasks, memory_quality, seen_once
from tests.builders import T0, gpu_use

LINUX, V1, V2 = (
    "jobacct_gather/linux cgroup/v2",
    "jobacct_gather/cgroup cgroup/v1",
    "jobacct_gather/cgroup cgroup/v2",
)


@pytest.mark.parametrize(
    ("release", "gather", "cache", "peak", "loses"),
    [
        ("26.05.3", LINUX, False, False, False),
        ("23.02.7", LINUX, False, False, False),
        ("24.05.1", V1, False, False, False),
        ("24.11.0", V1, True, True, False),
        ("23.02.7", V2, False, False, True),
        ("23.11.1", V2, True, False, False),
        ("24.11.5", V2, True, True, False),
        ("25.11.2", f"{V2} No_File_Cache", False, False, False),
        ("", V2, False, False, False),
        # As with CgroupPlugin=autodetect, Slurm's default.
        ("23.11.1", "jobacct_gather/cgroup", False, False, False),
        ("24.11.5", "jobacct_gather/cgroup", True, True, False),
        ("25.11.2", "jobacct_gather/cgroup no_file_cache", False, False, False),
    ],
)
def test_the_release_and_the_plugin_decide_what_is_measured(
    release: str, gather: str, cache: bool, peak: bool, loses: bool
) -> None:
    told = (counts_cache(release, gather), knows_peak(release, gather), loses_tasks(release, gather))
    assert told == (cache, peak, loses)


def test_a_job_was_seen_once_where_that_holds_for_more_than_half_of_its_work() -> None:
    elapsed_s = np.array([30, 31, 31, 31, 31])
    share = np.array([np.nan, np.nan, 0.5, 0.51, 0.0])
    assert seen_once(elapsed_s, share, 30).tolist() == [True, False, False, True, False]


def test_an_interval_of_0_samples_nothing() -> None:
    assert seen_once(np.array([0, 90_000]), np.array([np.nan, 0.0]), 0).all()


def test_a_peak_from_nine_tenths_of_the_limit_on_may_be_cache() -> None:
    peak_mib, limit_mib = np.array([899.0, 900.0, 900.0]), np.array([1000.0, 1000.0, np.nan])
    no, yes = np.zeros(3, bool), np.ones(3, bool)
    assert memory_quality(peak_mib, limit_mib, no, yes, no, no).tolist() == [
        "sampled", "contaminated", "sampled",
    ]  # fmt: skip


def test_a_busy_gpu_was_not_idle_even_where_its_memory_is_unknown() -> None:
    recorded = recorded_gpus(np.ones(4), np.array([0.9, 1.0, 90.0, 90.0]), np.array([0.0, 0.0, 0.0, np.nan]))
    assert recorded.gpus.tolist() == [0, 1, 1, 1]
    assert np.isnan(recorded_gpus(np.ones(2), np.array([0.9, 0.9]), np.array([0.1, np.nan])).gpus).all()


def test_more_than_one_gpu_alone_can_do_is_the_work_of_both() -> None:
    recorded = recorded_gpus(np.full(2, 2.0), np.array([100.0, 101.0]), np.full(2, 50.0))
    assert np.isnan(recorded.gpus[0])
    assert recorded.gpus[1] == 2


@pytest.mark.parametrize(("samples", "quality"), [(1, "short"), (2, "sampled")])
def test_two_samples_of_a_gpu_are_enough(samples: int, quality: str) -> None:
    assert metered_gpus([gpu_use(samples=samples)], 1, T0 + 10, T0 + 110).quality == quality


@pytest.mark.parametrize(("util_pct", "gpus"), [(0.9, 0), (1.0, 1)])
def test_a_gpu_is_busy_from_one_per_cent_on(util_pct: float, gpus: int) -> None:
    assert metered_gpus([gpu_use(util_max_pct=util_pct)], 1, T0 + 10, T0 + 110).gpus == gpus
