"""What benchmarks on public traces say where there are none."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from bench import (
    calibration,
    core_means,
    edge_deadlines,
    forecast,
    forecast_open_jobs,
    gpu_fragmentation,
    gpu_sharing,
    lending_risk,
    memory_sizing,
    patent_waits,
    run_time_table,
)


@pytest.mark.parametrize(
    ("bench", "options"),
    [
        (calibration, ["--only", "iwd"]),
        (core_means, []),
        (edge_deadlines, []),
        (forecast, []),
        (forecast_open_jobs, []),
        (gpu_fragmentation, []),
        (gpu_sharing, []),
        (lending_risk, []),
        (memory_sizing, ["--only", "iwd"]),
        (patent_waits, ["--load", "philly"]),
        (run_time_table, []),
    ],
)
def test_benchmarks_without_traces_say_what_to_do(
    bench: ModuleType, options: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--traces", str(tmp_path), *options])
    with pytest.raises(SystemExit, match="set RIGHTSIZER_TRACES"):
        bench.main()
