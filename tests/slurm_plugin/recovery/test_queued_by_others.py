"""Jobs that were killed for memory and then requeued by others: by their own script, or by RequeueExit."""

from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.slurm.job_lines import BEGINS_LATER
from slurm_plugin.slurm.queue import Failed
from tests.slurm_plugin.recovery.controller import Controller, entries, kill_at, recoverer
from tests.slurm_plugin.recovery.test_judging import failed


def by_itself(**fields: Any) -> Failed:
    """Return `srun work || scontrol requeue $SLURM_JOB_ID`, as slurmctld shows it until it starts two minutes later."""
    return failed("PENDING", "0:0", "0:125", restarts=3, reason=BEGINS_LATER, **fields)


def test_a_job_that_requeues_itself_after_a_kill_has_its_whole_request_before_it_starts(
    tmp_path: Path,
) -> None:
    gate = Controller(by_itself())
    own = recoverer(gate, tmp_path)
    assert [one.problem for one in own.round()] == [""]
    assert gate.run is not None
    assert (gate.run.job.cpus_per_task, gate.run.job.mem_per_node_mib) == (8, 8000)
    # The mark comes last: the job may start at any moment.
    assert [words[0] for words in gate.writes] == ["--uid=1000", "update"]
    assert ";recovery=out_of_memory:2" in gate.writes[1][2]
    assert [(entry.what, entry.restarts, entry.cpu_hours) for entry in entries(tmp_path)] == [
        ("requeued", 2, 0)
    ]
    assert own.round() == recoverer(gate, tmp_path).round() == []
    assert len(gate.writes) == 2
    gate._set(state="PENDING", restarts=4)
    assert recoverer(gate, tmp_path).round() == []
    assert len(gate.writes) == 2


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("step", range(2))
def test_the_next_recovery_goes_on_where_a_killed_one_was_giving_back(
    tmp_path: Path, step: int, after: bool
) -> None:
    gate = Controller(by_itself())
    kill_at(gate, tmp_path, step, after=after)
    recoverer(gate, tmp_path).round()
    assert gate.run is not None
    assert (gate.run.job.cpus_per_task, gate.run.job.mem_per_node_mib) == (8, 8000)
    assert gate.run.job.admin_comment.count(";recovery=out_of_memory:2") == 1
    assert [entry.what for entry in entries(tmp_path)] == ["requeued"]


@pytest.mark.parametrize(("starts_at", "mark", "what"), [(0, 0, "lost"), (1, 1, "requeued")])
def test_a_job_that_starts_meanwhile_is_marked_only_if_it_has_its_whole_request(
    tmp_path: Path, starts_at: int, mark: int, what: str
) -> None:
    gate = Controller(by_itself())
    seen = gate.failed

    def look(job_id: int) -> Failed | None:
        if len(gate.writes) == starts_at and entries(tmp_path):
            gate._set(state="RUNNING", reason="None")
        return seen(job_id)

    gate.failed = look  # type: ignore[method-assign]
    recoverer(gate, tmp_path).round()
    assert gate.run is not None
    assert gate.run.job.admin_comment.count("recovery=") == mark
    assert [entry.what for entry in entries(tmp_path)] == [what]
    if not mark:
        # It fails as before, and requeues itself again.
        gate.failed = seen  # type: ignore[method-assign]
        gate._set(state="PENDING", reason=BEGINS_LATER, restarts=4)
        recoverer(gate, tmp_path).round()
        assert ";recovery=out_of_memory:3" in gate.run.job.admin_comment


def test_jobs_requeued_by_others_are_searched_now_and_then_and_each_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, clock = Controller(by_itself(admin_comment="of somebody else")), [0.0]
    monkeypatch.setattr("slurm_plugin.recovery.rounds.time.monotonic", lambda: clock[0])
    seen, looked_at = gate.failed, list[int]()

    def look(job_id: int) -> Failed | None:
        looked_at.append(job_id)
        return seen(job_id)

    gate.failed = look  # type: ignore[method-assign]
    own, looked_for = recoverer(gate, tmp_path), list[int]()
    for clock[0] in (1000.0, 1010.0, 1040.0, 1045.0, 1050.0, 1100.0):
        own.round()
        looked_for.append(gate.looks_again)
    assert looked_for == [1, 1, 1, 2, 2, 3]
    assert looked_at == [7]
