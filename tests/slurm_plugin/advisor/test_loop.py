"""One cycle after another: if one fails, the next starts afresh; changes that have outlived their lease are undone."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from msgspec.structs import replace

from models.planning import planning
from models.planning.problem import Bounds, Plan, Problem
from slurm_plugin.advisor import cycle as cycle_module
from slurm_plugin.advisor.cycle import Outcome
from slurm_plugin.advisor.loop import watch
from slurm_plugin.slurm import factor_log, gateway
from tests.slurm_plugin.advisor.conftest import MakeAdvisor
from tests.slurm_plugin.slurm.fake_queue import FakeQueue


class Rounds:
    """Counts cycles, changes the world between them, and stops the loop after the last."""

    def __init__(self, stop: threading.Event, rounds: int) -> None:
        self.stop, self.left, self.told = stop, rounds, 0

    def __call__(self, _outcome: object) -> None:
        self.told += 1
        self.left -= 1
        if self.left <= 0:
            self.stop.set()


def test_the_loop_goes_on_after_any_failure_and_reports_it_once(
    make: MakeAdvisor, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    advisor, stop = make(), threading.Event()
    plan_for, calls = planning.plan, [0]

    def failing(problem: Problem, bounds: Bounds) -> Plan:
        calls[0] += 1
        if calls[0] <= 2:
            raise ZeroDivisionError("a plan that fails")
        return plan_for(problem, bounds)

    monkeypatch.setattr(planning, "plan", failing)
    monkeypatch.setattr(threading.Event, "wait", lambda *_: None)
    rounds = Rounds(stop, 2)
    with caplog.at_level(logging.ERROR):
        watch(advisor, stop, rounds)
    assert rounds.told == 2
    assert [record.getMessage() for record in caplog.records if "left as it is" in record.getMessage()] == [
        "this cycle failed, the queue is left as it is and the next one tries again: a plan that fails"
    ]
    # It was stopped, so its changes are undone.
    assert queue.factors() == {}


def test_a_cycle_that_takes_longer_than_a_period_is_followed_by_a_pause(
    make: MakeAdvisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    advisor, stop = make(period_s=60), threading.Event()
    now_s, lasts_s, pauses_s = 0.0, iter([10.0, 400.0]), list[float]()

    def told(_outcome: Outcome) -> None:
        nonlocal now_s
        now_s += next(lasts_s)

    def wait(_event: threading.Event, pause_s: float) -> None:
        pauses_s.append(pause_s)
        if len(pauses_s) == 2:
            stop.set()

    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(threading.Event, "wait", wait)
    watch(advisor, stop, told)
    assert pauses_s == [50.0, 100.0]


def test_a_cycle_that_fails_leaves_changes_whose_lease_holds(
    make: MakeAdvisor, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    advisor, stop = make(lease_s=600), threading.Event()
    advisor.cycle()
    changed, left = queue.factors(), list[dict[int, int]]()

    def wait(_event: threading.Event, _pause_s: float) -> None:
        left.append(queue.factors())
        stop.set()

    monkeypatch.setattr(cycle_module, "unfit", lambda _terms: ["something"])
    monkeypatch.setattr(threading.Event, "wait", wait)
    watch(advisor, stop, lambda _outcome: None)
    assert left == [changed]
    assert changed


def test_changes_that_outlive_their_lease_are_undone_as_soon_as_slurmctld_answers(
    make: MakeAdvisor, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    advisor, stop = make(lease_s=600), threading.Event()
    advisor.cycle()
    changed = queue.factors()
    queue.failing = "slurmctld is down"
    left: list[dict[int, int]] = []

    def wait(_event: threading.Event, _pause_s: float | None = None) -> bool:
        left.append(queue.factors())
        if len(left) == 2:
            later = factor_log.now()
            jumped = replace(later, since_boot_s=later.since_boot_s + 601)
            monkeypatch.setattr(gateway, "now", lambda: jumped)
        if len(left) == 3:
            queue.failing = ""
            monkeypatch.setattr(cycle_module, "unfit", lambda _terms: ["something"])
        if len(left) == 4:
            stop.set()
        return False

    monkeypatch.setattr(threading.Event, "wait", wait)
    watch(advisor, stop, lambda _outcome: None)
    # While slurmctld is away nothing can be done; the first failing cycle after that undoes the changes.
    assert left == [changed, changed, changed, {}]
    assert "could not be undone yet" in caplog.text
