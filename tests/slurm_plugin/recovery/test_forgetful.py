"""A killed slurmctld forgets the last seconds: a job is held again, as in the middle of its recovery."""

import time
from pathlib import Path

import pytest

from accounting.errors import SlurmError
from slurm_plugin.recovery import rounds
from slurm_plugin.slurm.job_lines import HELD_AGAIN
from tests.slurm_plugin.recovery.controller import Controller, assert_back, entries, recoverer
from tests.slurm_plugin.recovery.test_judging import failed


def forget(gate: Controller, folder: Path, steps: int) -> None:
    """Recover the job, then set slurmctld back to its state after this many writes."""
    states = []
    gate.after_write = lambda _: states.append(gate.run)
    recoverer(gate, folder).round()
    assert len(states) == 4
    gate.after_write = lambda _: None
    gate.run = states[steps - 1]
    assert gate.run is not None
    assert gate.run.job.held


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_new_watcher_finds_the_held_job_and_goes_on(tmp_path: Path, steps: int) -> None:
    gate = Controller(failed())
    forget(gate, tmp_path, steps)
    assert [one.problem for one in recoverer(gate, tmp_path).round()] == [""]
    assert_back(gate)
    assert [entry.what for entry in entries(tmp_path)] == ["requeued"]
    gate.fail()
    assert recoverer(gate, tmp_path).round() == []


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_watcher_that_saw_slurmctld_silent_finds_the_held_job_and_goes_on(
    tmp_path: Path, steps: int
) -> None:
    gate = Controller(failed())
    own = recoverer(gate, tmp_path)
    own.round()
    own.round()
    ours = Controller(failed())
    forget(ours, tmp_path / "states", steps)
    gate.run, gate.requeues = ours.run, 1
    assert own.round() == []

    def silent(*, again: bool) -> dict[int, str]:
        raise SlurmError(f"slurmctld does not answer; check that it runs (again: {again})")

    seen, gate.failed_jobs = gate.failed_jobs, silent  # type: ignore[method-assign]
    with pytest.raises(SlurmError):
        own.round()
    gate.failed_jobs = seen  # type: ignore[method-assign]
    assert [one.problem for one in own.round()] == [""]
    assert_back(gate)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_watcher_that_saw_nothing_looks_at_the_held_job_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, restarted: bool
) -> None:
    gate = Controller(failed())
    own = recoverer(gate, tmp_path)
    own.round()
    if restarted:
        own = recoverer(gate, tmp_path)
        assert own.round() == []
    gate._set(held=True, reason=HELD_AGAIN)
    assert own.round() == []
    monkeypatch.setattr(rounds, "WRITTEN_DOWN_S", 0.0)
    assert [one.problem for one in own.round()] == [""]
    assert_back(gate)
    looks: list[int] = []
    seen = gate.failed

    def look(job_id: int) -> object:
        looks.append(job_id)
        return seen(job_id)

    monkeypatch.setattr(gate, "failed", look)
    assert own.round() == []
    assert looks == []


@pytest.mark.parametrize(
    "changes",
    [{"reason": "JobHeldAdmin"}, {"held": False, "reason": "None"}, {"admin_comment": "", "restarts": 2}],
    ids=["held", "released", "requeued"],
)
def test_what_somebody_has_done_with_the_job_is_left_to_them(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    gate = Controller(failed())
    recoverer(gate, tmp_path).round()
    gate._set(**{"held": True, "reason": HELD_AGAIN, **changes})
    assert recoverer(gate, tmp_path).round() == []
    assert len(gate.writes) == 4


def test_a_forgotten_job_is_found_however_late_the_next_round_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example after a round with many jobs, or if recovery.period_s is minutes."""
    gate = Controller(failed())
    own = recoverer(gate, tmp_path)
    own.round()
    gate._set(held=True, reason=HELD_AGAIN)
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 600)
    assert [one.problem for one in own.round()] == [""]
    assert_back(gate)
