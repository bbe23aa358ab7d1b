"""The memory that attempts really used, and how far that can be trusted, from their records."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.decisions.token import format_token
from accounting.frames import attempts_in
from accounting.labels.attempts import label
from accounting.records import Attempt
from accounting.request import Grant
from tests.accounting.labels.test_labels import use_of
from tests.builders import (
    T0,
    Step,
    decision,
    job_row,
    label_attempt,
    records_of,
    request,
    srun,
    step,
)


def test_steps_in_sequence_do_not_add_up() -> None:
    assert use_of(srun(0, 0, 9, 300), srun(1, 10, 19, 500), srun(2, 20, 29, 400)).peak_mem_mib == 500


def test_a_step_that_starts_when_another_ends_follows_it() -> None:
    assert use_of(srun(0, 0, 9, 300), srun(1, 9, 19, 500), srun(2, 19, 19, 400)).peak_mem_mib == 500


def test_steps_within_one_second_overlap() -> None:
    assert use_of(srun(0, 5, 5, 300), srun(1, 5, 5, 500)).peak_mem_mib == 800


def test_concurrent_steps_add_up() -> None:
    assert use_of(srun(0, 0, 30, 300), srun(1, 10, 19, 500), srun(2, 25, 29, 400)).peak_mem_mib == 800


def test_the_sum_over_tasks_counts_where_it_is_larger_than_the_largest_task() -> None:
    assert use_of(step(tasks=4, mem_max_task_mib=100.0, mem_total_mib=400.0)).peak_mem_mib == 400
    assert use_of(step(mem_max_task_mib=100.0, mem_total_mib=None)).peak_mem_mib == 100


def test_the_order_of_steps_changes_no_digit() -> None:
    steps = [
        srun(number, 0, 9, 300, cpu_s=0.1 * (number + 1), read_mib=0.7 / (number + 1)) for number in range(4)
    ]
    assert len({msgspec.json.encode(use_of(*told)) for told in itertools.permutations(steps)}) == 1


def test_a_step_without_an_end_still_counts() -> None:
    assert use_of(srun(0, 0, -T0, 300)).peak_mem_mib == 300


@pytest.mark.parametrize("nothing", [None, 0.0])
def test_memory_that_was_never_sampled_is_not_zero_use(nothing: float | None) -> None:
    unknown = step(mem_max_task_mib=nothing, mem_total_mib=nothing)
    assert (use_of(unknown).peak_mem_mib, use_of(unknown).memory_quality) == (None, "absent")
    assert use_of(unknown, elapsed_s=5).memory_quality == "short"


@pytest.mark.parametrize(("elapsed_s", "expected"), [(30, "short"), (31, "sampled")])
def test_a_peak_that_was_sampled_at_most_once_is_a_lower_bound(elapsed_s: int, expected: str) -> None:
    use = use_of(step(mem_max_task_mib=69.0, mem_total_mib=69.0), elapsed_s=elapsed_s)
    assert (use.peak_mem_mib, use.memory_quality) == (69, expected)


@pytest.mark.parametrize(
    ("batch_cpu_s", "works", "expected"),
    [
        (0.1, [srun(0, 45, 65, 69, cpu_s=15.0)], "short"),
        (0.1, [srun(0, 45, 75, 69, cpu_s=15.0)], "short"),
        (0.1, [srun(0, 45, 76, 69, cpu_s=15.0)], "sampled"),
        (0.1, [srun(number, 20 * number, 20 * number + 20, 69, cpu_s=15.0) for number in range(5)], "short"),
        (0.1, [srun(number, number, number, 69, cpu_s=0.4) for number in range(99)], "short"),
        # A short step before the work, which only looks around, says nothing about the work.
        (90.0, [srun(0, 0, 1, 69, cpu_s=0.1)], "sampled"),
        (0.1, [srun(0, 0, 1, 9, cpu_s=0.1), srun(1, 1, 95, 69, cpu_s=80.0)], "sampled"),
        (None, [srun(0, 45, 65, 69, cpu_s=None)], "sampled"),
        # The step's node was lost, and with it the time at which the step ended.
        (0.1, [srun(0, 45, -T0, 69, cpu_s=15.0)], "sampled"),
    ],
)
def test_work_in_steps_that_were_sampled_at_most_once_shows_a_lower_bound(
    batch_cpu_s: float | None, works: list[Step], expected: str
) -> None:
    """Each step has its own sampling clock: work of 20 s in a job of 100 s was sampled only as it began."""
    batch = step(mem_max_task_mib=5.0, mem_total_mib=5.0, cpu_s=batch_cpu_s)
    assert use_of(batch, *works).memory_quality == expected


def measured_by(release: str, gather: str, *steps: Step, **changes: Any) -> Attempt:
    """An attempt whose memory this release and plugin measured."""
    one = records_of([(job_row(**changes), steps)])
    told = one.jobs.set_column(*column(one.jobs, "slurm_release", release))
    told = told.set_column(*column(told, "gather", gather))
    [labelled] = attempts_in(label(type(one)(told, one.steps)))
    return labelled


def test_the_kernels_peak_of_a_batch_script_says_nothing_of_a_lost_step() -> None:
    meter = ("24.11", "jobacct_gather/cgroup cgroup/v2")
    assert measured_by(*meter, step()).use.memory_quality == "exact"
    assert measured_by(*meter, step(), srun(0, 0, 90, None, cpu_s=0.0)).use.memory_quality == "short"


AMOUNTS = st.integers(0, 2**30).map(lambda kib: kib / 1024)


STEPS = st.lists(
    st.builds(
        lambda start, length, mem: srun(0, start, start + length, mem),
        st.integers(0, 50),
        st.integers(-1, 50),
        AMOUNTS,
    ),
    max_size=8,
)


def peak_by_hand(steps: list[Step]) -> float | None:
    """The peak computed second by second, by its definition in words."""
    seconds = [
        sum(
            one.mem_total_mib or 0.0
            for one in steps
            if one.start_s <= at_s < one.end_s or one.start_s == at_s or one.end_s < one.start_s <= at_s
        )
        for at_s in range(T0, T0 + 110)
    ]
    return max(seconds, default=0.0) or None


@given(st.lists(STEPS, min_size=1, max_size=5))
def test_peaks_are_those_of_every_second(jobs: list[list[Step]]) -> None:
    rows = [(job_row(job_id=number), steps) for number, steps in enumerate(jobs)]
    labelled = attempts_in(label(records_of(rows)))
    assert [one.use.peak_mem_mib for one in labelled] == [peak_by_hand(steps) for steps in jobs]


@given(st.lists(STEPS, min_size=2, max_size=5))
def test_attempts_do_not_affect_each_other(jobs: list[list[Step]]) -> None:
    rows = [(job_row(job_id=number), steps) for number, steps in enumerate(jobs)]
    together = attempts_in(label(records_of(rows)))
    assert together == [label_attempt(row, steps) for row, steps in rows]


@pytest.mark.parametrize("sampled", [0.0, 100.0, None])
def test_a_job_killed_for_memory_needed_at_least_its_allocation(sampled: float | None) -> None:
    killed = step(state="OUT_OF_MEMORY", mem_max_task_mib=sampled, mem_total_mib=sampled)
    use = use_of(killed, state="OUT_OF_MEMORY", alloc_mem_mib=512)
    assert (use.outcome, use.peak_mem_mib, use.memory_quality) == ("out_of_memory", 512, "censored")


@pytest.mark.parametrize(("nodes", "node_mib"), [(1, 512), (2, 256)])
def test_one_node_of_a_killed_job_needed_at_least_its_share_of_the_allocation(
    nodes: int, node_mib: int
) -> None:
    assert use_of(step(), state="OUT_OF_MEMORY", alloc_mem_mib=512, nodes=nodes).peak_node_mib == node_mib


def test_a_sampled_peak_above_the_allocation_stands() -> None:
    assert use_of(step(mem_total_mib=600.0), state="OUT_OF_MEMORY", alloc_mem_mib=512).peak_mem_mib == 600


@pytest.mark.parametrize("allocated", [None, 0])
def test_a_kill_without_known_memory_is_no_evidence_of_small_need(allocated: int | None) -> None:
    unseen = step(mem_max_task_mib=None, mem_total_mib=None)
    use = use_of(unseen, state="OUT_OF_MEMORY", alloc_mem_mib=allocated)
    assert (use.outcome, use.peak_mem_mib, use.memory_quality) == ("out_of_memory", None, "absent")


def test_a_failed_job_with_a_killed_step_was_killed_for_memory() -> None:
    assert use_of(step(state="OUT_OF_MEMORY"), state="FAILED", alloc_mem_mib=512).outcome == "out_of_memory"
    assert use_of(step(state="FAILED"), state="FAILED", alloc_mem_mib=512).outcome == "cut_short"


@pytest.mark.parametrize(
    ("release", "gather", "peak_mib", "quality"),
    [
        ("22.05", "jobacct_gather/cgroup cgroup/v2", 7900, "sampled"),
        ("23.11", "jobacct_gather/cgroup cgroup/v2", 7900, "contaminated"),
        ("23.11", "jobacct_gather/cgroup cgroup/v2", 4000, "sampled"),
        ("24.11", "jobacct_gather/cgroup cgroup/v2", 7900, "contaminated"),
        ("24.11", "jobacct_gather/cgroup cgroup/v2", 4000, "exact"),
        ("24.05", "jobacct_gather/cgroup cgroup/v1", 7900, "sampled"),
        ("24.11", "jobacct_gather/cgroup cgroup/v1", 7900, "contaminated"),
        ("24.11", "jobacct_gather/cgroup cgroup/v1", 4000, "exact"),
        ("25.11", "jobacct_gather/cgroup cgroup/v2 no_file_cache", 7900, "sampled"),
        ("24.11", "jobacct_gather/linux", 7900, "sampled"),
        ("", "", 7900, "sampled"),
    ],
)
def test_a_peak_near_the_limit_may_be_page_cache(
    release: str, gather: str, peak_mib: float, quality: str
) -> None:
    labelled = measured_by(release, gather, step(mem_total_mib=peak_mib), alloc_mem_mib=8000)
    assert (labelled.use.memory_quality, labelled.slurm_release, labelled.gather) == (
        quality,
        release,
        gather,
    )


@pytest.mark.parametrize(
    ("release", "gather", "nodes", "display_id", "quality"),
    [
        ("22.05", "jobacct_gather/cgroup cgroup/v1", 2, "1", "censored"),
        ("23.02", "jobacct_gather/cgroup cgroup/v2", 2, "1", "censored"),
        ("22.05", "jobacct_gather/cgroup cgroup/v1", 1, "1+1", "censored"),
        ("22.05", "jobacct_gather/cgroup cgroup/v1", 1, "1+0", "sampled"),
        ("22.05", "jobacct_gather/cgroup cgroup/v1", 1, "1", "sampled"),
        ("22.05", "jobacct_gather/linux", 2, "1", "sampled"),
        ("23.11", "jobacct_gather/cgroup cgroup/v1", 2, "1", "sampled"),
        ("", "jobacct_gather/cgroup cgroup/v1", 2, "1", "sampled"),
    ],
)
def test_memory_that_slurm_did_not_count_fully_is_a_lower_bound(
    release: str, gather: str, nodes: int, display_id: str, quality: str
) -> None:
    labelled = measured_by(release, gather, step(nodes=nodes), display_id=display_id, nodes=nodes)
    assert (labelled.use.memory_quality, labelled.use.peak_mem_mib) == (quality, 200)


@pytest.mark.parametrize(("last", "quality"), [("0+1", "censored"), ("1+0", "sampled")])
def test_so_is_that_of_a_job_with_a_later_component_of_a_step(last: str, quality: str) -> None:
    """Seen on 22.05: `srun -N1 small : -N1 large` showed 0 for the second, on a node of its own."""
    parts = [srun(0, 0, 90, 25, step_id="0+0"), srun(0, 0, 90, 0, step_id=last)]
    labelled = measured_by("22.05", "jobacct_gather/cgroup cgroup/v1", step(), *parts, nodes=2)
    assert labelled.use.memory_quality == quality


def test_a_job_that_survives_a_step_killed_for_memory_needs_more_than_was_seen() -> None:
    use = use_of(step(), srun(0, 0, 9, 300, state="OUT_OF_MEMORY"), state="COMPLETED", alloc_mem_mib=512)
    assert (use.outcome, use.peak_mem_mib, use.memory_quality) == ("completed", 300, "censored")


@pytest.mark.parametrize("sampled", [None, 0.0, 100.0])
@pytest.mark.parametrize(("state", "whole"), [("COMPLETED", "completed"), ("TIMEOUT", "timeout")])
@pytest.mark.parametrize(
    ("given_mib", "outcome", "peak_mib"), [(512, "out_of_memory", 512), (8000, "", None)]
)
def test_a_job_that_went_on_after_something_in_it_was_killed_was_killed_by_our_cut(
    sampled: float | None, state: str, whole: str, given_mib: int, outcome: str, peak_mib: int | None
) -> None:
    """To Slurm, `srun work; echo done` is COMPLETED. The user may have put the whole request back before.

    A pool of processes that waits for a killed worker until its time is over is TIMEOUT.
    """
    asked = request(mem_per_node_mib=8000)
    cut = format_token(decision(request=asked, grant=Grant(mem_per_node_mib=512), applied=True))
    batch = step(mem_max_task_mib=1.0, mem_total_mib=1.0)
    killed = srun(0, 0, 9, sampled, state="OUT_OF_MEMORY")
    use = use_of(batch, killed, state=state, alloc_mem_mib=given_mib, admin_comment=cut)
    assert (use.outcome, use.memory_quality) == (outcome or whole, "censored")
    assert peak_mib is None or use.peak_mem_mib == peak_mib
    ended_well = use_of(
        batch, srun(0, 0, 9, sampled), state="COMPLETED", admin_comment=cut, alloc_mem_mib=512
    )
    assert ended_well.outcome == "completed"


@pytest.mark.parametrize(
    ("params", "mem_mib", "state", "outcome", "quality"),
    [
        (" OverMemoryKill", 600.0, "FAILED", "out_of_memory", "censored"),
        (" overmemorykill,UsePss", 600.0, "REQUEUED", "out_of_memory", "censored"),
        # The script went on after the step was killed.
        (" OverMemoryKill", 600.0, "COMPLETED", "completed", "censored"),
        (" OverMemoryKill", 500.0, "FAILED", "cut_short", "sampled"),
        ("", 600.0, "FAILED", "cut_short", "sampled"),
    ],
)
def test_a_job_seen_above_its_limit_was_killed_for_it_where_slurmd_does_that(
    params: str, mem_mib: float, state: str, outcome: str, quality: str
) -> None:
    one = records_of([(job_row(state=state, alloc_mem_mib=512), [step(mem_total_mib=mem_mib)])])
    told = one.jobs.set_column(*column(one.jobs, "gather", f"jobacct_gather/linux{params}"))
    [labelled] = attempts_in(label(type(one)(told, one.steps)))
    use = labelled.use
    assert (use.outcome, use.memory_quality, use.peak_mem_mib) == (outcome, quality, mem_mib)


def column(table: Any, name: str, value: object) -> tuple[int, str, Any]:
    number = table.column_names.index(name)
    return number, name, [[value] * len(table)]


def test_one_node_of_several_holds_no_more_than_its_largest_tasks() -> None:
    packed = srun(0, 0, 50, 0, tasks=8, nodes=2, mem_max_task_mib=100.0, mem_total_mib=800.0)
    uneven = srun(0, 0, 50, 0, tasks=2, nodes=2, mem_max_task_mib=700.0, mem_total_mib=800.0)
    assert (use_of(packed, nodes=2).peak_node_mib, use_of(packed, nodes=2).peak_mem_mib) == (700, 800)
    assert use_of(uneven, nodes=2).peak_node_mib == 700
    assert use_of(step(mem_max_task_mib=100.0, mem_total_mib=250.0)).peak_node_mib == 250
