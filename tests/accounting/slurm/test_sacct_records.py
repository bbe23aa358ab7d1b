"""The meaning of sacct's answers: rows and their steps, and whether all have arrived."""

from typing import Any

import msgspec
import numpy as np
import pytest

from accounting.errors import SlurmError
from accounting.frames import Records, attempts_in
from accounting.labels.attempts import label
from accounting.records import Attempt, Quarantined
from accounting.slurm.sacct import DELIMITER, FIGURES
from accounting.slurm.sacct_groups import SETTLED_S
from accounting.slurm.sacct_records import Metering, read_answer
from tests.builders import T0, SacctRow, answer_of, job_line, printed, step_line

UNTIL_S = T0 + 10**6
METERING = Metering(release="24.11", gather="jobacct_gather/linux")


def read(*rows: SacctRow, most_jobs: int = 1000) -> list[Records]:
    return list(read_answer(answer_of(rows), UNTIL_S, METERING, most_jobs=most_jobs))


def attempts(*rows: SacctRow) -> list[Attempt]:
    [records] = read(*rows)
    assert not records.quarantined
    return attempts_in(label(records))


def test_a_job_and_its_steps_are_read() -> None:
    energy: dict[str, Any] = {"ConsumedEnergyRaw": "700", "TRESUsageOutTot": "fs/disk=1048576"}
    [records] = read(job_line(7), step_line(7), step_line(7, "0", NTasks="4", NNodes="2", **energy))
    [attempt] = attempts_in(label(records))
    row = attempt.row
    assert (row.job_id, row.user, row.job_name, row.state) == (7, "alice", "fit", "COMPLETED")
    assert (row.req_cpus, row.req_mem_mib, row.alloc_cpus, row.limit_s) == (8, 8000, 8, 3600)
    assert (row.submit_s, row.start_s, row.end_s, row.elapsed_s) == (T0, T0 + 10, T0 + 110, 100)
    assert (attempt.slurm_release, attempt.gather) == ("24.11", "jobacct_gather/linux")
    batch, srun = records.steps.to_pylist()
    assert (batch["step_id"], batch["mem_total_mib"], batch["cpu_s"], batch["tasks"]) == ("batch", 200, 90, 1)
    assert (srun["step_id"], srun["tasks"], srun["nodes"]) == ("0", 4, 2)
    assert (srun["written_mib"], srun["energy_j"], attempt.use.energy_j) == (1, 700, 700)
    assert (records.quarantined, records.unfinished) == ((), 0)


def test_a_steps_figures_are_those_of_all_its_tasks_or_of_the_one_with_most() -> None:
    """CPU time of one task and its GPU's use are the highest; memory, GPU memory and what was read are of all."""
    usage: dict[str, Any] = {
        "TRESUsageInMax": "cpu=00:01:00,mem=104857600,gres/gpumem=1048576,gres/gpuutil=40,fs/disk=2097152",
        "TRESUsageInTot": "cpu=00:03:00,mem=314572800,gres/gpumem=3145728,gres/gpuutil=90,fs/disk=6291456",
    }
    [records] = read(job_line(7), step_line(7, "0", NTasks="3", MaxRSS=str(100 * 1024**2), **usage))
    [step] = records.steps.to_pylist()
    assert (step["cpu_max_task_s"], step["gpu_util_pct"], step["mem_max_task_mib"]) == (60, 40, 100)
    assert (step["mem_total_mib"], step["gpu_mem_mib"], step["read_mib"]) == (300, 3, 6)


def test_attempts_of_a_requeued_job_keep_their_own_steps() -> None:
    [records] = read(
        job_line(7, State="REQUEUED"),
        step_line(7, MaxRSS="1048576", TRESUsageInTot="mem=1048576"),
        job_line(7, start_s=T0 + 500),
        step_line(7, start_s=T0 + 500),
        step_line(7, "extern", start_s=T0 + 500),
    )
    assert records.jobs["start_s"].to_pylist() == [T0 + 10, T0 + 500]
    assert records.steps["job"].to_pylist() == [0, 1, 1]
    assert records.steps["mem_total_mib"].to_pylist() == [1, 200, 200]


def test_a_step_never_goes_to_another_job() -> None:
    [records] = read(step_line(6), job_line(7), step_line(70), step_line(8), step_line(7))
    assert records.jobs["job_id"].to_pylist() == [7]
    assert records.steps["step_id"].to_pylist() == ["batch"]
    assert [item.reason for item in records.quarantined] == ["a step without a job"] * 3


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "SOMETHING_NEW"])
def test_unfinished_jobs_are_counted_and_left_for_later(state: str) -> None:
    [records] = read(job_line(7, State=state, End="Unknown"), step_line(7), job_line(8), step_line(8))
    assert records.jobs["job_id"].to_pylist() == [8]
    assert (records.steps["job"].to_pylist(), records.unfinished) == ([0], 1)


ODD_ENDS = [
    ({"State": "LAUNCH_FAILED"}, "in an unknown state"),
    ({"State": "SOMETHING_NEW"}, "in an unknown state"),
    ({"State": "RESIZING"}, "RESIZING"),
    ({"Partition": ""}, "no partition"),
    ({"Partition": "", "State": "CANCELLED by 0"}, "no partition"),
    ({"Partition": "", "ElapsedRaw": "0"}, "no partition"),
]


@pytest.mark.parametrize(("changes", "reason"), ODD_ENDS)
def test_a_record_that_is_over_and_cannot_be_read_is_quarantined(
    changes: dict[str, Any], reason: str
) -> None:
    [records] = read(job_line(7, **changes), step_line(7), job_line(8), step_line(8))
    assert (records.jobs["job_id"].to_pylist(), records.unfinished) == ([8], 0)
    [item] = records.quarantined
    assert reason in item.reason
    assert item.line.count("\n") == 1, "with its step"


@pytest.mark.parametrize(("changes", "_reason"), ODD_ENDS)
def test_a_record_that_was_over_just_now_may_still_be_written_completely(
    changes: dict[str, Any], _reason: str
) -> None:
    answer = answer_of([job_line(7, **changes)])
    [records] = read_answer(answer, T0 + 110 + SETTLED_S - 1, METERING)
    assert (records.quarantined, records.unfinished) == ((), 1)
    # The next window would not contain it: it is asked for long afterwards.
    [records] = read_answer(answer, T0 + 110, METERING, asked_s=T0 + 1000)
    assert (len(records.quarantined), records.unfinished) == (1, 0)


def test_a_job_that_ended_after_the_window_is_left_to_its_own_window() -> None:
    answer = answer_of([job_line(7), job_line(8, State="NO_SUCH_STATE", start_s=T0 + 20), step_line(8)])
    [records] = read_answer(answer, T0 + 110, METERING, asked_s=T0 + 1000)
    assert records.jobs["job_id"].to_pylist() == [7]
    assert (records.quarantined, records.unfinished) == ((), 0)


def step_1_of(job_id: int) -> SacctRow:
    return step_line(job_id, "1", start_s=T0 + 110, seconds=50)


# What came after `scontrol update jobid=… numnodes=1`, as seen; the record before it may be in another window.
RESTS = {
    "22.05": [job_line(7, seconds=150, Submit=str(T0 + 110)), step_1_of(7)],
    "24.11": [job_line(7, T0 + 110, 50, Submit=str(T0 + 110)), step_1_of(7)],
}
BEFORE = [job_line(7, State="RESIZING"), step_line(7, State="RESIZING"), step_line(7, "0")]


@pytest.mark.parametrize("rest", RESTS.values(), ids=RESTS)
@pytest.mark.parametrize("before", [BEFORE, []], ids=["with what was before", "alone"])
def test_the_record_after_a_resize_is_no_job_of_its_own(rest: list[SacctRow], before: list[SacctRow]) -> None:
    [records] = read(*before, *rest, job_line(8), step_line(8))
    assert (records.jobs["job_id"].to_pylist(), records.unfinished) == ([8], 0)
    assert sum("its size was changed" in item.reason for item in records.quarantined) == 1
    [fresh] = read_answer(answer_of(rest), T0 + 165, METERING)
    assert (len(fresh.jobs), fresh.quarantined, fresh.unfinished) == (0, (), 1), "steps may be on their way"


def test_the_record_after_a_resize_may_have_no_step() -> None:
    # On 26.05 all steps belong to the record before.
    rest = job_line(7, T0 + 110, 50, Submit=str(T0 + 110))
    [records] = read(*BEFORE, rest, job_line(8, T0 + 110, Submit=str(T0 + 110)))
    assert records.jobs["job_id"].to_pylist() == [8]


@pytest.mark.parametrize(
    ("job", "steps"),
    [
        ({}, ["batch", "1", "2"]),
        ({}, ["0", "1"]),
        ({}, ["interactive", "1"]),
        ({}, []),
        ({"Submit": str(T0 + 9)}, ["1"]),  # its first step may never have come
        ({"JobID": "6+1"}, ["1"]),  # srun --het-group=1
    ],
)
def test_a_job_that_starts_at_once_is_taken(job: dict[str, Any], steps: list[str]) -> None:
    own = {"Submit": str(T0 + 10), **job}
    [records] = read(job_line(7, **own), *(step_line(7, name) for name in steps))
    assert (len(records.jobs), records.quarantined) == (1, ())


def test_a_job_that_ended_within_its_first_second_is_taken() -> None:
    [records] = read(job_line(7, seconds=0, State="FAILED"), step_line(7, seconds=0, State="FAILED"))
    assert (len(records.jobs), len(records.steps), records.quarantined) == (1, 1, ())


@pytest.mark.parametrize("state", ["CANCELLED by 1000", "DEADLINE", "PENDING", "REQUEUE_HOLD"])
@pytest.mark.parametrize("start", ["None", "0", str(T0 + 110)])
def test_jobs_that_never_ran_are_not_quarantined(state: str, start: str) -> None:
    [records] = read(
        job_line(7, State=state, Start=start, ElapsedRaw="0", Partition="", AllocTRES=""), job_line(8)
    )
    assert (records.jobs["job_id"].to_pylist(), records.quarantined) == ([8], ())


def test_a_job_that_ended_after_the_window_belongs_to_a_later_one() -> None:
    answer = answer_of([job_line(7), job_line(8, start_s=T0 + 500)])
    [records] = read_answer(answer, T0 + 200, METERING)
    assert records.jobs["job_id"].to_pylist() == [7]


def test_a_job_cancelled_before_it_started_has_no_start() -> None:
    [attempt] = attempts(job_line(7, State="CANCELLED by 1000", Start="None", ElapsedRaw="0", AllocTRES=""))
    assert (attempt.row.start_s, attempt.row.alloc_cpus, attempt.use.outcome) == (0, None, "cut_short")


@pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", ""])
def test_a_missing_time_limit_is_none(limit: str) -> None:
    assert attempts(job_line(TimelimitRaw=limit))[0].row.limit_s is None


@pytest.mark.parametrize(
    "changes",
    [
        {"Cluster": f"a{DELIMITER}b"},
        {"Cluster": "two\nlines"},
        {"JobIDRaw": "12_3"},
        {"JobIDRaw": ""},
        {"JobIDRaw": "9" * 30},
        {"Submit": "Unknown"},
        {"End": str(T0)},
    ],
)
def test_a_malformed_line_is_quarantined_and_the_rest_is_read(changes: dict[str, Any]) -> None:
    [records] = read(job_line(7, **changes), job_line(8), step_line(8))
    assert records.jobs["job_id"].to_pylist() == [8]
    assert records.steps["job"].to_pylist() == [0]
    assert records.quarantined
    assert all(item.reason and item.source == "sacct" for item in records.quarantined)


def columns_of(rows: list[SacctRow], columns: str) -> bytes:
    """Print as `sacct --noheader --parsable2 --format=` does."""
    return "".join("|".join(row[name] for name in columns.split(",")) + "\n" for row in rows).encode()


def ended_long_ago(
    rows: list[SacctRow], figures: list[SacctRow], told: list[SacctRow] | None = None
) -> list[Records]:
    """What is read where Slurm has `rows`, says `told` of the window (None: all), and only `figures` arrive."""

    def one_id(display_id: str, column: str) -> bytes:
        return columns_of([row for row in rows if row["JobIDRaw"].partition(".")[0] == display_id], column)

    answer = answer_of(rows if told is None else told)
    answer = msgspec.structs.replace(answer, figures=printed(FIGURES, figures), one_id=one_id)
    return list(read_answer(answer, UNTIL_S, METERING))


def test_steps_of_a_job_are_not_those_of_one_whose_number_begins_alike() -> None:
    rows = [job_line(80), step_line(80), job_line(8), step_line(8)]
    with pytest.raises(SlurmError, match="steps of job 8 missing"):
        ended_long_ago(rows, rows[:3])


@pytest.mark.parametrize(
    "later",
    [
        [job_line(8, Submit=str(T0 + 200), State="PENDING", Start="Unknown", End="Unknown")],
        [job_line(8, Submit=str(T0 + 200), start_s=UNTIL_S + 500), step_line(8, start_s=UNTIL_S + 500)],
    ],
)
def test_an_attempt_outside_the_window_is_not_missing(later: list[SacctRow]) -> None:
    """Asked by number, sacct also prints attempts that wait or began later; all steps of the one in it are required."""
    window = [job_line(7), step_line(7), job_line(8, State="REQUEUED"), step_line(8)]
    [records] = ended_long_ago([*window, *later], window, told=window)
    assert records.jobs["job_id"].to_pylist() == [7, 8]
    with pytest.raises(SlurmError, match="steps of job 8 missing"):
        ended_long_ago([*window, *later], window[:3], told=window)


@pytest.mark.parametrize(
    "last", [job_line(8, State="RUNNING", End="Unknown"), job_line(8, start_s=UNTIL_S - 105)]
)
def test_steps_that_came_between_the_answers_are_not_missing(last: SacctRow) -> None:
    rows = [job_line(7), step_line(7), last, step_line(8)]
    [records] = ended_long_ago(rows, rows[:3])
    assert len(records.jobs) + records.unfinished == 2


def test_a_job_that_left_the_window_between_the_answers_is_not_missing() -> None:
    stayed = [job_line(7), step_line(7)]

    def one_id(display_id: str, column: str) -> bytes:
        return columns_of(stayed if display_id == "7" else [job_line(8, start_s=UNTIL_S + 500)], column)

    answer = msgspec.structs.replace(answer_of([*stayed, job_line(8)]), figures=printed(FIGURES, stayed))
    [records] = read_answer(msgspec.structs.replace(answer, one_id=one_id), UNTIL_S, METERING)
    assert records.jobs["job_id"].to_pylist() == [7]


@pytest.mark.parametrize("odd", ["fit", "a\nb"])
def test_figures_that_end_early_are_refused(odd: str) -> None:
    rows = [job_line(7), step_line(7), job_line(8, JobName=odd), step_line(8)]
    assert len(ended_long_ago(rows, rows)[0].jobs) == 2
    with pytest.raises(SlurmError, match="steps of job 8 missing"):
        ended_long_ago(rows, rows[:3])
    with pytest.raises(SlurmError, match="job 8 missing"):
        ended_long_ago(rows, rows[:2])
    with pytest.raises(SlurmError, match="job 8 missing"):
        ended_long_ago(rows, [])


def test_a_record_is_known_by_its_digest_until_any_part_of_it_changes() -> None:
    rows = [job_line(number) for number in range(5)] + [step_line(4)]
    [records] = read(*rows)
    known = np.array(records.jobs["digest"].to_pylist(), dtype=np.int64)
    assert len(set(known.tolist())) == 5
    rows[1]["AdminComment"] = "a summary came later"
    rows[5]["MaxRSS"] = "1"
    [again] = read_answer(answer_of(rows), UNTIL_S, METERING, known)
    assert (again.jobs["job_id"].to_pylist(), again.known) == ([1, 4], 3)
    assert again.steps["job"].to_pylist() == [1]


@pytest.mark.parametrize("most_jobs", [1, 2, 3, 7, 100])
def test_many_jobs_come_in_parts(most_jobs: int) -> None:
    rows = [row for number in range(7) for row in (job_line(number), *[step_line(number)] * (number % 3))]
    parts = read(*rows, step_line(99), most_jobs=most_jobs)
    assert [number for part in parts for number in part.jobs["job_id"].to_pylist()] == list(range(7))
    assert [item for part in parts for item in part.quarantined] == [
        Quarantined(
            line=DELIMITER.join(step_line(99)[name] for name in FIGURES),
            reason="a step without a job",
            source="sacct",
        )
    ]
    [whole] = read(*rows, step_line(99))
    labelled = [one for part in parts for one in attempts_in(label(part))]
    assert labelled == attempts_in(label(whole))


def test_an_empty_answer_gives_no_records() -> None:
    [records] = read()
    assert (len(records.jobs), len(records.steps), records.quarantined) == (0, 0, ())
