"""The fault campaign: break a real Slurm's hook and service in every way of `faults.FAULTS`, and submit.

    python -m tests.cluster.campaign [--only WORD] [--format table|json|csv]

One row a fault. Every sbatch must be accepted within a bounded time, and its job be unchanged or correctly cut. Exit 1
where a row is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.cli.output import note, print_rows
from slurm_plugin.config_hook import lua_folder
from slurm_plugin.sandbox import cluster
from tests.cluster.fault_site import ASKED, DEADLINE_MS, FaultSite, Submitted
from tests.cluster.faults import FAULTS, Fault
from tests.cluster.pause import PauseSeen, watch_pause

# As many as the breaker lets pass before it opens: each of them meets the fault itself.
SUBMISSIONS = 3
LOADERS = 2
# sbatch takes 20 ms; slurmctld may wait 25 ms for us. A busy machine is given the rest.
PATIENCE_S = 5.0
# The breaker's pause in the row that watches it: long enough for its submissions, shorter than the real 30 s.
OPEN_S = 10
COUNTED = 20


@dataclass(frozen=True)
class Outcome:
    """What became of a row's submissions; `complaint` is empty where all is as it must be."""

    fault: str
    submitted: tuple[Submitted, ...]
    cut: str
    reasons: frozenset[str]
    complaint: str

    @property
    def unchanged(self) -> int:
        """How many jobs have what they asked for."""
        return sum(one.tres == ASKED for one in self.submitted)

    @property
    def slowest_s(self) -> float:
        """The longest that an sbatch took."""
        return max(one.took_s for one in self.submitted)

    def row(self) -> dict[str, object]:
        """Return the outcome as the table shows it."""
        return {
            "fault": self.fault,
            "submitted": len(self.submitted),
            "accepted": sum(one.job is not None for one in self.submitted),
            "unchanged": self.unchanged,
            "correctly cut": sum(one.tres == self.cut for one in self.submitted),
            "slowest sbatch (ms)": round(self.slowest_s * 1000),
            "in slurmctld's log": ", ".join(sorted(self.reasons)),
            "verdict": self.complaint or "right",
        }


def run(fault: Fault, site: FaultSite) -> Outcome:
    """Break, submit, mend; the breaker is closed before."""
    site.mend()
    with fault.broken(site):
        if fault.fresh_state:
            site.reload()
        site.new_reasons()
        submitted = (
            submit_during(fault, site) if fault.during else [site.submit() for _ in range(SUBMISSIONS)]
        )
        found = frozenset(site.new_reasons())
    site.cancel_all()
    return Outcome(fault.name, tuple(submitted), site.cut, found, complaint(fault, site, submitted, found))


def submit_during(fault: Fault, site: FaultSite) -> list[Submitted]:
    """Submit from several threads for as long as the fault is being made."""
    done = threading.Event()
    submitted: list[Submitted] = []

    def load() -> None:
        while not done.is_set():
            submitted.append(site.submit())

    loaders = [threading.Thread(target=load) for _ in range(LOADERS)]
    for loader in loaders:
        loader.start()
    try:
        assert fault.during is not None
        fault.during(site)
    finally:
        done.set()
        for loader in loaders:
            loader.join()
    return submitted


def complaint(fault: Fault, site: FaultSite, submitted: Sequence[Submitted], found: frozenset[str]) -> str:
    """Say what is wrong with a row; empty where nothing is."""
    allowed = {"unchanged": {ASKED}, "cut": {site.cut}, "either": {ASKED, site.cut}}[fault.expected]
    for one in submitted:
        if one.job is None:
            return f"sbatch failed: {one.said}"
        if one.tres not in allowed:
            return f"job {one.job} has {one.tres}"
        if one.took_s > PATIENCE_S:
            return f"sbatch took {one.took_s:.1f} s"
    met = found <= fault.reasons and (fault.must_log in found if fault.must_log else bool(found))
    if fault.reasons and not met:
        return f"not the fault that was meant: {', '.join(sorted(found)) or 'nothing logged'}"
    return ""


@dataclass(frozen=True)
class BreakerSeen:
    """A hung service with the breaker at work; times are slurmctld's own for one submission, in µs."""

    accepted_unchanged: bool
    calls_that_waited: int
    open_us: float
    healthy_us: float
    cut_again: bool
    slowest_s: float

    def complaint(self) -> str:
        """Say what is wrong; empty where nothing is."""
        if not self.accepted_unchanged:
            return "a job was not accepted unchanged"
        if self.calls_that_waited > SUBMISSIONS:
            return f"{self.calls_that_waited} submissions waited for a hung service"
        if self.open_us > DEADLINE_MS * 1000 / 2:
            return f"a submission costs {self.open_us:.0f} µs while the breaker is open"
        if not self.cut_again:
            return "the breaker does not close again"
        return f"sbatch took {self.slowest_s:.1f} s" if self.slowest_s > PATIENCE_S else ""

    def row(self) -> dict[str, object]:
        """Return what was seen as the table shows it."""
        return {
            "breaker": "service hung, then well again",
            "submissions that waited": self.calls_that_waited,
            "µs each while open": round(self.open_us),
            "µs each while healthy": round(self.healthy_us),
            "closed again": "yes" if self.cut_again else "no",
            "slowest sbatch (ms)": round(self.slowest_s * 1000),
            "verdict": self.complaint() or "right",
        }


def has_breaker() -> bool:
    """Tell whether this checkout's hook has a breaker."""
    return (lua_folder() / "rightsizer" / "breaker.lua").exists()


def watch_breaker(site: FaultSite) -> BreakerSeen:
    """Hang the service until the breaker opens, see what a submission then costs, and let it close again."""
    site.mend()
    site.start_service()
    site.write_settings(first=f'require("rightsizer.breaker").OPEN_S = {OPEN_S}')
    site.reload()
    site.submit()  # loads the script
    healthy_us, well = cost_us(site)
    site.new_reasons()
    with site.stopped_service():
        opening = [site.submit() for _ in range(SUBMISSIONS)]
        open_us, passed = cost_us(site)
        waited = sum(reason == "deadline" for reason in site.new_reasons())
    time.sleep(OPEN_S + 1)
    after = [site.submit() for _ in range(2)]
    site.cancel_all()
    site.mend()
    return BreakerSeen(
        accepted_unchanged=all(one.tres == ASKED for one in (*opening, *passed)),
        calls_that_waited=waited,
        open_us=open_us,
        healthy_us=healthy_us,
        cut_again=after[-1].tres == site.cut,
        slowest_s=max(one.took_s for one in (*well, *opening, *passed, *after)),
    )


def cost_us(site: FaultSite) -> tuple[float, list[Submitted]]:
    """Submit some jobs and return slurmctld's own mean time for one, and the jobs."""
    site.reset_counters()
    submitted = [site.submit() for _ in range(COUNTED)]
    count, total_us = site.lock_time_us()
    return total_us / max(1, count), submitted


def main() -> None:
    """Run the rows and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="WORD", help="run the faults whose name contains WORD")
    parser.add_argument("--format", default="table", choices=["table", "json", "csv"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        outcomes, seen, pause = run_all(
            folder / "faults", [fault for fault in FAULTS if arguments.only in fault.name]
        )
    print_rows([outcome.row() for outcome in outcomes], arguments.format, "Faults on a real slurmctld")
    if seen is not None:
        note(", ".join(f"{what}: {value}" for what, value in seen.row().items()))
    if pause is not None:
        print_rows([pause.row()], arguments.format, "The breaker's pause")
    complaints = [one.complaint() for one in (seen, pause) if one is not None]
    if any(complaints) or any(outcome.complaint for outcome in outcomes):
        sys.exit(1)


def run_all(
    directory: Path, faults: Sequence[Fault]
) -> tuple[list[Outcome], BreakerSeen | None, PauseSeen | None]:
    """Run rows, and watch the breaker, on one sandbox, which is ended afterwards."""
    note("starting a private Slurm")
    try:
        site = FaultSite.start(directory)
        outcomes = []
        for fault in faults:
            reason = fault.needs()
            note(f"{fault.name}: skipped, {reason}" if reason else fault.name)
            if reason is None:
                outcomes.append(run(fault, site))
        if not has_breaker():
            note("breaker: skipped, this hook has none")
            return outcomes, None, None
        note("breaker, and its pause of 30 s twice")
        return outcomes, watch_breaker(site), watch_pause(site)
    finally:
        if (directory / "sandbox.json").exists():
            cluster.stop(directory)


if __name__ == "__main__":
    main()
