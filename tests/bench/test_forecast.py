"""The benchmark of forecasts, on drawn series and on the traces where available."""

from __future__ import annotations

import numpy as np
import pytest

from bench import forecast as bench
from models.forecast.methods import Method, methods
from models.forecast.naive import seasonal_naive
from models.forecast.panel import Panel
from tests.traces import TRACES, needs_traces

on_traces = needs_traces("queue/helios_earth_*.csv.gz")
QUICK = [one for one in methods() if one.name in ("seasonal naive", "last value", "exponential smoothing")]


def test_a_random_walk_is_followed_an_hour_ahead_and_its_intervals_hold() -> None:
    walk = 500 + np.random.default_rng(0).normal(size=(480, 2)).cumsum(axis=0)
    judged = bench.Judged(Panel(("a", "b"), walk, 0, 3600), QUICK)
    rows = {(row["lead"], row["method"]): row for row in judged.error_rows()}
    assert rows["1 h", "seasonal naive"]["mean"] == 100
    assert rows["24 h", "last value"]["mean"] == 100  # a day before the target is now
    assert float(str(rows["1 h", "chosen"]["mean"])) < 40
    assert {
        row["where"]: row["met"]
        for row in judged.goal_rows()
        if row["goal"] == "came within its interval (%)"
    }["1 h ahead"] == "yes"
    for lead in ("1 h", "24 h"):
        counts = [int(str(row["a"])) for row in judged.choice_rows() if row["lead"] == lead]
        assert min(counts) >= 0
        assert sum(counts) == pytest.approx(100, abs=2)


def test_the_row_of_a_model_that_cannot_run_says_what_to_install() -> None:
    absent = Method(name="PCA+LSTM", fit=seasonal_naive, missing="needs PyTorch")
    judged = bench.Judged(Panel(("a",), np.arange(400.0)[:, None] % 23, 0, 3600), [*QUICK, absent])
    rows = {row["method"]: row for row in judged.error_rows()}
    assert rows["PCA+LSTM needs PyTorch"]["a"] is None


@on_traces
def test_the_chosen_forecast_is_no_worse_than_seasonal_naive_on_any_cluster() -> None:
    files = sorted(TRACES.glob("queue/helios_earth_*.csv.gz"))
    always_there = [one for one in methods() if one.name != "PCA+LSTM"]
    judged = bench.Judged(bench.read_panel(files, "gpus"), always_there)
    assert len(judged.names) == 8
    for row in judged.goal_rows():
        assert row["met"] == "yes", row
