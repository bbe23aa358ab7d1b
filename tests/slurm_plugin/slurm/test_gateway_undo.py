"""What the gateway undoes, and that it never undoes what somebody else set."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from accounting.errors import SlurmError
from slurm_plugin.slurm import factor_log
from slurm_plugin.slurm.queue import FactorChange, Written
from tests.slurm_plugin.slurm.conftest import TurnedClock
from tests.slurm_plugin.slurm.gates import changes_of, gate, in_force
from tests.slurm_plugin.slurm.memory_queue import MemoryQueue

pytestmark = pytest.mark.usefixtures("quick_disk")


def test_a_value_set_by_somebody_else_stays(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0, 2: 0})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5, 2: 5}, queue.factors))
    queue.factors[2] = 500
    gateway.undo()
    assert queue.factors == {1: 0, 2: 500}
    assert in_force(tmp_path) == {}


def test_a_job_goes_back_to_the_value_that_somebody_else_set(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5}, queue.factors))
    queue.factors[1] = 500
    gateway.reorder(changes_of({1: 9}, queue.factors))
    gateway.undo()
    assert queue.factors == {1: 500}


def test_a_factor_written_again_after_an_undo_is_in_force_again(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0})
    gateway = gate(queue, tmp_path)
    for _ in range(2):
        gateway.reorder(changes_of({1: 5}, queue.factors))
        assert in_force(tmp_path) == {1: 5}
        gateway.reorder(changes_of({1: 6}, queue.factors))
        assert in_force(tmp_path) == {1: 6}
        gateway.undo()
        assert in_force(tmp_path) == {}


def test_nothing_is_written_to_a_job_that_has_ended(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0, 2: 0})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5, 2: 6}, queue.factors))
    del queue.factors[1]
    assert [(one.job_id, one.problem) for one in gateway.undo()] == [(2, "")]


def test_a_running_or_held_job_is_undone_too(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 3})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5}, queue.factors))
    queue.hidden.add(1)
    assert [one.problem for one in gateway.undo()] == [""]
    assert queue.factors == {1: 3}


def test_another_job_with_the_same_id_is_left_as_it_is(tmp_path: Path) -> None:
    """A slurmctld that has lost its state gives ids out again; 1 and 2 are other jobs now, 3 was requeued."""
    queue = MemoryQueue({1: 3, 2: 0, 3: 0, 4: 0}, submitted=dict.fromkeys((1, 2, 3, 4), (100.0, 0)))
    gateway = gate(queue, tmp_path)
    gateway.read()
    gateway.reorder(changes_of({1: 5, 2: 5, 3: 5, 4: 5}, queue.factors))
    queue.factors |= {1: 700, 2: 5}
    queue.submitted |= {1: (200.0, 0), 2: (200.0, 0), 3: (200.0, 1)}
    queue.hidden |= {1, 3}
    gateway.read()
    assert gateway.ours().keys() == {3, 4}
    gate(queue, tmp_path).undo()
    assert queue.factors == {1: 700, 2: 5, 3: 0, 4: 0}


def test_another_job_with_the_same_id_goes_back_to_its_own_factor(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 3}, submitted={1: (100.0, 0)})
    gateway = gate(queue, tmp_path)
    gateway.read()
    gateway.reorder(changes_of({1: 5}, queue.factors))
    queue.factors, queue.submitted = {1: 5}, {1: (200.0, 0)}
    gateway.read()
    gateway.reorder(changes_of({1: 9}, queue.factors))
    gateway.undo()
    assert queue.factors == {1: 5}


def test_a_state_without_submit_times_is_undone(tmp_path: Path) -> None:
    entry = '{"job_id":1,"original":3,"ours":[5]}'
    (tmp_path / factor_log.STATE).write_text(f'{{"cluster":"alpha","entries":[{entry}]}}', encoding="utf-8")
    queue = MemoryQueue({1: 5}, submitted={1: (100.0, 0)})
    gate(queue, tmp_path).undo()
    assert queue.factors == {1: 3}


@pytest.mark.parametrize("array_ends", [False, True])
def test_a_task_takes_our_factor_with_it_and_is_undone_too(tmp_path: Path, *, array_ends: bool) -> None:
    queue = MemoryQueue({1: 3})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5}, queue.factors))
    # One task starts, another is held and released by its user: both are split off with the current factor.
    queue.factors |= {7: 5, 8: 5}
    queue.array_of |= {1: 1, 7: 1, 8: 1}
    queue.hidden.add(7)
    gateway.read()
    assert gateway.ours() == {1: {5}, 7: {5}, 8: {5}}
    gateway.reorder(changes_of({8: 6}, queue.factors))
    if array_ends:
        del queue.factors[1]
        gateway.read()
        gateway.reorder([])
    # requeued
    queue.hidden.clear()
    gateway.undo()
    assert queue.factors == dict.fromkeys(queue.factors, 3)
    assert in_force(tmp_path) == {}


def test_a_task_that_ran_before_its_array_got_our_factor_is_not_ours(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0, 7: 500}, hidden={7}, array_of={1: 1, 7: 1})
    gateway = gate(queue, tmp_path)
    gateway.read()
    gateway.reorder(changes_of({1: 5}, queue.factors))
    gateway.undo()
    assert queue.factors == {1: 0, 7: 500}


def test_a_task_split_off_since_the_last_cycle_is_undone(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0})
    gate(queue, tmp_path).reorder(changes_of({1: 5}, queue.factors))
    queue.factors |= {7: 5, 8: 500}
    queue.array_of |= {1: 1, 7: 1, 8: 1}
    gate(queue, tmp_path).undo()
    assert queue.factors == {1: 0, 7: 0, 8: 500}
    assert in_force(tmp_path) == {}


def test_a_factor_that_somebody_else_set_for_a_task_stays_also_when_it_runs(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0, 7: 500}, array_of={1: 1, 7: 1})
    gateway = gate(queue, tmp_path)
    gateway.read()
    gateway.reorder(changes_of({1: 5}, queue.factors))
    queue.factors |= {8: 5}
    queue.array_of |= {8: 1}
    gateway.read()
    gateway.reorder([])
    queue.factors[8] = 900
    gateway.reorder([])
    queue.hidden |= {7, 8}
    gateway.read()
    gateway.reorder([])
    gateway.undo()
    assert queue.factors == {1: 0, 7: 500, 8: 900}


def test_an_undone_change_of_a_running_job_is_forgotten_too(tmp_path: Path, clock: TurnedClock) -> None:
    queue = MemoryQueue({1: 3})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5}, queue.factors))
    queue.hidden.add(1)
    gateway.undo()
    gateway.reorder([])
    assert in_force(tmp_path) == {}
    clock.since_boot_s = 71.0
    gateway.reorder([])
    assert gateway.ours() == {}


def test_a_change_that_backfill_reverted_may_come_back_until_it_is_undone(
    tmp_path: Path, clock: TurnedClock
) -> None:
    queue = MemoryQueue({1: 0}, forgotten={1: 2})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5}, queue.factors))
    for since_boot_s in (20.0, 100.0):
        clock.since_boot_s = since_boot_s
        gateway.reorder([])
    assert gateway.ours() == {1: {5}}


def test_the_last_factors_of_a_job_are_remembered(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0})
    gateway = gate(queue, tmp_path)
    for after in (*range(1, 31), *(29, 30) * 10):
        gateway.reorder(changes_of({1: after}, queue.factors))
    assert gateway.ours() == {1: set(range(15, 31))}


def test_an_undo_that_slurmctld_refused_for_a_running_job_is_tried_again(
    tmp_path: Path, clock: TurnedClock
) -> None:
    queue = MemoryQueue({1: 3})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5}, queue.factors))
    queue.hidden.add(1)
    queue.refusing[1] = "Access/permission denied"
    for since_boot_s in (20.0, 100.0, 200.0):
        clock.since_boot_s = since_boot_s
        assert [one.problem for one in gateway.undo()] == ["Access/permission denied"]
        assert gateway.ours() == {1: {5}}
    queue.refusing.clear()
    assert [one.problem for one in gateway.undo()] == [""]
    assert queue.factors == {1: 3}


@pytest.mark.parametrize(("after_s", "factor"), [(400.0, 3), (430.0, 5)])
def test_a_job_that_ended_and_is_requeued_is_undone_as_long_as_slurmctld_knew_it(
    tmp_path: Path, clock: TurnedClock, after_s: float, factor: int
) -> None:
    """It keeps its SiteFactor (seen on 22.05). MinJobAge is 300 s here, and slurmctld forgets with a delay."""
    queue = MemoryQueue({1: 3})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5}, queue.factors))
    del queue.factors[1]
    for since_boot_s in (20.0, 20.0 + after_s):
        clock.since_boot_s = since_boot_s
        gateway.read()
        gateway.reorder([])
        assert in_force(tmp_path) == {}
    queue.factors[1], queue.submitted[1] = 5, (400.0, 1)
    gateway.read()
    gateway.undo()
    assert queue.factors == {1: factor}


def test_a_job_that_ended_and_came_back_is_in_force_again(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5}, queue.factors))
    del queue.factors[1]
    gateway.read()
    gateway.reorder([])
    assert in_force(tmp_path) == {}
    assert gateway.ours() == {1: {5}}
    queue.factors[1] = 5
    gateway.read()
    gateway.reorder([])
    assert in_force(tmp_path) == {1: 5}


def test_an_undo_that_fails_is_tried_again(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0, 2: 0, 3: 0})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5, 2: 6, 3: 7}, queue.factors))
    queue.silent_at = len(queue.writes) + 1
    with pytest.raises(SlurmError):
        gateway.undo()
    assert in_force(tmp_path).keys() == {1, 2, 3}
    queue.silent_at = None
    gateway.undo()
    assert queue.factors == {1: 0, 2: 0, 3: 0}
    assert in_force(tmp_path) == {}


def test_a_write_that_hung_and_takes_effect_after_an_undo_is_undone_too(
    tmp_path: Path, clock: TurnedClock
) -> None:
    queue = MemoryQueue({1: -7}, silent_at=0)
    gateway = gate(queue, tmp_path)
    with pytest.raises(SlurmError):
        gateway.reorder(changes_of({1: 5}, queue.factors))
    queue.silent_at = None
    assert gateway.undo() == []
    queue.factors[1] = 5
    assert gateway.ours() == {1: {5}}
    assert [one.problem for one in gateway.undo()] == [""]
    assert queue.factors == {1: -7}
    clock.since_boot_s = 69.0
    gateway.undo()
    assert gateway.ours() == {1: {5}}
    clock.since_boot_s = 71.0
    gateway.undo()
    assert gateway.ours() == {}


def test_factors_noted_by_another_process_during_an_undo_are_left(tmp_path: Path) -> None:
    """A long undo forgets nothing that another process has noted meanwhile."""
    queue = MemoryQueue({1: 0, 2: 0})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5}, queue.factors))

    class Slow(MemoryQueue):
        def set_site_factors(self, changes: Sequence[FactorChange]) -> list[Written]:
            written = super().set_site_factors(changes)
            gate(queue, tmp_path).reorder(changes_of({2: 6}, queue.factors))
            return written

    slow = Slow(queue.factors)
    gate(slow, tmp_path).undo()
    assert queue.factors == {1: 0, 2: 6}
    assert in_force(tmp_path) == {2: 6}
    gateway.undo()
    assert queue.factors == {1: 0, 2: 0}
