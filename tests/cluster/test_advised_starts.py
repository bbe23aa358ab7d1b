"""On a real Slurm, `rightsizer report advisor` compares the starts that its journal foresaw with those in sacct."""

import json
import math
import signal
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from slurm_plugin.config.file import load_config
from tests.cluster.advised_site import Site, start_site, until
from tests.cluster.conftest import PATIENCE_S
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SHORT_S = 3


class Foreseen(NamedTuple):
    """What a cycle foresaw for a job that started later, and what came (unix seconds)."""

    job_id: int
    start_s: float
    low_s: float | None
    high_s: float | None
    started_s: float

    @property
    def held(self) -> bool:
        """Whether the start (in Slurm, whole seconds) was in the interval; one beyond the horizon has no end."""
        assert self.low_s is not None
        return math.floor(self.low_s) <= self.started_s and (
            self.high_s is None or self.started_s <= self.high_s
        )


def started(site: Site) -> dict[int, float]:
    """Return when the jobs that are not array tasks started, by sacct, once it has their ends too."""
    argv = ("sacct", "-X", "-n", "-P", "--starttime=now-1hour", "--format=JobIDRaw,JobID,Partition,Start,End")
    rows = [line.split("|") for line in site.shell.run("env", "SLURM_TIME_FORMAT=%s", *argv).splitlines()]
    return {
        int(raw): float(start)
        for raw, shown, partition, start, end in rows
        if "_" not in shown and partition and start.isdigit() and end.isdigit()
    }


def cycles_of(site: Site) -> list[dict[str, Any]]:
    """Return the complete lines of the advisor's journal."""
    folder = Path(load_config(str(site.files["quick"])).advisor.directory)
    return [
        json.loads(line)
        for file in sorted(folder.glob("cycles-*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines(keepends=True)
        if line.endswith("\n")
    ]


def foreseen(site: Site) -> list[Foreseen]:
    """Return what the advisor's journal foresaw for jobs that have started, line by line."""
    cycles, starts_s = cycles_of(site), started(site)
    assert all(cycle["applied"] for cycle in cycles)
    return [
        Foreseen(job["job_id"], job["start_s"], job.get("low_s"), job.get("high_s"), starts_s[job["job_id"]])
        for cycle in cycles
        for job in cycle.get("jobs", ())
        if job.get("start_s") is not None and starts_s.get(job["job_id"], 0) > cycle["time_s"] - 1
    ]


def test_foreseen_starts_are_compared_with_those_in_sacct(
    make_folder: Callable[[], Path], tmp_path: Path
) -> None:
    folder = make_folder()
    seen = folder / "seen"
    site = start_site(folder, {"quick": {"lease_s": 30, "writes_per_s": 500}}, (until(seen),) * 2, SHORT_S)
    advisor = site.start("quick", tmp_path / "log")
    try:
        # No pending job starts before the advisor has looked.
        wait_until(
            lambda: any(cycle.get("jobs") for cycle in cycles_of(site)), "the advisor foresees nothing"
        )
        seen.touch()
        wait_until(lambda: len(site.jobs()) == 1, "the queue does not empty")
    finally:
        advisor.send_signal(signal.SIGTERM)
        assert advisor.wait(PATIENCE_S) == 0, (tmp_path / "log").read_text(encoding="utf-8")
    # All except the array's tasks and the held job.
    wait_until(lambda: len(started(site)) == 14, "sacct does not know all starts and ends")
    config = ("--config", str(site.files["quick"]))
    site.shell.run("rightsizer", "ingest", *config)
    rows = json.loads(site.shell.run("rightsizer", "report", "advisor", *config, "--format", "json"))
    came = foreseen(site)
    bounded = [one for one in came if one.low_s is not None]
    off_s = [one.started_s - one.start_s for one in came]
    assert len(bounded) >= 12
    total = rows[0]
    assert (total["order"], total["foreseen"], total["with_interval"]) == ("all", len(came), len(bounded))
    assert sum(row["foreseen"] for row in rows[1:]) == len(came)
    assert total["jobs"] == len({one.job_id for one in came})
    assert total["median_late_min"] == pytest.approx(statistics.median(off_s) / 60, abs=0.011)
    assert total["median_error_min"] == pytest.approx(statistics.median(map(abs, off_s)) / 60, abs=0.011)
    held = sum(one.held for one in bounded)
    assert total["within_interval_pct"] == pytest.approx(100 * held / len(bounded), abs=0.06)
