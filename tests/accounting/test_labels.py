"""What an attempt really used, concluded from its rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.labels import busy_cores, gpus_used, label_attempt, measure_use, peak_memory_mib
from accounting.records import Step
from accounting.request import Grant
from accounting.token import format_token
from tests.builders import T0, decision, gpu_use, job_row, request, step


def srun(number: int, start_s: int, end_s: int, mem_mib: float, **changes: object) -> Step:
    times = {"step_id": str(number), "start_s": T0 + start_s, "end_s": T0 + end_s}
    return step(**times, mem_max_task_mib=mem_mib, mem_total_mib=mem_mib, **changes)


def test_steps_in_sequence_do_not_add_up() -> None:
    assert peak_memory_mib([srun(0, 0, 9, 300), srun(1, 10, 19, 500), srun(2, 20, 29, 400)]) == 500


def test_concurrent_steps_do() -> None:
    assert peak_memory_mib([srun(0, 0, 30, 300), srun(1, 10, 19, 500), srun(2, 25, 29, 400)]) == 800


def test_the_sum_over_tasks_counts_where_it_is_larger_than_the_largest_task() -> None:
    assert peak_memory_mib([step(tasks=4, mem_max_task_mib=100.0, mem_total_mib=400.0)]) == 400
    assert peak_memory_mib([step(mem_max_task_mib=100.0, mem_total_mib=None)]) == 100


def test_a_step_without_an_end_still_counts_itself() -> None:
    assert peak_memory_mib([srun(0, 0, -T0, 300)]) == 300


@pytest.mark.parametrize("nothing", [None, 0.0])
def test_memory_that_was_never_sampled_is_not_zero_use(nothing: float | None) -> None:
    use = measure_use(job_row(), [step(mem_max_task_mib=nothing, mem_total_mib=nothing)], 1)
    assert (use.peak_mem_mib, use.memory_quality) == (None, "absent")


STEPS = st.lists(
    st.builds(
        lambda start, length, mem: srun(0, start, start + length, mem),
        st.integers(0, 50),
        st.integers(0, 50),
        st.floats(1, 1e6),
    ),
    min_size=1,
    max_size=8,
)


@given(STEPS)
def test_the_peak_lies_between_the_largest_step_and_the_sum_of_all(steps: list[Step]) -> None:
    peak = peak_memory_mib(steps)
    each = [one.mem_total_mib or 0.0 for one in steps]
    assert peak is not None
    assert max(each) <= peak <= sum(each) * (1 + 1e-9)


@pytest.mark.parametrize("sampled", [0.0, 100.0, None])
def test_a_job_killed_for_memory_needed_at_least_its_allocation(sampled: float | None) -> None:
    row = job_row(state="OUT_OF_MEMORY", alloc_mem_mib=512)
    use = measure_use(row, [step(state="OUT_OF_MEMORY", mem_max_task_mib=sampled, mem_total_mib=sampled)], 1)
    assert (use.outcome, use.peak_mem_mib, use.memory_quality) == ("out_of_memory", 512, "censored")


def test_more_than_the_allocation_stands_where_it_was_sampled() -> None:
    use = measure_use(job_row(state="OUT_OF_MEMORY", alloc_mem_mib=512), [step(mem_total_mib=600.0)], 1)
    assert use.peak_mem_mib == 600


def test_a_kill_with_nothing_known_about_memory_is_no_evidence_of_small_need() -> None:
    row = job_row(state="OUT_OF_MEMORY", alloc_mem_mib=None)
    use = measure_use(row, [step(mem_max_task_mib=None, mem_total_mib=None)], 1)
    assert (use.outcome, use.peak_mem_mib, use.memory_quality) == ("out_of_memory", None, "absent")


def test_a_failed_job_with_a_killed_step_was_killed_for_memory() -> None:
    failed = job_row(state="FAILED", alloc_mem_mib=512)
    assert measure_use(failed, [step(state="OUT_OF_MEMORY")], 1).outcome == "out_of_memory"
    assert measure_use(failed, [step(state="FAILED")], 1).outcome == "cut_short"


def test_cores_are_cpu_time_over_elapsed_time() -> None:
    use = measure_use(job_row(elapsed_s=100), [step(cpu_s=150.0), srun(0, 0, 100, 1, cpu_s=50.0)], 2)
    assert (use.cores, use.cores_per_task) == (2.0, 1.0)


def test_the_busiest_task_of_a_step_sets_the_cores_of_a_task() -> None:
    uneven = srun(0, 0, 100, 1, tasks=4, cpu_s=400.0, cpu_max_task_s=370.0)
    use = measure_use(job_row(elapsed_s=100), [step(cpu_s=0.0), uneven], 4)
    assert (use.cores, use.cores_per_task) == (4.0, 3.7)


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_job_of_a_second_says_nothing_about_cores(seconds: int) -> None:
    assert busy_cores([step(cpu_s=1.0)], seconds) is None
    assert measure_use(job_row(elapsed_s=seconds), [step(cpu_s=1.0)], 1).cores_per_task is None


def test_tokens_restore_the_request_per_node() -> None:
    asked = request(
        num_tasks=2, cpus_per_task=8, mem_per_node_mib=9000, gpus_per_node=4, script_signature="ab"
    )
    token = format_token(decision(id="d7", request=asked, grant=Grant(cpus_per_task=1), applied=True))
    row = job_row(req_cpus=2, req_mem_mib=512, req_gpus=1, admin_comment=f"other {token}")
    labelled = label_attempt(row, [step()])
    assert (labelled.num_tasks, labelled.asked_cpus, labelled.asked_mem_mib, labelled.asked_gpus) == (
        2,
        16,
        9000,
        4,
    )
    assert (labelled.decision_id, labelled.script_signature) == ("d7", "ab")


def test_tokens_restore_the_request_per_cpu() -> None:
    asked = request(num_tasks=2, cpus_per_task=8, mem_per_cpu_mib=1000)
    row = job_row(req_cpus=2, req_mem_mib=256, admin_comment=format_token(decision(request=asked)))
    assert label_attempt(row, [step()]).asked_mem_mib == 16000


def test_without_a_token_the_request_is_slurms_own_and_tasks_those_of_its_steps() -> None:
    labelled = label_attempt(job_row(), [step(), srun(0, 0, 5, 1, tasks=3), srun(1, 5, 9, 1, tasks=2)])
    assert (labelled.num_tasks, labelled.asked_cpus, labelled.asked_mem_mib) == (3, 8, 8000)
    assert labelled.decision_id == ""


def test_gpu_use_counts_every_gpu_that_was_ever_busy() -> None:
    uses = [
        gpu_use(node="n1", gpu=0),
        gpu_use(node="n1", gpu=1, util_max_pct=0.5),
        gpu_use(node="n2", gpu=0),
        gpu_use(node="n2", gpu=3),
    ]
    assert gpus_used(uses) == (3, "nvml")


def test_a_gpu_whose_meter_paused_is_one_gpu() -> None:
    uses = [gpu_use(first_s=T0 + 10), gpu_use(first_s=T0 + 60), gpu_use(source="dcgm")]
    assert gpus_used(uses) == (1, "dcgm+nvml")


def test_idle_gpus_are_known_to_be_idle_and_unmetered_ones_are_not() -> None:
    assert gpus_used([gpu_use(util_max_pct=0.0)]) == (0, "nvml")
    assert gpus_used([]) == (None, "")
