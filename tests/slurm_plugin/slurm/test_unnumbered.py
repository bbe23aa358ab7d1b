"""Jobs without a number from slurmdbd: each costs five seconds, so they are tried at growing intervals, and last."""

from pathlib import Path

import pytest

from slurm_plugin.slurm.gateway import Gateway, WriteTerms
from slurm_plugin.slurm.queue import Resize
from slurm_plugin.slurm.unnumbered import FIRST_S, LEFT, LONGEST_S, Unnumbered
from tests.slurm_plugin.slurm.gates import changes_of, problems
from tests.slurm_plugin.slurm.memory_queue import MemoryQueue

pytestmark = pytest.mark.usefixtures("quick_disk")

REFUSAL = "Job update not available right now, the DB index is being set, try again in a bit for job 2"


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def gateway_on(queue: MemoryQueue, folder: Path, clock: Clock, writes_per_s: float = 500.0) -> Gateway:
    terms = WriteTerms(writes_per_s=writes_per_s)
    return Gateway(queue, folder, terms, apply=True, cluster="alpha", sleep=lambda _: None, clock_s=clock)


def test_the_wait_doubles_up_to_an_hour_and_ends_with_a_success() -> None:
    clock = Clock()
    unnumbered = Unnumbered(clock)
    waits_s = []
    for _ in range(10):
        unnumbered.note(2, REFUSAL)
        began_s = clock.now_s
        while unnumbered.is_left(2):
            clock.now_s += 1.0
        waits_s.append(clock.now_s - began_s)
    assert waits_s == [min(FIRST_S * 2**n, LONGEST_S) for n in range(10)]
    unnumbered.note(2, "slurmctld takes changes too slowly")
    assert unnumbered.was_refused(2)
    unnumbered.note(2, "")
    assert not unnumbered.was_refused(2)
    unnumbered.note(2, REFUSAL)
    clock.now_s += FIRST_S
    assert not unnumbered.is_left(2)


def test_jobs_that_no_longer_exist_are_forgotten() -> None:
    unnumbered = Unnumbered(Clock())
    unnumbered.note(2, REFUSAL)
    unnumbered.note(3, REFUSAL)
    unnumbered.keep({3, 4})
    assert not unnumbered.was_refused(2)
    assert unnumbered.is_left(3)


def test_a_refused_job_is_left_alone_then_tried_after_all_others(tmp_path: Path) -> None:
    clock, queue = Clock(), MemoryQueue({1: 0, 2: 0, 3: 0}, refusing={2: REFUSAL})
    gateway = gateway_on(queue, tmp_path, clock)
    gateway.read()
    assert problems(gateway, changes_of({1: 10, 2: 20, 3: 30}, queue.factors)) == ["", REFUSAL, ""]
    assert problems(gateway, changes_of({2: 21, 3: 31}, queue.factors)) == [LEFT, ""]
    assert problems(gateway, changes_of({2: 0}, queue.factors)) == [""], "it has that"
    clock.now_s += FIRST_S
    gateway.read()
    queue.refusing.clear()
    assert problems(gateway, changes_of({2: 22, 3: 32}, queue.factors)) == ["", ""]
    assert queue.writes == [(1, 10), (2, 20), (3, 30), (3, 31), (3, 32), (2, 22)]
    assert problems(gateway, changes_of({2: 23, 3: 33}, queue.factors)) == ["", ""]
    assert queue.writes[-2:] == [(2, 23), (3, 33)]


def test_an_undo_also_tries_jobs_that_are_left_alone(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0, 2: 0})
    gateway = gateway_on(queue, tmp_path, Clock())
    assert problems(gateway, changes_of({1: 10, 2: 20}, queue.factors)) == ["", ""]
    queue.refusing[2] = REFUSAL
    assert problems(gateway, changes_of({2: 30}, queue.factors)) == [REFUSAL]
    queue.refusing.clear()
    assert [written.problem for written in gateway.undo()] == ["", ""]
    assert queue.factors == {1: 0, 2: 0}


def test_a_resize_waits_for_a_number_too(tmp_path: Path) -> None:
    queue = MemoryQueue({2: 0}, refusing={2: REFUSAL})
    clock = Clock()
    gateway = gateway_on(queue, tmp_path, clock)
    change = Resize(job_id=2, uid=1, num_tasks=1, reason="test", cpus_per_task=1)
    assert gateway.resize(change).problem == REFUSAL
    assert gateway.resize(change).problem == LEFT
    clock.now_s += FIRST_S
    queue.refusing.clear()
    assert gateway.resize(change).problem == ""
    assert len(queue.writes) == 2


def test_one_scontrol_gets_no_more_changes_than_it_can_wait_for(tmp_path: Path) -> None:
    queue = MemoryQueue(dict.fromkeys(range(12), 0))
    gateway = gateway_on(queue, tmp_path, Clock(), writes_per_s=10_000.0)
    assert set(problems(gateway, changes_of(dict.fromkeys(range(12), 9), queue.factors))) == {""}
    assert queue.batches == [5, 5, 2]
    slow = MemoryQueue(dict.fromkeys(range(3), 0))
    gateway = gateway_on(slow, tmp_path, Clock(), writes_per_s=5.0)
    assert set(problems(gateway, changes_of(dict.fromkeys(range(3), 9), slow.factors))) == {""}
    assert slow.batches == [1, 1, 1]
