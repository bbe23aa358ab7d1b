"""The jobs to come, read from a store."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from accounting.errors import StoreError
from accounting.store.database import open_store
from models.planning.checks import check
from models.planning.ledger import Due
from slurm_plugin.advisor import forecast as forecast_module
from slurm_plugin.advisor.forecast import Forecast, arrivals_in, past_of
from slurm_plugin.advisor.preemption import Ranks
from slurm_plugin.advisor.problem import problem_of
from slurm_plugin.advisor.room import Numbers, numbers_of
from slurm_plugin.advisor.run_time import SHORTEST_S, UNLIMITED_S, by_limit
from slurm_plugin.advisor.shared_limits import SharedLimits
from slurm_plugin.slurm.snapshot import PartitionState, QosState
from tests.accounting.report.report_store import fill, measured
from tests.slurm_plugin.slurm.queued import NOW_S, TERMS, snapshot, waiting

DAY_S = 86_400


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a store with a job of ann's, of 10 minutes, in each quarter of an hour for two days; and others."""
    url = f"sqlite:///{tmp_path}/store.db"
    engine = open_store(url, create=True)
    jobs = []
    for number in range(192):
        submit_s = int(NOW_S) - 2 * DAY_S + number * 900
        one = measured(
            number + 1,
            cluster="alpha",
            user="ann",
            account="physics",
            partition="batch" if number % 2 else "closed-since",
            submit_s=submit_s,
            start_s=submit_s + 60,
            end_s=submit_s + 660,
            asked_cpus=4,
            asked_mem_mib=2000,
            limit_s=3600,
            nodes=1,
        )
        jobs.append(one)
    fill(engine, jobs, with_steps=False)
    engine.dispose()
    return url


def test_the_jobs_of_yesterday_are_forecast_in_the_numbers_of_the_snapshot(url: str) -> None:
    now = snapshot(
        waiting(1, user="bob", account="biology", priority=777),
        waiting(2, submit_s=NOW_S - 5, priority=50),
        partitions=(PartitionState(name="batch", tier=3),),
    )
    samples = Forecast(url, "alpha", 6 * 3600)(now)
    assert len(samples) == forecast_module.SAMPLES
    numbers = numbers_of(now)
    for sample in samples:
        # Every second job's partition no longer exists.
        assert 10 <= len(sample) <= 14
        for one in sample:
            assert 0 <= one.at_s <= 6 * 3600
            assert (one.demand, one.limit_s, one.likely_s) == ((4000, 2000, 0), 3600, 600)
            assert one.pools == {numbers.pools["batch"]}
            assert one.priority == 50
            assert one.tier == 3
    check(replace(problem_of(now, lambda job: by_limit(job, "a test")), coming=samples))


def test_an_unknown_figure_of_a_submission_is_its_allocation_or_the_minimum() -> None:
    """There are two batches, the newest first: the very first submission is the last row."""

    def batch(*rows: tuple[int, str, int | None, int | None, int | None]) -> pa.Table:
        return pa.table(
            {
                "submit_s": pa.array([row[0] for row in rows], pa.int64()),
                "start_s": pa.array([row[0] + 10 for row in rows], pa.int64()),
                "end_s": pa.array([row[0] + 10 for row in rows], pa.int64()),
                "user": [f"user{row[0]}" for row in rows],
                "account": ["physics" for _ in rows],
                "partition": [row[1] for row in rows],
                "qos": ["normal" for _ in rows],
                "limit_s": pa.array([row[2] for row in rows], pa.int64()),
                "asked_cpus": pa.array([row[3] for row in rows], pa.int64()),
                "alloc_cpus": pa.array([row[4] for row in rows], pa.int64()),
                "asked_mem_mib": pa.array([None for _ in rows], pa.int64()),
                "asked_gpus": pa.array([None for _ in rows], pa.int64()),
            }
        )

    batches = [batch((400, "gone", 60, 1, 1), (300, "b,a", 60, None, 8)), batch((200, "a", None, None, None))]
    past = past_of(batches)
    assert past is not None
    assert past.at_s.tolist() == [200.0, 300.0, 400.0]
    numbers = Numbers({"a": 0, "b": 1}, {"physics": 5}, {"user300": 3})
    tiers = (PartitionState(name="a"), PartitionState(name="b", tier=4))
    limited = snapshot(
        terms=replace(TERMS, limits_hold=True), qos={"normal": QosState(of_user={"cpu": 16, "gres/gpu": 1})}
    )
    told = arrivals_in(numbers, Ranks(snapshot(partitions=tiers)), SharedLimits(limited), 7, past)
    first, second = told(0, 3)
    assert (first.dues, second.dues) == (
        (Due("qos normal user user200: cpu", 1),), (Due("qos normal user user300: cpu", 8),),
    )  # fmt: skip
    assert (first.tier, second.tier) == (1, 4)
    assert (first.pools, first.priority) == (frozenset({0}), 7)
    assert (first.demand, first.limit_s, first.likely_s) == ((1000, 0, 0), UNLIMITED_S, SHORTEST_S)
    assert (second.at_s, second.pools) == (300.0, frozenset({0, 1}))
    assert (second.demand, second.limit_s) == ((8000, 0, 0), 60.0)
    assert past_of([]) is None


def test_the_store_is_read_once_an_hour(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[float] = []
    read = Forecast._read

    def counted(self: Forecast, now_s: float) -> Iterable[object]:
        reads.append(now_s)
        return read(self, now_s)

    monkeypatch.setattr(Forecast, "_read", counted)
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    forecast, now = Forecast(url, "alpha", DAY_S), snapshot(waiting(1))
    for _ in range(5):
        forecast(replace(now, time_s=now.time_s + len(reads)))
    assert len(reads) == 1
    clock[0] += 3601
    forecast(now)
    assert len(reads) == 2


def test_the_past_of_another_cluster_is_not_used(url: str) -> None:
    assert Forecast(url, "beta", DAY_S)(snapshot(waiting(1))) == ()


def test_an_unreachable_store_is_asked_again_only_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    forecast, now = Forecast(f"sqlite:///{tmp_path}/none.db", "alpha", DAY_S), snapshot(waiting(1))
    with pytest.raises(StoreError):
        forecast(now)
    assert forecast(now) == ()
    clock[0] += forecast_module.AGAIN_AFTER_S
    with pytest.raises(StoreError):
        forecast(now)
