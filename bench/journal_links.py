"""What linking a decision's line costs the service, against a bare append of it; and what checking the links costs.

    python -m bench.journal_links [--decisions 20000]

Both encode and write each line with one write, to files in one folder, alternating in batches of fifty, so that
noise on the machine affects both. The floor is the encoding and the bare append; the figure is the ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from accounting.decisions.decision import Decision, DimensionReason, Fixed, PredictedUnder, encode_decision
from accounting.journal.chains import chains_in, check_chain
from accounting.request import Grant, JobRequest
from slurm_plugin.cli.output import print_rows
from slurm_plugin.service.journal import Journal

BATCH = 50
KEY = b"0123456789abcdef" * 4


def a_decision() -> Decision:
    """Return a decision as large as those of a service that cuts memory and cores."""
    why = tuple(
        DimensionReason(dimension=name, asked=8000.0, predicted=412.7, granted=512.0, reason="history")
        for name in ("memory", "cores", "gpus")
    )
    return Decision(
        id="0123456789ab",
        time_s=time.time(),
        mode="enforce",
        applied=True,
        reason="resized",
        request=JobRequest(
            user="alice",
            account="physics",
            partition="main",
            job_name="fit-0012",
            script_signature="0123456789ab",
            cpus_per_task=8,
            mem_per_node_mib=8000,
            wall_s=3600,
        ),
        grant=Grant(cpus_per_task=2, mem_per_node_mib=512),
        model="20261122-101010",
        settings=PredictedUnder(0.01, 0.01, 1, 0.01),
        dimensions=why,
        fixed=Fixed(),
    )


def timed_us(append: Callable[[Decision], object], decision: Decision) -> float:
    """Return the microseconds that one append of a batch takes."""
    began_ns = time.perf_counter_ns()
    for number in range(BATCH):
        append(msgspec.structs.replace(decision, id=f"{number:012x}"))
    return (time.perf_counter_ns() - began_ns) / BATCH / 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--decisions", type=int, default=20_000)
    arguments = parser.parse_args()
    decision = a_decision()
    with tempfile.TemporaryDirectory(prefix="rightsizer-bench-") as name:
        folder = Path(name)
        bare = os.open(folder / "bare", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        appends: dict[str, Callable[[Decision], object]] = {
            "bare": lambda one: os.write(bare, encode_decision(one)),
            "linked": Journal(folder, "decisions").append,
            "linked, with a key": Journal(folder, "decisions-keyed", KEY).append,
        }
        spent: dict[str, list[float]] = {how: [] for how in appends}
        for _ in range(arguments.decisions // BATCH):
            for how, append in appends.items():
                spent[how].append(timed_us(append, decision))
        os.close(bare)
        floor_us = statistics.median(spent["bare"])
        rows: list[dict[str, object]] = [
            {
                "append": how,
                "median µs": round(statistics.median(each), 2),
                "more, µs": round(statistics.median(each) - floor_us, 2),
                "ratio": round(statistics.median(each) / floor_us, 2),
            }
            for how, each in spent.items()
        ]
        print_rows(
            rows, "table", f"{arguments.decisions:,} decisions of {len(encode_decision(decision))} bytes"
        )
        print_rows([checking(folder)], "table", "checking the chain with a key")


def checking(folder: Path) -> dict[str, object]:
    """Return how fast a chain is checked."""
    began_s = time.process_time()
    check = check_chain("decisions-keyed", chains_in(folder)["decisions-keyed"], KEY)
    found = check.finish()
    spent_s = time.process_time() - began_s
    if found:
        sys.exit(f"the chain that was just written is broken: {found[0].what}")
    return {
        "lines": check.lines,
        "CPU s": round(spent_s, 3),
        "lines a CPU second": round(check.lines / spent_s),
    }


if __name__ == "__main__":
    main()
