"""The gateway: bounds, pace, reading back, one advisor at a time, and a state on disk that survives mishaps."""

import errno
import fcntl
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from accounting.errors import ServiceError, StoreError
from slurm_plugin.slurm import factor_log, factor_state, gateway
from slurm_plugin.slurm.factor_log import STATE
from slurm_plugin.slurm.gateway import DRY_RUN, HIDDEN, Gateway
from slurm_plugin.slurm.lease import Lease, is_over
from slurm_plugin.slurm.queue import FactorChange, Resize, Written
from tests.slurm_plugin.slurm.gates import TERMS, changes_of, gate, in_force, problems
from tests.slurm_plugin.slurm.memory_queue import MemoryQueue

pytestmark = pytest.mark.usefixtures("quick_disk")


def test_a_written_factor_is_ours_until_it_is_undone(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0, 2: -7, 3: 5})
    gateway = gate(queue, tmp_path)
    assert problems(gateway, changes_of({1: 30, 2: 40}, queue.factors)) == ["", ""]
    assert queue.factors == {1: 30, 2: 40, 3: 5}
    assert in_force(tmp_path) == {1: 30, 2: 40}
    assert [written.problem for written in gate(queue, tmp_path).undo()] == ["", ""]
    assert queue.factors == {1: 0, 2: -7, 3: 5}
    assert in_force(tmp_path) == {}


def test_changes_beyond_the_bounds_are_refused_without_a_write(tmp_path: Path) -> None:
    queue = MemoryQueue(dict.fromkeys(range(1, 9), 0))
    wanted = {1: 1001, 2: -1001, 3: 1000, 4: -1000, 5: 1, 6: 2, 7: 3}
    said = problems(gate(queue, tmp_path), changes_of(wanted, queue.factors))
    assert [bool(one) for one in said] == [True, True, False, False, False, True, True]
    assert "1000" in said[0]
    assert "5 changes" in said[5]
    assert queue.factors == {1: 0, 2: 0, 3: 1000, 4: -1000, 5: 1, 6: 0, 7: 0, 8: 0}


def test_writes_come_in_batches_with_pauses(tmp_path: Path) -> None:
    slept: list[float] = []
    queue = MemoryQueue(dict.fromkeys(range(5), 0))
    gateway = Gateway(queue, tmp_path, TERMS, apply=True, cluster="alpha", sleep=slept.append)
    gateway.reorder(changes_of(dict.fromkeys(range(5), 9), queue.factors))
    assert queue.batches == [2, 2, 1]
    assert len(slept) == 2
    assert all(0.05 < pause <= 0.1 for pause in slept)
    gateway.resize(Resize(job_id=1, uid=1001, num_tasks=1, reason="test"))
    assert slept[2:] == [1 / TERMS.writes_per_s]


def test_writes_that_take_longer_than_their_pace_are_followed_by_no_pause(tmp_path: Path) -> None:
    class Slow(MemoryQueue):
        def set_site_factors(self, changes: Sequence[FactorChange]) -> list[Written]:
            time.sleep(len(changes) / TERMS.writes_per_s)
            return super().set_site_factors(changes)

    slept: list[float] = []
    queue = Slow(dict.fromkeys(range(5), 0))
    gateway = Gateway(queue, tmp_path, TERMS, apply=True, cluster="alpha", sleep=slept.append)
    gateway.reorder(changes_of(dict.fromkeys(range(5), 9), queue.factors))
    assert slept == [0.0, 0.0]


def test_only_changed_values_are_sent(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 5, 2: 0})
    assert problems(gate(queue, tmp_path), changes_of({1: 5, 2: 8}, queue.factors)) == ["", ""]
    assert queue.writes == [(2, 8)]


def test_a_change_that_is_not_kept_is_tried_once_more(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0, 2: 0}, forgotten={1: 1, 2: 2})
    assert problems(gate(queue, tmp_path), changes_of({1: 5, 2: 6}, queue.factors)) == ["", "not kept"]
    assert queue.factors == {1: 5, 2: 0}
    # Backfill may still bring the 6 back later: undo knows it.
    queue.factors[2] = 6
    gate(queue, tmp_path).undo()
    assert queue.factors == {1: 0, 2: 0}


def test_a_job_that_vanished_or_was_changed_meanwhile_is_not_an_error(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0, 2: 77, 3: 0}, hidden={3})
    said = problems(gate(queue, tmp_path), changes_of({1: 5, 2: 5, 3: 5, 4: 5}, {}))
    assert said[0] == ""
    assert "77" in said[1]
    assert said[2:] == [HIDDEN, HIDDEN]
    assert queue.factors == {1: 5, 2: 77, 3: 0}


class Operated(MemoryQueue):
    """A queue in which somebody sets factors while ours are written: once a batch has been, and never again."""

    sets: dict[int, int] = {}  # noqa: RUF012 (each test has its own)

    def set_site_factors(self, changes: Sequence[FactorChange]) -> list[Written]:
        written = super().set_site_factors(changes)
        self.factors |= self.sets
        self.sets = {}
        return written


def test_what_somebody_sets_while_factors_are_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "_LOOKS_EVERY", 2)
    queue = Operated(dict.fromkeys(range(1, 6), 0))
    # The one was written already, the other is still to be.
    queue.sets = {1: 77, 5: 88}
    said = problems(gate(queue, tmp_path), changes_of(dict.fromkeys(range(1, 6), 30), queue.factors))
    assert queue.factors == {1: 77, 2: 30, 3: 30, 4: 30, 5: 88}
    assert [bool(one) for one in said] == [True, False, False, False, True]
    assert "77" in said[0]
    queue.sets = {2: 99, 4: 11}
    assert [one.problem for one in gate(queue, tmp_path).undo()] == [""]
    assert queue.factors == {1: 77, 2: 99, 3: 0, 4: 11, 5: 88}
    assert in_force(tmp_path) == {}


def test_a_job_that_starts_while_it_is_written_is_reported_and_undone(tmp_path: Path) -> None:
    class Starting(MemoryQueue):
        def set_site_factors(self, changes: Sequence[FactorChange]) -> list[Written]:
            self.hidden.add(1)
            return super().set_site_factors(changes)

    queue = Starting({1: 0, 2: 0})
    assert problems(gate(queue, tmp_path), changes_of({1: 5, 2: 6}, queue.factors)) == [HIDDEN, ""]
    gate(queue, tmp_path).undo()
    assert queue.factors == {1: 0, 2: 0}


def test_a_dry_run_writes_nothing_and_logs_all_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = MemoryQueue({1: 0})
    with caplog.at_level(logging.INFO), gate(queue, tmp_path / "absent", apply=False) as gateway:
        assert problems(gateway, changes_of({1: 5}, {})) == [DRY_RUN]
    assert queue.writes == []
    assert not (tmp_path / "absent").exists()
    assert "SiteFactor=5 (was 0): test: dry run" in caplog.text


def test_a_dry_run_undoes_nothing_and_resizes_nothing(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0})
    gate(queue, tmp_path).reorder(changes_of({1: 5}, queue.factors))
    state, written = (tmp_path / STATE).read_bytes(), [*queue.writes]
    dry = gate(queue, tmp_path, apply=False)
    assert [(one.job_id, one.problem) for one in dry.undo()] == [(1, DRY_RUN)]
    assert dry.resize(Resize(job_id=1, uid=1001, num_tasks=1, reason="test")).problem == DRY_RUN
    assert queue.writes == written
    assert (tmp_path / STATE).read_bytes() == state


def test_a_second_advisor_is_told_of_the_first(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from slurm_plugin.slurm.factor_log import FactorLog\n"
        f"with FactorLog(pathlib.Path({str(tmp_path)!r}), 'alpha').held():\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ServiceError, match=rf"process {other.pid} on "), gate(MemoryQueue({}), tmp_path):
            pass
        with gate(MemoryQueue({}), tmp_path, apply=False):
            pass
        other.kill()
    first = gate(MemoryQueue({}), tmp_path)
    with first:
        pass
    with gate(MemoryQueue({}), tmp_path):
        pass


def test_a_full_disk_is_reported_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr(factor_log, "replace_whole", full)
    queue = MemoryQueue({1: 0})
    with (
        gate(queue, tmp_path) as gateway,
        pytest.raises(StoreError, match="No space left on device; nothing was written to Slurm"),
    ):
        gateway.reorder(changes_of({1: 5}, queue.factors))
    assert queue.writes == []


def test_a_state_of_another_cluster_is_not_used(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0})
    gate(queue, tmp_path).reorder(changes_of({1: 5}, queue.factors))
    other = Gateway(queue, tmp_path, TERMS, apply=True, cluster="beta")
    with pytest.raises(StoreError, match="cluster alpha, not to beta"):
        other.undo()
    with pytest.raises(StoreError, match="cluster alpha, not to beta"):
        other.reorder([])


def test_a_damaged_state_is_reported(tmp_path: Path) -> None:
    (tmp_path / STATE).write_bytes(b'{"cluster":"alpha","entr')
    with pytest.raises(StoreError, match=r"is damaged .*; find SiteFactors"):
        gate(MemoryQueue({}), tmp_path).undo()
    (tmp_path / STATE).unlink()
    (tmp_path / STATE).mkdir()
    with pytest.raises(StoreError, match="cannot read"):
        gate(MemoryQueue({}), tmp_path).undo()


def test_a_change_of_the_state_waits_for_another_one(tmp_path: Path) -> None:
    """As the timer and an advisor wait for each other."""
    queue = MemoryQueue({1: 0})
    gateway = gate(queue, tmp_path)
    gateway.reorder([])
    with (tmp_path / "factors.lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        lets_go = threading.Timer(0.2, fcntl.flock, (other, fcntl.LOCK_UN))
        lets_go.start()
        assert problems(gateway, changes_of({1: 5}, queue.factors)) == [""]
        lets_go.join()


def test_a_half_written_state_of_a_killed_writer_is_not_read(tmp_path: Path) -> None:
    queue = MemoryQueue({1: 0})
    gateway = gate(queue, tmp_path)
    gateway.reorder(changes_of({1: 5}, queue.factors))
    (tmp_path / STATE).with_suffix(".new").write_bytes(b'{"clus')
    gateway.undo()
    assert queue.factors == {1: 0}


def test_nothing_is_written_to_slurm_if_the_state_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    queue = MemoryQueue({1: 0})
    with pytest.raises(StoreError, match="cannot write"):
        gate(queue, tmp_path / "file" / "below").reorder(changes_of({1: 5}, queue.factors))
    assert queue.writes == []


def test_a_lease_survives_being_stored(tmp_path: Path) -> None:
    log = factor_log.FactorLog(tmp_path, "alpha")
    lease = Lease(factor_log.now(), 60.0)
    log.change(lambda state: msgspec.structs.replace(state, lease=lease))
    assert log.read().lease == lease
    assert not is_over(log.read().lease, factor_log.now())
    assert factor_state.in_force(log.read()) == {}
