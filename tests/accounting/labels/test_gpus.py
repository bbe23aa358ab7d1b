"""How many GPUs an attempt used, and of their memory, by the meter or by Slurm's own figures."""

from typing import Any

import pytest

from accounting.labels.gpus import metered_gpus
from tests.accounting.labels.test_labels import use_of
from tests.builders import T0, gpu_use, job_row, label_attempt, step


def test_gpu_use_counts_every_gpu_that_was_ever_busy() -> None:
    uses = [
        gpu_use(node="n1", gpu=0),
        gpu_use(node="n1", gpu=1, util_max_pct=0.5),
        gpu_use(node="n1", gpu=2, util_max_pct=1.0),
        gpu_use(node="n2", gpu=0),
        gpu_use(node="n2", gpu=0, source="other"),
    ]
    assert (metered_gpus(uses).gpus, metered_gpus(uses).source) == (3, "nvml+other")


def test_what_was_seen_on_some_of_its_nodes_alone_is_a_lower_bound() -> None:
    row = job_row(alloc_gpus=8, nodes=2)
    one = [gpu_use(node="n1", gpu=gpu) for gpu in range(4)]
    use = label_attempt(row, [step()], one).use
    assert (use.gpus, use.gpu_quality) == (4, "censored")
    use = label_attempt(row, [step()], [*one, gpu_use(node="n2", util_max_pct=0.0)]).use
    assert (use.gpus, use.gpu_quality) == (4, "sampled")
    once = label_attempt(row, [step()], [gpu_use(samples=1)]).use
    assert (once.gpus, once.gpu_quality) == (1, "short")
    assert label_attempt(job_row(), [step()], [gpu_use(samples=2)]).use.gpu_quality == "sampled"
    ended_early = gpu_use(node="n2", samples=1)
    assert label_attempt(row, [step()], [*one, ended_early]).use.gpu_quality == "sampled"


def test_an_instance_was_busy_where_its_memory_was_used() -> None:
    uses = [
        gpu_use(instance=1, util_max_pct=None, mem_max_mib=10.0),
        gpu_use(instance=2, util_max_pct=None, mem_max_mib=0.5),
        gpu_use(instance=3, util_max_pct=None, mem_max_mib=0.0),
    ]
    assert metered_gpus(uses).gpus == 2


def test_gpu_memory_is_the_most_of_any_one() -> None:
    uses = [
        gpu_use(gpu=0, mem_max_mib=300.0),
        gpu_use(gpu=1, mem_max_mib=900.0),
        gpu_use(gpu=2, mem_max_mib=5.0),
    ]
    assert metered_gpus(uses).gpu_mem_mib == 900.0


@pytest.mark.parametrize(
    "other",
    [
        {"first_s": T0 - 500, "last_s": T0 - 100},
        {"first_s": T0 + 500, "last_s": T0 + 900},
        {"cluster": "beta"},
    ],
)
def test_gpu_use_of_another_attempt_or_another_clusters_job_does_not_count(other: dict[str, Any]) -> None:
    row = job_row(alloc_gpus=2)
    uses = [gpu_use(gpu=0, cluster="alpha"), gpu_use(gpu=1, **other)]
    use = label_attempt(row, [step()], uses).use
    assert (use.gpus, use.gpu_mem_mib, use.gpu_quality, use.gpu_source) == (1, 100.0, "sampled", "nvml")


@pytest.mark.parametrize(
    ("given", "util_pct", "gpus", "gpu_mem_mib"),
    [
        (1, 80.0, 1, 50.0),
        (1, 1.0, 1, 50.0),
        (1, 0.5, None, 50.0),
        (1, 0.0, None, 50.0),
        (4, 0.0, None, None),
        (4, 80.0, None, None),
        (4, 310.0, 4, None),
        (4, 300.0, None, None),
    ],
)
def test_slurms_own_figures_tell_of_one_gpu(
    given: int, util_pct: float, gpus: int | None, gpu_mem_mib: float | None
) -> None:
    use = use_of(step(gpu_util_pct=util_pct, gpu_mem_mib=50.0), alloc_gpus=given)
    assert (use.gpus, use.gpu_mem_mib) == (gpus, gpu_mem_mib)
    metered = label_attempt(job_row(alloc_gpus=given), [step(gpu_util_pct=util_pct)], [gpu_use()]).use
    assert (metered.gpus, metered.gpu_source) == (1, "nvml")


@pytest.mark.parametrize("mem_mib", [1540.0, None])
def test_a_gpu_that_slurm_saw_do_nothing_may_have_been_used_through_mps(mem_mib: float | None) -> None:
    """Its server is seen to do what its clients do: their own figure is 0 (an H100, 24.11)."""
    use = use_of(step(gpu_util_pct=0.0, gpu_mem_mib=mem_mib), alloc_gpus=1)
    assert (use.gpus, use.gpu_mem_mib) == (None, mem_mib)
    assert (use.gpu_source, use.gpu_quality) == (("slurm", "sampled") if mem_mib else ("", "absent"))


def test_several_gpus_that_hold_nothing_and_do_nothing_are_known_to_be_idle() -> None:
    use = use_of(step(gpu_util_pct=0.0, gpu_mem_mib=0.0), alloc_gpus=4)
    assert (use.gpus, use.gpu_mem_mib, use.gpu_source, use.gpu_quality) == (0, 0.0, "slurm", "sampled")


@pytest.mark.parametrize("util_pct", [0.0, 80.0])
def test_a_figure_of_gpus_that_slurm_did_not_give_tells_nothing(util_pct: float) -> None:
    use = use_of(step(gpu_util_pct=util_pct, gpu_mem_mib=0.0), alloc_gpus=0)
    assert (use.gpus, use.gpu_mem_mib, use.gpu_source) == (None, None, "")
