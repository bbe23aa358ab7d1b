"""How many GPUs an attempt used, and how much of their memory, by a meter or by Slurm's own figures."""

from typing import Any

import pytest

from accounting.labels.gpus import metered_gpus
from tests.accounting.labels.test_labels import use_of
from tests.builders import T0, gpu_use, job_row, label_attempt, step


def test_gpu_use_counts_every_gpu_that_was_ever_busy() -> None:
    uses = [
        gpu_use(node="n1", gpu=0),
        gpu_use(node="n1", gpu=1, util_max_pct=0.5),
        gpu_use(node="n2", gpu=0),
        gpu_use(node="n2", gpu=0, source="other"),
    ]
    label = metered_gpus(uses, 2, T0 + 10, T0 + 110)
    assert (label.gpus, label.source) == (2, "nvml+other")


def test_a_figure_from_only_some_of_the_nodes_is_a_lower_bound() -> None:
    row = job_row(alloc_gpus=8, nodes=2)
    one = [gpu_use(node="n1", gpu=gpu) for gpu in range(4)]
    use = label_attempt(row, [step()], one).use
    assert (use.gpus, use.gpu_quality) == (4, "censored")
    use = label_attempt(row, [step()], [*one, gpu_use(node="n2", util_max_pct=0.0)]).use
    assert (use.gpus, use.gpu_quality) == (4, "sampled")
    once = label_attempt(row, [step()], [gpu_use(samples=1)]).use
    assert (once.gpus, once.gpu_quality) == (1, "short")
    ended_early = gpu_use(node="n2", samples=1)
    assert label_attempt(row, [step()], [*one, ended_early]).use.gpu_quality == "sampled"


@pytest.mark.parametrize(
    ("seen", "quality"),
    [
        ([(60, 35_970)], "sampled"),
        # A meter that started when the job had run for hours, or stopped long before its end, or was away in between.
        ([(35_400, 36_000)], "censored"),
        ([(60, 25_000)], "censored"),
        ([(60, 10_000), (21_000, 36_000)], "censored"),
        ([(60, 10_000), (13_000, 36_000)], "sampled"),
        ([(7_201, 36_000)], "censored"),
        ([(7_200, 36_000)], "sampled"),
        # A use may begin before the attempt and end after it: then it is another attempt's.
        ([(-9_000, 20_000)], "censored"),
        ([(20_000, 90_000)], "censored"),
        # Sampled once a minute, and ingested line by line.
        ([(at, at) for at in range(30, 36_000, 60)], "sampled"),
    ],
)
def test_a_figure_from_only_a_part_of_a_run_is_a_lower_bound(
    seen: list[tuple[int, int]], quality: str
) -> None:
    row = job_row(alloc_gpus=4, start_s=T0, end_s=T0 + 36_000, elapsed_s=36_000, nodes=1)
    uses = [
        gpu_use(gpu=gpu, first_s=T0 + first_s, last_s=T0 + last_s, samples=1 if first_s == last_s else 9)
        for gpu in range(2)
        for first_s, last_s in seen
    ]
    use = label_attempt(row, [step()], uses).use
    assert (use.gpus, use.gpu_quality) == (2, quality)


@pytest.mark.parametrize(("missed_s", "quality"), [(90, "sampled"), (91, "censored")])
def test_the_beginning_of_a_short_run_may_be_missed(missed_s: int, quality: str) -> None:
    row = job_row(start_s=T0, end_s=T0 + 200, elapsed_s=200)
    late = gpu_use(first_s=T0 + missed_s, last_s=T0 + 200)
    assert label_attempt(row, [step()], [late]).use.gpu_quality == quality


def test_an_instance_was_busy_where_its_memory_was_used() -> None:
    uses = [
        gpu_use(instance=1, util_max_pct=None, mem_max_mib=10.0),
        gpu_use(instance=2, util_max_pct=None, mem_max_mib=0.5),
        gpu_use(instance=3, util_max_pct=None, mem_max_mib=0.0),
    ]
    assert metered_gpus(uses, 2, T0 + 10, T0 + 110).gpus == 2


def test_gpu_memory_is_the_most_of_any_one_gpu() -> None:
    uses = [
        gpu_use(gpu=0, mem_max_mib=300.0),
        gpu_use(gpu=1, mem_max_mib=900.0),
        gpu_use(gpu=2, mem_max_mib=5.0),
    ]
    assert metered_gpus(uses, 2, T0 + 10, T0 + 110).gpu_mem_mib == 900.0


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
def test_slurms_own_figures_are_enough_for_one_gpu(
    given: int, util_pct: float, gpus: int | None, gpu_mem_mib: float | None
) -> None:
    use = use_of(step(gpu_util_pct=util_pct, gpu_mem_mib=50.0), alloc_gpus=given)
    assert (use.gpus, use.gpu_mem_mib) == (gpus, gpu_mem_mib)
    metered = label_attempt(job_row(alloc_gpus=given), [step(gpu_util_pct=util_pct)], [gpu_use()]).use
    assert (metered.gpus, metered.gpu_source) == (1, "nvml")


@pytest.mark.parametrize("mem_mib", [1540.0, None])
def test_a_gpu_that_slurm_saw_idle_may_have_been_used_through_mps(mem_mib: float | None) -> None:
    """The MPS server is charged with what its clients do: their own figure is 0 (an H100, 24.11)."""
    use = use_of(step(gpu_util_pct=0.0, gpu_mem_mib=mem_mib), alloc_gpus=1)
    assert (use.gpus, use.gpu_mem_mib) == (None, mem_mib)
    assert (use.gpu_source, use.gpu_quality) == (("slurm", "sampled") if mem_mib else ("", "absent"))


def test_several_gpus_that_hold_nothing_and_do_nothing_are_known_to_be_idle() -> None:
    use = use_of(step(gpu_util_pct=0.0, gpu_mem_mib=0.0), alloc_gpus=4)
    assert (use.gpus, use.gpu_mem_mib, use.gpu_source, use.gpu_quality) == (0, 0.0, "slurm", "sampled")


@pytest.mark.parametrize("util_pct", [0.0, 80.0])
def test_a_figure_for_gpus_that_slurm_did_not_allocate_tells_nothing(util_pct: float) -> None:
    use = use_of(step(gpu_util_pct=util_pct, gpu_mem_mib=0.0), alloc_gpus=0)
    assert (use.gpus, use.gpu_mem_mib, use.gpu_source) == (None, None, "")
