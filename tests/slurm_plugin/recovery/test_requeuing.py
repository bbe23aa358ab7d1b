"""What scontrol and squeue of each release print of failed jobs (tests/contract/failed), and what of it is believed.

And which of the jobs are requeued, and when.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slurm_plugin.recovery.judging import Recovery, judge
from slurm_plugin.slurm import requeuing
from slurm_plugin.slurm.job_lines import HELD_AGAIN, owner_in, parse_failed_jobs, waits_in
from slurm_plugin.slurm.queue import Failed, GiveBack, Requeue
from slurm_plugin.slurm.requeuing import SETTLED_S, next_words, parse_failed, unsettled_s
from slurm_plugin.slurm.targets import target_of
from tests.slurm_plugin.recovery.controller import Controller, assert_back, recoverer
from tests.slurm_plugin.recovery.test_judging import failed
from tests.slurm_plugin.slurm.queued import waiting

CAPTURED = Path(__file__).parents[2] / "contract" / "failed"


class Captured:
    """The output of one release."""

    def __init__(self, release: str) -> None:
        self.folder = CAPTURED / release

    def text(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text(encoding="utf-8")

    def failed(self, name: str, place: int = 0) -> Failed:
        text = self.text(name)
        ids = [int(line.split()[0].removeprefix("JobId=")) for line in text.splitlines() if "JobId=" in line]
        found = parse_failed(text, ids[place])
        assert found is not None
        return found


@pytest.fixture(params=sorted(folder.name for folder in CAPTURED.iterdir()))
def captured(request: pytest.FixtureRequest) -> Captured:
    return Captured(request.param)


def test_a_step_killed_for_memory_is_shown_next_to_the_exit_code_of_the_job(captured: Captured) -> None:
    run = captured.failed("step")
    assert (run.job.state, run.exit_codes) == ("FAILED", ("1:0", "0:125"))
    assert (run.restarts, run.requeues) == (0, True)
    assert (run.job.cpus_per_task, run.job.mem_per_node_mib, run.job.uid) == (2, 100, 5)
    assert run.job.admin_comment.endswith("granted=cpus:2,mem:100")


def test_a_job_whose_steps_slurmctld_never_hears_of_is_recognised(captured: Captured) -> None:
    text, run = captured.text("step"), captured.failed("step")
    assert not run.steps_elsewhere
    managed = parse_failed(
        text.replace("\n   NumNodes=", "\n   StepMgrEnabled=Yes\n   NumNodes="), run.job.job_id
    )
    assert managed is not None
    assert managed.steps_elsewhere


def test_a_requeued_job_is_held_and_its_restarts_counted(captured: Captured) -> None:
    run = captured.failed("held")
    assert (run.job.state, run.job.held, run.job.reason) == ("PENDING", True, HELD_AGAIN)
    assert (run.restarts, run.requeues) == (1, True)


def test_the_tasks_of_an_array_fail_one_by_one(captured: Captured) -> None:
    runs = [captured.failed("array", place) for place in (0, 1)]
    assert {run.job.state for run in runs} == {"OUT_OF_MEMORY"}
    assert {run.requeues for run in runs} == {False}
    array = runs[0].job.array_job_id
    assert {target_of(run.job) for run in runs} == {f"{array}_1", f"{array}_2"}


def test_squeue_lists_failed_and_requeued_jobs(captured: Captured) -> None:
    waiting = (
        "77|PENDING|N/A|1|4|Resources|1001|\n78|PENDING|1795901059|1|4|BeginTime|\n"
        "81|FAILED|1795901059|0|1|NonZeroExitCode|1002|\n"
        "79|PENDING|1795901059|0|4|BeginTime|\n80|PENDING|N/A|0|0|JobHeldUser|\n\nrubbish|FAILED\n"
    )
    lines = parse_failed_jobs(captured.text("failed") + waiting)
    assert {job for job, line in lines.items() if waits_in(line)} >= {77, 78}
    assert not waits_in(lines[captured.failed("array", 0).job.job_id])
    assert (owner_in(lines[77]), owner_in(lines[81])) == ("1001", "1002")
    ids = {captured.failed("held").job.job_id, *(captured.failed("array", n).job.job_id for n in (0, 1))}
    assert ids <= lines.keys()
    # Their users made them wait.
    assert lines.keys().isdisjoint({79, 80})


def test_a_pending_job_counts_as_changed_if_released_or_requeued_but_not_if_slurm_replans() -> None:
    def seen(line: str) -> str:
        return parse_failed_jobs(line)[78]

    first = seen("78|PENDING|1795901059|1|4|BeginTime|")
    assert first == seen("78|PENDING|1795901100|1|5|Resources|") == seen("78|PENDING|N/A|1|4|Priority|")
    held, again = seen("78|PENDING|N/A|1|0|JobHeldUser|"), seen("78|PENDING|1795901059|2|4|BeginTime|")
    assert len({first, held, again, seen("78|PENDING|N/A|1|0|job requeued in held state|")}) == 4


def test_a_job_whose_texts_look_like_slurms_lines_is_not_believed(captured: Captured) -> None:
    text, run = captured.text("step"), captured.failed("step")
    forged = "x\n   Requeue=1 Restarts=9 BatchFlag=1 Reboot=0 ExitCode=0:125"
    assert parse_failed(text.replace("JobName=step", f"JobName={forged}"), run.job.job_id) is None
    assert parse_failed(text + "\n\n" + text, run.job.job_id) is None
    assert parse_failed("", run.job.job_id) is None


def test_a_job_that_has_just_ended_is_left_alone_for_a_moment(captured: Captured) -> None:
    run = captured.failed("step")
    assert unsettled_s(run, run.job.end_s + 1.0) == SETTLED_S - 1.0
    assert unsettled_s(run, run.job.end_s + SETTLED_S) == 0.0
    # A clock that differs is no reason to wait for ever.
    assert unsettled_s(run, run.job.end_s - 3600.0) == SETTLED_S
    assert unsettled_s(captured.failed("held"), 0.0) == 0.0


def held_again(**fields: Any) -> Failed:
    """Return a job of `-c 2` with memory per CPU, requeued and marked; its resources have not been given back yet."""
    own = {"cpus_per_task": 2, "mem_per_node_mib": None, "mem_per_cpu_mib": 128, "admin_comment": "mark"}
    held = waiting(7, **{"held": True, "reason": HELD_AGAIN, "restarts": 1, **own, **fields})
    return Failed(job=held, requeues=True, exit_codes=("0:0",))


def share_back(run: Failed) -> Requeue:
    """Return what gives `-c 2 --mem-per-cpu=4000` back."""
    change = GiveBack(
        job_id=7,
        uid=run.job.uid,
        num_tasks=run.job.num_tasks,
        reason="x",
        cpus_per_task=2,
        mem_per_cpu_mib=4000,
        admin_comment="mark",
    )
    return Requeue(change=change, before="", restarts=0)


@pytest.mark.parametrize(
    ("cpus_per_task", "mem_per_cpu_mib", "is_back"),
    [(2, 128, False), (2, 4000, True), (4, 2000, True), (4, 1000, False)],
)
def test_a_memory_share_that_slurm_splits_for_its_limit_per_cpu_counts_as_given_back(
    cpus_per_task: int, mem_per_cpu_mib: int, is_back: bool
) -> None:
    """`-c 2 --mem-per-cpu=4000` with MaxMemPerCPU=2000: slurmctld turns it into four CPUs of 2000 MiB, every time."""
    run = held_again(cpus_per_task=cpus_per_task, mem_per_cpu_mib=mem_per_cpu_mib)
    words = next_words(run, share_back(run))
    assert (words == ("release", "7")) == is_back
    assert is_back or "MinMemoryCPU=4000" in words


@pytest.mark.parametrize(
    ("tasks", "became", "is_back"),
    [
        (1, {"min_cpus_per_node": 4, "mem_per_cpu_mib": 2000}, True),
        (2, {"cpus": 8, "min_cpus_per_node": 2, "mem_per_cpu_mib": 2000}, True),
        (2, {"cpus": 8, "min_cpus_per_node": 4, "mem_per_cpu_mib": 2000}, True),
        # A job that did not keep the change is not released.
        (1, {"min_cpus_per_node": 4}, False),
        (1, {"min_cpus_per_node": 2, "mem_per_cpu_mib": 2000}, False),
        (2, {"cpus": 4, "min_cpus_per_node": 4, "mem_per_cpu_mib": 2000}, False),
        (2, {"cpus": 6, "min_cpus_per_node": 4, "mem_per_cpu_mib": 2000}, False),
    ],
)
def test_a_job_is_released_with_what_24_05_makes_of_a_share_above_the_limit_per_cpu(
    tasks: int, became: dict[str, int], is_back: bool
) -> None:
    """It raises the CPUs of the job, or the minimum on a node, but not those of a task (24.05.2 to 24.11.0)."""
    gate = Controller(held_again(num_tasks=tasks))
    wanted = share_back(held_again(num_tasks=tasks))
    told: list[str] = []

    def update(words: Sequence[str]) -> str:
        told.append(words[0])
        if words[0] == "release":
            gate.run = held_again(**{**became, "num_tasks": tasks, "held": False, "reason": "None"})
        else:
            gate.run = held_again(**became, num_tasks=tasks)
        return ""

    problem = requeuing.requeue(wanted, gate.failed, update).problem
    assert problem == ("" if is_back else "not kept")
    assert not is_back or told == [f"--uid={wanted.change.uid}", "release"]
    assert is_back or "release" not in told


def test_a_share_that_only_looks_raised_by_slurm_is_written_first() -> None:
    """`--mincpus=4 -c 2 --mem-per-cpu=4000`, cut to 2000, looks like a job that slurmctld has raised."""
    run = held_again(min_cpus_per_node=4, mem_per_cpu_mib=2000)
    assert "MinMemoryCPU=4000" in next_words(run, share_back(run))


@pytest.mark.parametrize(
    ("state", "codes"), [("OUT_OF_MEMORY", ()), ("FAILED", ("137:0",)), ("TIMEOUT", ("0:0",))]
)
def test_a_job_comes_back_from_every_state_of_failure(
    tmp_path: Path, state: str, codes: tuple[str, ...]
) -> None:
    gate = Controller(failed(state, *codes))
    assert [one.problem for one in recoverer(gate, tmp_path).round()] == [""]
    assert_back(gate)
    assert "SiteFactor" not in str(gate.writes)  # without age points, an administrator's own factor stays


def wanted_for(run: Failed) -> Requeue:
    found = judge(run)
    assert isinstance(found, Recovery)
    assert found.requeue is not None
    return found.requeue


def test_nodes_that_are_still_cleaned_up_are_waited_for_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = failed()
    ending = msgspec.structs.replace(ended, job=msgspec.structs.replace(ended.job, state="COMPLETING"))
    gate, pauses = Controller(ending), list[float]()

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        gate.run = ended if len(pauses) == 3 else ending

    assert requeuing.requeue(wanted_for(ended), gate.failed, gate.update, sleep).problem == ""
    assert len(pauses) == 3
    assert_back(gate)
    monkeypatch.setattr(requeuing, "_PATIENCE_S", 0.0)
    gate = Controller(ending)
    assert requeuing.requeue(wanted_for(ended), gate.failed, gate.update).problem == requeuing.STILL_ENDING
    assert gate.writes == []


def test_a_job_that_has_just_ended_is_requeued_a_moment_later() -> None:
    """Otherwise its node refuses it: the wait is needed because slurmctld's own delay is removed."""
    gate, pauses = Controller(failed(end_s=time.time())), list[float]()
    assert requeuing.requeue(wanted_for(failed()), gate.failed, gate.update, pauses.append).problem == ""
    assert [round(pause_s) for pause_s in pauses] == [requeuing.SETTLED_S]


MARKED = wanted_for(failed()).change.admin_comment


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        (failed("COMPLETED"), requeuing.RESTARTED),
        (failed("CANCELLED"), requeuing.RESTARTED),
        (failed("RUNNING"), requeuing.RESTARTED),
        # Its user has requeued it, and it has failed once more.
        (failed(restarts=1), requeuing.CHANGED),
        (failed("PENDING", held=True, reason=HELD_AGAIN, restarts=2), requeuing.RESTARTED),
        (
            failed("PENDING", held=True, reason=HELD_AGAIN, admin_comment=MARKED, restarts=2),
            requeuing.RESTARTED,
        ),
        # It has come back, and failed once more.
        (failed(admin_comment=MARKED), requeuing.RESTARTED),
        (failed(admin_comment=MARKED, restarts=1), requeuing.CHANGED),
        (failed(admin_comment="of somebody else"), requeuing.CHANGED),
        (failed("PENDING", held=True, reason="JobHeldUser", restarts=1), requeuing.CHANGED),
        # Its user has given it another request.
        (failed("PENDING", mem_per_node_mib=4000, cpus_per_task=4, restarts=1), requeuing.CHANGED),
    ],
)
def test_a_job_that_is_neither_as_it_failed_nor_as_we_left_it_is_not_changed(
    run: Failed, problem: str
) -> None:
    gate = Controller(run)
    assert requeuing.requeue(wanted_for(failed()), gate.failed, gate.update).problem == problem
    assert gate.writes == []


def test_a_job_that_slurmctld_has_forgotten_is_gone() -> None:
    gate = Controller(failed())
    gate.run = None
    assert requeuing.requeue(wanted_for(failed()), gate.failed, gate.update).problem == requeuing.GONE
    assert gate.writes == []
