"""What accounting adds to slurmctld's record of a run; it is asked once for all jobs of a round."""

import msgspec
import pytest

from accounting.errors import SlurmError
from accounting.request import Grant
from slurm_plugin.recovery.judging import cause_of
from slurm_plugin.slurm import requeuing, scontrol_queue
from slurm_plugin.slurm.accounted_runs import EARLIER_RUNS, HOW_BUSY, STEPS, Question, lines_by_job
from slurm_plugin.slurm.queue import Failed
from tests.slurm_plugin.recovery.test_judging import GRANT, failed, token


def answered(question: Question, run: Failed, said: str) -> Failed:
    return question.answered(run, lines_by_job(said).get(run.job.job_id, []))


def test_accounting_is_asked_once_for_many_jobs_that_are_pending_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each gets its own answer, and jobs with another question get the answer to that."""
    runs = {n: failed("PENDING", "0:0", restarts=1, job_id=n) for n in range(1, 101)}
    runs[101] = failed("TIMEOUT", "0:0", job_id=101, admin_comment=token(grant=GRANT))
    asked: list[tuple[str, ...]] = []

    def ask(*command: str) -> str:
        asked.append(command)
        return "".join(f"{n}|REQUEUED\n{n}.batch|{'OUT_OF_MEMORY' if n % 2 else 'CANCELLED'}\n" for n in runs)

    monkeypatch.setattr(scontrol_queue, "show_jobs", lambda jobs, *_, **__: [str(job) for job in jobs])
    monkeypatch.setattr(requeuing, "parse_failed", lambda _, job_id: runs.get(job_id))
    monkeypatch.setattr(scontrol_queue, "_ask", ask)
    found = scontrol_queue.ScontrolQueue().failed_of([*runs, 102])
    killed = {job for job, run in found.items() if run and "0:125" in run.exit_codes}
    assert killed == set(range(1, 100, 2))
    assert found.keys() == {*runs, 102}
    assert found[102] is None
    assert [command[3] for command in asked] == [",".join(map(str, range(1, 101))), "101"]


def test_accounting_adds_the_highest_exit_code_of_the_steps() -> None:
    """Asked for an array's id, which is that of its last task, sacct answers for all tasks."""
    said = "18|0:0\n17|0:125\n\n"
    codes = [answered(STEPS, failed("FAILED", "1:0", job_id=job), said).exit_codes for job in (17, 18, 19)]
    assert codes == [("1:0", "0:125"), ("1:0", "0:0"), ("1:0",)]
    assert answered(STEPS, failed("FAILED", "1:0", job_id=17), "17|\n").exit_codes == ("1:0",)


def test_a_run_is_what_slurmctld_shows_if_accounting_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    run = msgspec.structs.replace(failed("FAILED", job_id=3), steps_elsewhere=True)
    monkeypatch.setattr(scontrol_queue, "_last_run", lambda _: run)
    monkeypatch.setattr(scontrol_queue, "_ask", lambda *_: "3|0:125\n")
    found = scontrol_queue.ScontrolQueue().failed(3)
    assert found is not None
    assert found.exit_codes == (*run.exit_codes, "0:125")

    def silent(*_: str) -> str:
        raise SlurmError("sacct does not answer; check slurmdbd")

    monkeypatch.setattr(scontrol_queue, "_ask", silent)
    assert scontrol_queue.ScontrolQueue().failed(3) == run


def test_an_accounting_that_does_not_answer_is_asked_no_other_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each one may take most of a minute to fail, and slurmctld forgets other jobs of the same round meanwhile."""
    runs = {
        1: failed("TIMEOUT", "0:0", job_id=1),
        2: failed("PENDING", "0:0", restarts=1, job_id=2),
        3: failed("FAILED", "137:0", "0:9", job_id=3),
        4: failed("OUT_OF_MEMORY", job_id=4),
    }
    asked: list[str] = []

    def silent(*command: str) -> str:
        asked.append(command[0])
        raise SlurmError("sacct does not answer; check slurmdbd")

    monkeypatch.setattr(scontrol_queue, "show_jobs", lambda jobs, *_, **__: [str(job) for job in jobs])
    monkeypatch.setattr(requeuing, "parse_failed", lambda _, job_id: runs[job_id])
    monkeypatch.setattr(scontrol_queue, "_ask", silent)
    assert scontrol_queue.ScontrolQueue().failed_of([*runs]) == runs
    assert asked == ["sacct"]


# `sacct -nPD -j 3 --format=JobIDRaw,State` of 22.05: the job's script requeued it after its program was killed.
RUNS = "3|REQUEUED\n3.batch|OUT_OF_MEMORY\n3|PENDING\n"


@pytest.mark.parametrize(
    ("said", "job_id", "code"),
    [
        (RUNS, 3, "0:125"),
        (RUNS.replace("OUT_OF_MEMORY", "COMPLETED"), 3, None),
        # A row of another job, whose id begins with the same digit.
        (RUNS.replace("3.batch", "31.batch"), 3, None),
        ("", 3, None),
    ],
)
def test_the_exit_code_that_accounting_adds_from_earlier_runs(
    said: str, job_id: int, code: str | None
) -> None:
    run = failed("PENDING", "0:0", restarts=1, job_id=job_id)
    assert answered(EARLIER_RUNS, run, said).exit_codes == ("0:0", *([code] if code else []))


@pytest.mark.parametrize(
    ("said", "share"),
    [
        ("3|00:07.553|24|1\n", 7.553 / 24),
        ("3|1-00:00:00|43200|8\n", 0.25),
        ("33|00:07.553|24|1\n3|00:00.600|24|1\n", 0.025),
        # Not measured; too short; did not run; sacct is silent, or prints something else.
        ("3|00:00:00|24|1\n", None),
        ("3|00:00.600|9|1\n", None),
        ("3|00:00.600|24|0\n", None),
        ("", None),
        ("3|x|24|1\n3|24\n", None),
    ],
)
def test_accounting_says_how_busy_a_run_kept_its_cpus(said: str, share: float | None) -> None:
    found = answered(HOW_BUSY, failed("TIMEOUT", job_id=3), said).busy_share
    assert found == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("state", "grant", "share"),
    [
        ("TIMEOUT", GRANT, 0.5),
        ("TIMEOUT", Grant(mem_per_node_mib=500), None),
        ("FAILED", GRANT, None),
    ],
)
def test_accounting_is_asked_how_busy_a_job_was_that_timed_out_with_fewer_cpus(
    monkeypatch: pytest.MonkeyPatch, state: str, grant: Grant, share: float | None
) -> None:
    run = failed(state, "0:0", job_id=3, admin_comment=token(grant=grant))
    monkeypatch.setattr(scontrol_queue, "_last_run", lambda _: run)
    monkeypatch.setattr(scontrol_queue, "_ask", lambda *_: "3|00:20|40|1\n")
    found = scontrol_queue.ScontrolQueue().failed(3)
    assert found == msgspec.structs.replace(run, busy_share=share)


@pytest.mark.parametrize(
    ("state", "restarts", "code"),
    [("PENDING", 1, ("0:0", "0:125")), ("PENDING", 0, ("0:0",)), ("FAILED", 1, ("0:0",))],
)
def test_accounting_is_asked_how_the_steps_ended_of_a_job_that_is_pending_again(
    monkeypatch: pytest.MonkeyPatch, state: str, restarts: int, code: tuple[str, ...]
) -> None:
    run = failed(state, "0:0", restarts=restarts, job_id=3)
    monkeypatch.setattr(scontrol_queue, "_last_run", lambda _: run)
    monkeypatch.setattr(scontrol_queue, "_ask", lambda *command: RUNS if command[0] == "sacct" else "")
    found = scontrol_queue.ScontrolQueue().failed(3)
    assert found is not None
    assert found.exit_codes == code
    ours = msgspec.structs.replace(
        run, job=msgspec.structs.replace(run.job, admin_comment="of somebody else")
    )
    monkeypatch.setattr(scontrol_queue, "_last_run", lambda _: ours)
    assert scontrol_queue.ScontrolQueue().failed(3) == ours


# `sacct -nP -j 3 --format=JobIDRaw,ExitCode` of 22.05: a step ended in a preemption, and then the job ran again.
AGAIN = "3|1:0\n3.batch|1:0\n"


@pytest.mark.parametrize(
    ("codes", "restarts", "said", "cause"),
    [
        (("1:0", "0:9"), 1, AGAIN, None),
        (("1:0", "137:0"), 2, AGAIN, None),
        (("1:0", "0:9"), 1, AGAIN + "3.0|0:9\n", "killed"),
        (("1:0", "0:9"), 1, AGAIN + "3.0|0:125\n", "out_of_memory"),
        # slurmctld itself knows about the only run of a job, and about a script that was killed.
        (("1:0", "0:9"), 0, AGAIN, "killed"),
        (("0:9", "0:9"), 1, AGAIN, "killed"),
        # Accounting has no steps, or does not answer.
        (("1:0", "0:9"), 1, "3|1:0\n", "killed"),
        (("1:0", "0:9"), 1, "", "killed"),
    ],
)
def test_a_kill_in_an_earlier_run_does_not_count_for_the_last_one(
    monkeypatch: pytest.MonkeyPatch, codes: tuple[str, ...], restarts: int, said: str, cause: str | None
) -> None:
    run = failed("FAILED", *codes, restarts=restarts, job_id=3)
    monkeypatch.setattr(scontrol_queue, "_last_run", lambda _: run)
    monkeypatch.setattr(scontrol_queue, "_ask", lambda *_: said)
    found = scontrol_queue.ScontrolQueue().failed(3)
    assert found is not None
    assert cause_of(found) == cause


# `sacct -nP -j 3 --format=JobIDRaw,ExitCode,State` of 26.05, for a script that ended with its srun; 22.05 prints 9:0.
STOPPED = "3|137:0|FAILED\n3.batch|137:0|FAILED\n3.extern|0:0|COMPLETED\n"


@pytest.mark.parametrize(
    ("codes", "said", "cause"),
    [
        (("137:0", "0:9"), STOPPED + "3.0|0:9|CANCELLED by 1000\n", None),
        # `srun --time`, of a program that ignores SIGTERM.
        (("137:0", "0:9"), STOPPED + "3.0|0:9|TIMEOUT\n", None),
        (("137:0", "0:9"), STOPPED + "3.0|0:0|COMPLETED\n3.1|0:9|CANCELLED by 1000\n", None),
        # slurmd, which kills for memory where the site lets it, is root.
        (("137:0", "0:9"), STOPPED + "3.0|0:9|CANCELLED by 0\n", "killed"),
        (("137:0", "0:9"), STOPPED + "3.0|0:9|CANCELLED by 1000\n3.1|0:9|FAILED\n", "killed"),
        (
            ("137:0", "0:125"),
            STOPPED + "3.0|0:9|CANCELLED by 1000\n3.1|0:125|OUT_OF_MEMORY\n",
            "out_of_memory",
        ),
        (("137:0", "0:0"), STOPPED + "3.0|0:15|CANCELLED by 1000\n", "killed"),
        (("137:0", "0:9"), STOPPED, "killed"),
        (("137:0", "0:9"), "3.0|0:9\n", "killed"),
        (("137:0", "0:9"), "", "killed"),
    ],
)
def test_a_step_that_its_user_stopped_was_not_killed_for_memory(
    monkeypatch: pytest.MonkeyPatch, codes: tuple[str, ...], said: str, cause: str | None
) -> None:
    run = failed("FAILED", *codes, job_id=3, uid=1000)
    monkeypatch.setattr(scontrol_queue, "_last_run", lambda _: run)
    monkeypatch.setattr(scontrol_queue, "_ask", lambda *_: said)
    found = scontrol_queue.ScontrolQueue().failed(3)
    assert found is not None
    assert cause_of(found) == cause
