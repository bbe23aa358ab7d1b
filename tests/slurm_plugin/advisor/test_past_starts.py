"""What became of foreseen starts, from a store and the current queue."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from accounting.errors import StoreError
from accounting.journal.advice import AdvisedJob, Cycle
from accounting.store.advice import write_cycles
from accounting.store.database import open_store
from models.planning.interval_calibration import UNCALIBRATED
from slurm_plugin.advisor import past_starts as past_starts_module
from slurm_plugin.advisor.past_starts import PastStarts, read_outcomes
from tests.accounting.report.report_store import fill, measured
from tests.slurm_plugin.slurm.queued import NOW_S, running, snapshot, waiting

TOLD_S = NOW_S - 7200
SUBMIT_S = int(TOLD_S) - 60


def cycle(number: int, *job_ids: int, cluster: str = "alpha", applied: bool = True) -> Cycle:
    """Return a cycle one minute after the one before, which foresees each job in ten minutes, and in 20 without us."""
    told_s = TOLD_S + 60 * number
    return Cycle(
        id=f"{cluster}-{number}",
        time_s=told_s,
        cluster=cluster,
        objective="slowdown",
        order="shortest first",
        why="",
        gain=0.1,
        pending=1,
        running=1,
        applied=applied,
        jobs=tuple(
            AdvisedJob(
                job_id=job_id,
                submit_s=float(SUBMIT_S),
                before=0,
                after=5,
                base_start_s=told_s + 1200,
                start_s=told_s + 600,
                low_s=told_s + 500,
                high_s=told_s + 700,
            )
            for job_id in job_ids
        ),
    )


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a store with jobs 1 to 20, which started half an hour after they were foreseen, each in its own plan."""
    url = f"sqlite:///{tmp_path}/store.db"
    engine = open_store(url, create=True)
    ended = [
        measured(
            number,
            cluster="alpha",
            display_id=str(number),
            submit_s=SUBMIT_S,
            start_s=int(TOLD_S) + 60 * number + 1800,
            end_s=int(TOLD_S) + 60 * number + 1860,
        )
        for number in range(1, 21)
    ]
    fill(engine, ended, with_steps=False)
    with engine.begin() as connection:
        write_cycles(connection, [cycle(number, number) for number in range(1, 21)])
        write_cycles(connection, [cycle(30, 101, 102, 103, 104), cycle(31, 105, applied=False)])
        write_cycles(connection, [cycle(1, 1, 101, cluster="beta")])
    engine.dispose()
    return url


def test_ended_jobs_come_from_the_store_and_running_and_pending_ones_from_the_queue(url: str) -> None:
    at_s = {"submit_s": float(SUBMIT_S)}
    now = snapshot(
        running(101, start_s=NOW_S - 600, **at_s),
        waiting(102, **at_s),
        waiting(103, submit_s=NOW_S - 5),  # another job with that id
        waiting(105, array_job_id=105, array_tasks="1-9", **at_s),
    )
    found = read_outcomes(url, "alpha", now)
    rows = zip(found.told_s - TOLD_S, found.foreseen_s - found.told_s, found.started_s - TOLD_S, strict=True)
    told = {round(told_s / 60): (ahead_s, started_s) for told_s, ahead_s, started_s in rows}
    assert len(found.told_s) == 22
    assert {number: told[number] for number in range(1, 21)} == {
        number: (600.0, 60 * number + 1800.0) for number in range(1, 21)
    }
    # Of the four jobs in the 30th plan one runs, one waits; nothing is known of 103 and 104.
    same_plan = (found.started_s[found.told_s == TOLD_S + 1800] - TOLD_S).tolist()
    assert (same_plan[0], math.isnan(same_plan[1])) == (6600.0, True)
    without = read_outcomes(url, "alpha", snapshot(waiting(105, **at_s)))
    (watched,) = (without.told_s == TOLD_S + 31 * 60).nonzero()[0]
    # If the advisor only watched, the start without it was foreseen, without an interval.
    assert without.foreseen_s[watched] - without.told_s[watched] == 1200.0
    assert math.isnan(without.low_s[watched])


def test_a_job_whose_nodes_power_up_has_not_started(url: str) -> None:
    """Slurm's accounting will give it a later start, once its nodes are there."""
    now = snapshot(running(101, state="CONFIGURING", start_s=NOW_S - 600, submit_s=float(SUBMIT_S)))
    found = read_outcomes(url, "alpha", now)
    assert math.isnan(found.started_s[found.told_s == TOLD_S + 1800].item())


def test_intervals_reach_to_the_real_starts(url: str) -> None:
    found = PastStarts(url, "alpha")(snapshot())
    assert found[1].high_log == pytest.approx(math.log(1860 / 660))
    assert found[1].low_log == 0.0
    assert PastStarts(url, "nowhere")(snapshot()) == UNCALIBRATED


def test_an_unreachable_store_is_reported_and_what_is_known_stays(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with pytest.raises(StoreError):
        PastStarts(f"sqlite:///{tmp_path}/none.db", "alpha")(snapshot())
    past = PastStarts(url, "alpha")
    known = past(snapshot())
    (tmp_path / "store.db").rename(tmp_path / "away.db")
    clock[0] += past_starts_module.READ_EVERY_S
    assert known
    assert past(snapshot()) == known


def test_an_unreachable_store_is_asked_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    (tmp_path / "store.db").rename(tmp_path / "away.db")
    past = PastStarts(url, "alpha")
    for _ in range(2):  # in every cycle, so that it is reported as long as it lasts
        with pytest.raises(StoreError):
            past(snapshot())
    (tmp_path / "away.db").rename(tmp_path / "store.db")
    clock[0] += past_starts_module.READ_EVERY_S
    assert past(snapshot())


def test_a_store_without_rows_yet_is_asked_again_soon(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    past = PastStarts(url, "alpha")
    monkeypatch.setattr(
        past_starts_module, "read_outcomes", lambda *_: read_outcomes(url, "nowhere", snapshot())
    )
    assert past(snapshot()) == UNCALIBRATED
    monkeypatch.setattr(past_starts_module, "read_outcomes", read_outcomes)
    clock[0] += past_starts_module.AT_FIRST_S
    assert past(snapshot()) != UNCALIBRATED


def test_a_bounded_number_of_rows_is_read_for_each_quarter_of_a_day(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_starts_module, "MOST_ROWS", 5)
    assert len(read_outcomes(url, "alpha", snapshot()).told_s) <= 5
