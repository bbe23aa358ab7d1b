"""Jobs that depend on a job which comes back wait on: only on that job, and only the first time."""

from pathlib import Path

import pytest

from slurm_plugin.recovery.dependents import mended
from slurm_plugin.slurm.job_lines import parse_given_up
from slurm_plugin.slurm.queue import Dependent
from tests.slurm_plugin.recovery.controller import Controller, recoverer
from tests.slurm_plugin.recovery.test_judging import failed


def test_a_dependent_job_waits_on_but_not_after_a_second_failure(tmp_path: Path) -> None:
    gate = Controller(failed())
    gate.dependents = [
        Dependent(job_id=8, uid=1001, dependency="afterok:7(failed)"),
        Dependent(job_id=9, uid=1000, dependency="afterok:6(failed)"),
    ]
    recoverer(gate, tmp_path).round()
    assert [job.dependency for job in gate.dependents] == ["afterok:7", "afterok:6(failed)"]
    gate.fail()
    gate.dependents = [Dependent(job_id=8, uid=1001, dependency="afterok:7(failed)")]
    recoverer(gate, tmp_path).round()
    assert gate.dependents[0].dependency == "afterok:7(failed)"
    gate.run = None
    recoverer(gate, tmp_path).round()
    assert gate.dependents[0].dependency == "afterok:7(failed)"


def test_a_dependent_job_is_not_forgotten_if_recovery_was_cut_off(tmp_path: Path) -> None:
    gate = Controller(failed())
    recoverer(gate, tmp_path).round()
    gate.dependents = [Dependent(job_id=8, uid=1001, dependency="afterok:7(failed)")]
    recoverer(gate, tmp_path).round()
    assert gate.dependents[0].dependency == "afterok:7"


@pytest.mark.parametrize(
    ("dependency", "anew"),
    [
        ("afterok:7(failed)", "afterok:7"),
        # Slurm would fail it again, whatever becomes of the task: that was tried (22.05), and is documented.
        ("afterok:7_*(failed)", ""),
        ("afterok:7_*(failed),afterok:9(unfulfilled)", ""),
        ("aftercorr:7_*(failed)", "aftercorr:7"),
        ("aftercorr:6_*(failed)", ""),
        ("afterok:7_3(failed),afterany:9_*(unfulfilled)", "afterok:7_3,afterany:9"),
        ("aftercorr:7_3(failed)", "aftercorr:7_3"),
        # The other task, or job, failed by itself.
        ("afterok:7_4(failed)", ""),
        ("afterok:7_3(failed),afterok:7_4(failed)", ""),
        ("afterok:7(failed),afterok:5(failed)", ""),
        ("afterok:7(failed),afternotok:5(failed)", ""),
        ("afternotok:7(failed)", ""),
        ("afterok:7(failed)?afterok:5(failed)", "afterok:7"),
        ("afterok:5(failed)?afterok:7_3(failed)?afterok:9(unfulfilled)", "afterok:7_3?afterok:9"),
        ("afterok:7(failed),afterany:5+10(unfulfilled)", "afterok:7,afterany:5+10"),
        ("afterok:7(failed)?afterok:5(unfulfilled)", "afterok:7?afterok:5"),
        ("afterok:7(failed),singleton(unfulfilled)", "afterok:7,singleton"),
        ("afterok:77(failed)", ""),
        ("afterany:7(unfulfilled),afterok:5(failed)", ""),
        ("afterok:7(failed),new:form=3", ""),
        ("", ""),
    ],
)
def test_a_dependency_is_set_again_as_it_was(dependency: str, anew: str) -> None:
    back = {(7, ""), (7, "3"), (6, "4")}
    assert mended(dependency, "3", back) == anew


def test_a_job_that_depends_on_a_whole_array_is_reported_and_not_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Controller(failed(array_job_id=5, array_tasks="1"))
    gate.dependents = [
        Dependent(job_id=8, uid=1001, dependency="afterok:5_*(failed)"),
        Dependent(job_id=9, uid=1001, dependency="afterok:6_*(failed)"),
        Dependent(job_id=10, uid=1001, dependency="afterok:5_1(failed)"),
        # Task 2 failed by itself, and slurmctld may have forgotten it.
        Dependent(job_id=11, uid=1001, dependency="afterok:5_2(failed)"),
    ]
    recoverer(gate, tmp_path).round()
    assert [job.dependency for job in gate.dependents] == [
        "afterok:5_*(failed)",
        "afterok:6_*(failed)",
        "afterok:5_1",
        "afterok:5_2(failed)",
    ]
    [said] = [line for line in caplog.messages if "waits by afterok for all of array" in line]
    assert "job 8 waits by afterok for all of array 5," in said
    assert said.endswith("scontrol update JobId=8 Dependency=")


def test_only_jobs_that_slurm_has_given_up_are_read() -> None:
    lines = (
        "8|1001|PENDING|DependencyNeverSatisfied|8|N/A|afterok:7(failed)",
        "9|1001|PENDING|Dependency|9|N/A|afterok:7(unfulfilled)",
        "10|1001|CANCELLED|DependencyNeverSatisfied|5|0-3%2|afterok:7(failed)",
        "11|1001|CANCELLED|None|11|N/A|",
        # One was requeued by a recovery that was then cut off; the other is held by its user.
        "12|1001|PENDING|job requeued in held state|12|N/A|afterok:7(failed)",
        "13|1001|PENDING|job requeued in held state|13|N/A|",
        "x",
    )
    assert parse_given_up("\n".join(lines)) == [
        Dependent(job_id=8, uid=1001, dependency="afterok:7(failed)"),
        Dependent(
            job_id=10, uid=1001, dependency="afterok:7(failed)", array_job_id=5, tasks="0-3%2", cancelled=True
        ),
        Dependent(job_id=12, uid=1001, dependency="afterok:7(failed)", cancelled=True),
    ]


def test_a_job_cancelled_because_of_a_cancelled_dependent_waits_again_too(tmp_path: Path) -> None:
    gate = Controller(failed())
    gate.dependents = [
        Dependent(job_id=10, uid=1001, dependency="afterok:9_2(failed)", cancelled=True),
        Dependent(
            job_id=8, uid=1001, dependency="afterok:7(failed)", array_job_id=9, tasks="1-2", cancelled=True
        ),
        Dependent(job_id=11, uid=1001, dependency="afterok:6(failed)", cancelled=True),
        Dependent(job_id=12, uid=1001, dependency="afterok:9_3(failed)", cancelled=True),
    ]
    recoverer(gate, tmp_path).round()
    assert [job.dependency for job in gate.dependents] == [
        "afterok:9_2", "afterok:7", "afterok:6(failed)", "afterok:9_3(failed)"
    ]  # fmt: skip


def test_a_job_that_depends_on_one_cancelled_after_its_return_is_left(tmp_path: Path) -> None:
    gate = Controller(failed())
    own = recoverer(gate, tmp_path)
    own.round()
    gate._set(state="CANCELLED")
    gate.dependents = [Dependent(job_id=8, uid=1001, dependency="afterok:7(failed)", cancelled=True)]
    recoverer(gate, tmp_path).round()
    assert [job.dependency for job in gate.dependents] == ["afterok:7(failed)"]
