"""Once a lease is over, an advisor's changes are undone; the clock for that does not jump."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from slurm_plugin.slurm.gateway import TOO_SLOW
from slurm_plugin.slurm.lease import Clock, Lease, is_over
from slurm_plugin.slurm.queue import FactorChange, Written
from tests.slurm_plugin.slurm.conftest import TurnedClock
from tests.slurm_plugin.slurm.gates import changes_of, gate, in_force, problems
from tests.slurm_plugin.slurm.memory_queue import MemoryQueue

pytestmark = pytest.mark.usefixtures("quick_disk")


def test_the_timer_does_nothing_while_the_lease_lasts(tmp_path: Path, clock: TurnedClock) -> None:
    queue = MemoryQueue({1: 0})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5}, queue.factors))
    assert gateway.undo(only_expired=True) == []
    clock.since_boot_s = 71.0
    assert len(gateway.undo(only_expired=True)) == 1
    assert queue.factors == {1: 0}


def test_the_changes_of_a_hanging_advisor_are_undone_in_spite_of_its_lock(
    tmp_path: Path, clock: TurnedClock
) -> None:
    queue = MemoryQueue({1: 0, 2: 0})
    with gate(queue, tmp_path) as hung:
        hung.reorder(changes_of({1: 5}, queue.factors))
        clock.since_boot_s = 71.0
        assert len(gate(queue, tmp_path).undo(only_expired=True)) == 1
        assert queue.factors == {1: 0, 2: 0}
        # It wakes up, and goes on with what the timer has left.
        hung.reorder(changes_of({2: 7}, queue.factors))
        assert in_force(tmp_path) == {2: 7}


def test_slow_writes_to_slurmctld_end_before_the_lease(tmp_path: Path, clock: TurnedClock) -> None:
    class SlowQueue(MemoryQueue):
        def set_site_factors(self, changes: Sequence[FactorChange]) -> list[Written]:
            written = super().set_site_factors(changes)
            clock.since_boot_s += 40.0
            gate(self, tmp_path).undo(only_expired=True)  # as the timer does
            return written

    queue = SlowQueue(dict.fromkeys(range(1, 6), 0))
    said = problems(gate(queue, tmp_path), changes_of(dict.fromkeys(range(1, 6), 9), queue.factors))
    assert said == ["", "", TOO_SLOW, TOO_SLOW, TOO_SLOW]
    assert queue.factors == {1: 9, 2: 9, 3: 0, 4: 0, 5: 0}
    gate(queue, tmp_path).undo()
    assert queue.factors == dict.fromkeys(range(1, 6), 0)


@pytest.mark.parametrize(
    ("now", "over"),
    [
        (Clock(1030.0, "a", 40.0), False),
        (Clock(99999.0, "a", 40.0), False),  # the clock was put forward
        (Clock(5.0, "a", 40.0), False),  # or back
        (Clock(1030.0, "a", 71.0), True),
        (Clock(1030.0, "b", 5.0), False),  # the machine was started since
        (Clock(1061.0, "b", 5.0), True),
        (Clock(999.0, "b", 5.0), False),  # another host's clock, which is a little behind
        (Clock(939.0, "b", 5.0), True),  # a clock that is not to be trusted
    ],
)
def test_the_lease_uses_the_clock_that_does_not_jump(now: Clock, *, over: bool) -> None:
    assert is_over(Lease(Clock(1000.0, "a", 10.0), 60.0), now) is over
    assert is_over(None, now)
