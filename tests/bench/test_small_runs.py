"""Benchmarks that need neither traces nor Slurm run to their end, on small loads: code that they measure goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "command",
    [
        "brakes --runs 2",
        "collector_cost 1",
        "ingest_rate --jobs 2000",
        "journal_links --decisions 200",
        "plan_rate --times 1",
        "reingest --jobs 1000 --rounds 1",
        "replay_rate --jobs 200 --before 100",
        "simulation_rate --jobs 200",
        "slowed --families 4 --jobs 10",
        "training --jobs 3000",
    ],
    ids=lambda command: command.split()[0],
)
def test_a_benchmark_runs(command: str) -> None:
    name, *options = command.split()
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
