"""What attempts really used other than memory, and how far that can be trusted, from their records."""

import dataclasses
import itertools
from typing import Any

import pyarrow as pa
import pytest

from accounting.decisions.token import format_token
from accounting.frames import ATTEMPTS, attempts_in
from accounting.labels.attempts import label
from accounting.records import JobRow, Use
from accounting.store import schema
from tests.builders import (
    T0,
    Step,
    attempt,
    decision,
    job_row,
    label_attempt,
    records_of,
    request,
    srun,
    step,
)


def use_of(*steps: Step, **changes: Any) -> Use:
    """What an attempt of 100 s with these steps used."""
    return label_attempt(job_row(**changes), steps).use


def test_labels_fill_the_table_of_attempts() -> None:
    assert ATTEMPTS.names == [column.name for column in schema.attempts.columns]


def test_cores_are_cpu_time_over_elapsed_time() -> None:
    labelled = label_attempt(
        job_row(elapsed_s=100), [step(cpu_s=150.0), srun(0, 0, 100, 1, cpu_s=50.0, tasks=2)]
    )
    assert (labelled.use.cores, labelled.use.cores_per_task, labelled.use.cores_quality) == (
        2.0,
        1.0,
        "exact",
    )


def test_the_busiest_task_of_a_step_sets_the_cores_per_task() -> None:
    uneven = srun(0, 0, 100, 1, tasks=4, cpu_s=400.0, cpu_max_task_s=370.0)
    use = use_of(step(cpu_s=0.0), uneven, elapsed_s=100)
    assert (use.cores, use.cores_per_task) == (4.0, 3.7)


def test_a_batch_script_is_one_task_to_slurm_whatever_it_started() -> None:
    by_mpi = step(cpu_s=400.0, cpu_max_task_s=400.0)
    asked = format_token(decision(request=request(num_tasks=4)))
    assert label_attempt(job_row(admin_comment=asked), [by_mpi]).use.cores_per_task == 1.0
    assert use_of(step(cpu_s=50.0, cpu_max_task_s=50.0)).cores_per_task == 0.5


def test_the_time_that_a_job_was_suspended_does_not_count_for_its_steps() -> None:
    """Slurm leaves suspended time out of a job's elapsed time, but it lies between the start and end of its steps."""
    uneven = srun(0, 0, 1000, 1, tasks=4, cpu_s=400.0, cpu_max_task_s=370.0)
    use = use_of(step(cpu_s=0.0), uneven, elapsed_s=100)
    assert (use.cores, use.cores_per_task) == (4.0, 3.7)
    brief = use_of(srun(0, 0, 1000, 1, cpu_s=8.0), elapsed_s=9)
    assert brief.memory_quality == use_of(srun(0, 0, 9, 1, cpu_s=8.0), elapsed_s=9).memory_quality


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_job_of_one_second_says_nothing_about_cores(seconds: int) -> None:
    use = use_of(srun(0, 0, seconds, 200.0, cpu_s=1.0), elapsed_s=seconds)
    assert (use.cores, use.cores_per_task, use.cores_quality) == (None, None, "short")


def test_two_seconds_say_how_many_cores_were_busy() -> None:
    two = srun(0, 0, 2, 1, tasks=4, cpu_s=4.0, cpu_max_task_s=3.0)
    use = use_of(two, elapsed_s=2)
    assert (use.cores, use.cores_per_task, use.cores_quality) == (2.0, 1.5, "exact")


def test_the_busiest_task_may_be_in_any_component_of_a_step() -> None:
    parts = [
        srun(0, 0, 100, 1, step_id=f"0+{at}", cpu_s=cpu_s, cpu_max_task_s=cpu_s)
        for at, cpu_s in enumerate((50.0, 600.0))
    ]
    assert (
        use_of(*parts, admin_comment=format_token(decision(request=request(num_tasks=8)))).cores_per_task
        == 6.0
    )


def test_cpu_time_of_zero_is_unknown_where_nothing_was_gathered() -> None:
    off = step(cpu_s=0.0, mem_max_task_mib=None, mem_total_mib=None)
    use = use_of(off, srun(0, 0, 90, None, cpu_s=0.0))
    assert (use.cores, use.cores_per_task, use.cores_quality) == (None, None, "absent")
    asleep = use_of(step(cpu_s=0.0, mem_max_task_mib=0.2, mem_total_mib=0.2))
    assert (asleep.cores, asleep.cores_quality) == (0.0, "exact")
    assert use_of(off, srun(0, 0, 90, None, cpu_s=50.0)).cores == 0.5


def test_the_use_of_an_attempt_with_a_step_without_figures_is_not_known() -> None:
    """A step's slurmstepd was killed: nothing is left of what the step used, only what its batch script did."""
    batch = step(cpu_s=0.1, gpu_util_pct=0.0, gpu_mem_mib=0.0)
    for end_s in (90, -T0):
        use = use_of(batch, srun(0, 0, end_s, None, cpu_s=0.0), state="TIMEOUT", alloc_gpus=1)
        assert (use.memory_quality, use.cores, use.cores_quality, use.gpus) == ("short", None, "absent", None)
    # A step that ended before it was sampled may have no figure, nor what only waits for others.
    waits = step(step_id="extern", mem_max_task_mib=None, mem_total_mib=None, cpu_s=0.0)
    for other in (srun(0, 0, 30, None, cpu_s=0.0), waits):
        whole = use_of(batch, other, alloc_gpus=1)
        assert (whole.memory_quality, whole.cores_quality, whole.gpus) == ("sampled", "exact", 0)


def test_cpu_time_of_a_lost_node_was_only_sampled() -> None:
    assert use_of(step(), state="NODE_FAIL").cores_quality == "sampled"
    assert use_of(state="NODE_FAIL").cores_quality == "absent"


@pytest.mark.parametrize(
    ("state", "quality"),
    [("COMPLETED", "exact"), ("TIMEOUT", "censored"), ("FAILED", "censored"), ("CANCELLED by 7", "censored")],
)
def test_the_wall_time_of_an_attempt_that_was_cut_off_is_a_lower_bound(state: str, quality: str) -> None:
    assert use_of(step(), state=state).wall_quality == quality
    assert use_of(state=state).wall_quality == quality, "slurmdbd has purged its steps"


@pytest.mark.parametrize("start_s", [0, T0], ids=["never", "as_it_was_cancelled"])
def test_the_use_of_an_attempt_that_never_started_is_unknown(start_s: int) -> None:
    use = use_of(state="CANCELLED by 1000", start_s=start_s, elapsed_s=0)
    assert (use.wall_quality, use.memory_quality, use.cores_quality, use.io_quality) == ("absent",) * 4


@pytest.mark.parametrize("state", ["NODE_FAIL", "BOOT_FAIL"])
def test_an_attempt_that_waited_for_a_node_that_never_came_up_has_not_run(state: str) -> None:
    """Slurm (22.05, 24.11) records: started when the job got its node, ended by ResumeTimeout, and no step."""
    use = use_of(state=state, elapsed_s=47)
    assert (use.outcome, use.wall_quality, use.memory_quality) == ("cut_short", "absent", "absent")
    # If the node had failed during the run, steps would be left, without any use.
    lost = use_of(step(mem_max_task_mib=None, mem_total_mib=None, cpu_s=0.0), state=state, elapsed_s=47)
    assert lost.wall_quality == "censored"


def test_an_attempt_that_ended_within_its_first_second_has_run_if_it_has_a_step() -> None:
    use = use_of(step(), state="CANCELLED by 1000", elapsed_s=0)
    assert (use.wall_quality, use.memory_quality) == ("censored", "short")


def test_an_attempt_that_was_only_closed_says_nothing_of_its_run() -> None:
    """`sacctmgr show runawayjobs` makes jobs whose end was lost COMPLETED, with their start as their end."""
    closed = srun(0, 0, 0, None, cpu_s=0.0)
    use = use_of(closed, elapsed_s=0)
    assert (use.wall_quality, use.memory_quality, use.cores_quality) == ("absent",) * 3
    # Its first step had ended in time.
    assert (
        use_of(srun(0, 0, 90, 300.0), srun(1, 90, 90, None, cpu_s=0.0), elapsed_s=0).wall_quality == "absent"
    )
    # These did end within a second.
    assert use_of(srun(0, 0, 0, None, cpu_s=0.001), elapsed_s=0).wall_quality == "exact"
    assert use_of(srun(0, 0, 0, 0.0, cpu_s=0.0), elapsed_s=0).wall_quality == "exact"


def test_an_attempt_of_no_second_has_run_where_nothing_is_gathered() -> None:
    records = records_of([(job_row(elapsed_s=0), [srun(0, 0, 0, None, cpu_s=0.0)])])
    for gather, quality in (("jobacct_gather/none", "exact"), ("jobacct_gather/linux", "absent")):
        place = records.jobs.schema.get_field_index("gather")
        jobs = records.jobs.set_column(place, "gather", pa.array([gather]))
        assert label(dataclasses.replace(records, jobs=jobs))["wall_quality"].to_pylist() == [quality]


def test_input_output_and_energy_are_those_of_all_steps() -> None:
    two = [
        step(read_mib=3.0, written_mib=1.0, energy_j=50.0),
        srun(0, 0, 9, 1, read_mib=4.0, energy_j=25.0),
    ]
    use = use_of(*two)
    assert (use.read_mib, use.written_mib, use.io_quality) == (7.0, 1.0, "sampled")
    assert (use.energy_j, use.energy_quality) == (75.0, "sampled")
    assert (use_of(step(energy_j=0.0)).energy_j, use_of(step()).io_quality) == (None, "absent")
    # A step too short to be sampled twice does not show that it read nothing.
    assert use_of(step(), elapsed_s=5).io_quality == "short"
    # A sacct that does not know what steps wrote still reports what they read.
    assert use_of(step(read_mib=3.0)).io_quality == "sampled"


@pytest.mark.parametrize("of_job_j", [100.0, 0.0, None])
def test_energy_that_every_step_measured_counts_once(of_job_j: float | None) -> None:
    """A batch job with one srun: Slurm's figure for the job is its extern step's; all three steps are on one node."""
    records = records_of(
        [
            (
                job_row(),
                [
                    step(energy_j=99.0),
                    step(step_id="extern", energy_j=100.0),
                    srun(0, 0, 99, 1, energy_j=98.0),
                ],
            )
        ]
    )
    of_job = pa.array([of_job_j], pa.float64())
    jobs = records.jobs.set_column(records.jobs.schema.get_field_index("energy_j"), "energy_j", of_job)
    [found] = attempts_in(label(dataclasses.replace(records, jobs=jobs), {}))
    assert (found.use.energy_j, found.use.energy_quality) == (100.0, "sampled")


def test_rows_of_many_jobs_become_the_same_attempts() -> None:
    rows: list[tuple[JobRow, list[Step]]] = [
        (job_row(job_id=number, state=state), [step()] * count)
        for number, (state, count) in enumerate(
            itertools.product(["COMPLETED", "FAILED", "REQUEUED"], [0, 1, 2])
        )
    ]
    assert [one.row for one in attempts_in(label(records_of(rows)))] == [row for row, _ in rows]
    assert attempts_in(label(records_of([]))) == []
    assert attempt().use.memory_quality == "sampled"
