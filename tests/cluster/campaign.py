"""The fault campaign: break a real Slurm's hook and service in every way of `faults.FAULTS`, and submit.

    python -m tests.cluster.campaign [--only WORD] [--format table|json|csv|markdown] [--page docs/faults.md]

One row for each fault. Every sbatch must be accepted within a bounded time, and its job must be unchanged or correctly
cut; everything apart from submissions must be intact afterwards. Exit 1 if a row is wrong. `--page` puts the rows into
the table of this release of Slurm in a page.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accounting.errors import RightsizerError
from slurm_plugin.cli.output import note, print_rows
from slurm_plugin.sandbox import cluster
from tests.cluster.fault import Fault
from tests.cluster.fault_page import markdown, write_rows
from tests.cluster.fault_site import ASKED, DEADLINE_MS, FaultSite, Submitted
from tests.cluster.faults import FAULTS
from tests.cluster.pause import MARGIN_S, PauseSeen, watch_pause

# As many as the breaker lets pass before it opens: each of them meets the fault itself.
SUBMISSIONS = 3
LOADERS = 2
# sbatch takes 20 ms, and slurmctld may wait 25 ms for us. The rest is for a busy machine.
PATIENCE_S = 5.0
MOST_NOISE_MS = 500.0
# What slurmctld logs of any call for which a busy machine was too slow.
LATENESS, TRIES = "deadline", 5
# What sbatch prints if slurmctld closed the connection without an answer.
HUNG_UP = "Zero Bytes were transmitted or received"
# The breaker's pause in the row that watches it: long enough for that row's submissions, shorter than the real 30 s.
OPEN_S = 10
COUNTED = 20
# A busy machine makes fewer submissions in the pause, but at least this many.
LEAST_COUNTED = 3


@dataclass(frozen=True)
class Outcome:
    """What became of a row's submissions; `complaint` is empty if all is as it must be.

    `longest_ms` is slurmctld's own time for the slowest submission, if they came one after the other.
    """

    fault: Fault
    submitted: tuple[Submitted, ...]
    cut: str
    longest_ms: float | None
    reasons: frozenset[str]
    complaint: str

    @property
    def unchanged(self) -> int:
        """Return how many jobs have what they asked for."""
        return sum(one.tres == ASKED for one in self.submitted)

    @property
    def slowest_s(self) -> float:
        """Return the longest time that an sbatch took."""
        return max((one.took_s for one in self.submitted), default=0.0)

    @property
    def is_slow(self) -> bool:
        """Whether an sbatch, or slurmctld, took longer than on a machine that is not busy."""
        return self.slowest_s > PATIENCE_S or (self.longest_ms or 0.0) > DEADLINE_MS + MOST_NOISE_MS

    @property
    def may_be_late(self) -> bool:
        """Whether a busy machine may explain the complaint; only a fault causes the same complaint every time."""
        missed = bool(self.fault.must_log) and self.fault.must_log not in self.reasons
        return self.is_slow or missed or LATENESS in self.reasons - self.fault.reasons

    def row(self) -> dict[str, object]:
        """Return the outcome as the table shows it."""
        return {
            "fault": self.fault.name,
            "what is done": self.fault.made,
            "submitted": len(self.submitted),
            "accepted": sum(one.job is not None for one in self.submitted),
            "unchanged": self.unchanged,
            "correctly cut": sum(one.tres == self.cut for one in self.submitted),
            f"longest in slurmctld (ms; the hook's deadline: {DEADLINE_MS})": self.longest_ms,
            "slowest sbatch (ms)": round(self.slowest_s * 1000),
            "in slurmctld's log": ", ".join(sorted(self.reasons)),
            "verdict": self.complaint or "right",
        }


def run(fault: Fault, site: FaultSite) -> Outcome:
    """Break, submit and mend; once more if a busy machine was late, so that jobs met another fault than intended."""
    for _ in range(TRIES - 1):
        outcome = run_once(fault, site)
        if not outcome.complaint or not outcome.may_be_late:
            return outcome
    return run_once(fault, site)


def run_once(fault: Fault, site: FaultSite) -> Outcome:
    """Run a row, starting with a closed breaker. Whatever is not intact afterwards is the row's complaint."""
    site.mend()
    submitted: list[Submitted] = []
    longest_ms, found, broken = None, frozenset[str](), ""
    try:
        with fault.broken(site):
            if fault.fresh_state:
                site.reload()
            site.new_reasons()
            if fault.during:
                submitted = submit_during(fault, site)
            else:
                submitted, longest_ms = submit_in_turn(site)
            found = frozenset(site.new_reasons())
    except (AssertionError, RightsizerError) as error:
        broken = " ".join(str(error).split())
    site.cancel_all()
    said = complaint(fault, site, submitted, found, longest_ms) if submitted else "nothing was submitted"
    return Outcome(fault, tuple(submitted), site.cut, longest_ms, found, broken or said)


def submit_in_turn(site: FaultSite) -> tuple[list[Submitted], float]:
    """Submit one job after the other; return also slurmctld's own time for the slowest, in ms."""
    submitted: list[Submitted] = []
    longest_us = 0
    for _ in range(SUBMISSIONS):
        _, before_us = site.lock_time_us()
        submitted.append(site.submit())
        _, after_us = site.lock_time_us()
        longest_us = max(longest_us, after_us - before_us)
    return submitted, round(longest_us / 1000, 1)


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


def complaint(
    fault: Fault,
    site: FaultSite,
    submitted: Sequence[Submitted],
    found: frozenset[str],
    longest_ms: float | None,
) -> str:
    """Say what is wrong with a row; empty if nothing is."""
    allowed = {"unchanged": {ASKED}, "cut": {site.cut}, "either": {ASKED, site.cut}}[fault.expected]
    hung_up = sum(one.job is None and HUNG_UP in one.said for one in submitted)
    if hung_up > fault.most_hung_up:
        return f"slurmctld hung up on {hung_up} submissions"
    for one in submitted:
        if one.job is None and HUNG_UP in one.said:
            continue
        if one.job is None:
            return f"sbatch failed: {one.said}"
        if one.tres not in allowed:
            return f"job {one.job} has {one.tres}"
        if one.took_s > PATIENCE_S:
            return f"sbatch took {one.took_s:.1f} s"
    if longest_ms is not None and longest_ms > DEADLINE_MS + MOST_NOISE_MS:
        return f"slurmctld was busy for {longest_ms:.0f} ms"
    meant = found - ({LATENESS} - fault.reasons)
    met = meant <= fault.reasons and (fault.must_log in meant if fault.must_log else bool(meant))
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
    late: bool

    def complaint(self) -> str:
        """Say what is wrong; empty if nothing is."""
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
        """Return what was seen, as the table shows it."""
        return {
            "breaker": "service hung, then well again",
            "submissions that waited": self.calls_that_waited,
            "µs each while open": round(self.open_us),
            "µs each while healthy": round(self.healthy_us),
            "closed again": "yes" if self.cut_again else "no",
            "slowest sbatch (ms)": round(self.slowest_s * 1000),
            "verdict": self.complaint() or "right",
        }


def watch_breaker(site: FaultSite) -> BreakerSeen:
    """Watch the breaker; once more if a busy machine was late, so that the pause ended too soon."""
    for _ in range(TRIES):
        seen = watch_breaker_once(site)
        if not seen.late and seen.slowest_s <= PATIENCE_S:
            break
    return seen


def watch_breaker_once(site: FaultSite) -> BreakerSeen:
    """Hang the service until the breaker opens, see what a submission then costs, and let it close again."""
    site.mend()
    site.start_service()
    site.write_settings(first=f'require("rightsizer.breaker").OPEN_S = {OPEN_S}')
    site.reload()
    site.submit()  # loads the script
    healthy_us, well = cost_us(site)
    site.new_reasons()
    with site.stopped_service():
        opening = [site.submit() for _ in range(SUBMISSIONS - 1)]
        # The next failure opens the breaker, so its pause does not begin before this time.
        until_s = time.monotonic() + OPEN_S
        opening.append(site.submit())
        open_us, passed = cost_us(site, until_s - MARGIN_S)
        late = time.monotonic() > until_s or len(passed) < LEAST_COUNTED
        waited = sum(reason == "deadline" for reason in site.new_reasons())
    after: list[Submitted] = []

    def is_cut() -> bool:
        # A probe that a busy machine answers late opens it once more.
        time.sleep(OPEN_S + 1)
        after.extend(site.submit() for _ in range(2))
        return after[-1].tres == site.cut

    with contextlib.suppress(AssertionError):
        site.wait_for(is_cut, "the breaker does not close again")
    site.cancel_all()
    site.mend()
    return BreakerSeen(
        accepted_unchanged=all(one.tres == ASKED for one in (*opening, *passed)),
        calls_that_waited=waited,
        open_us=open_us,
        healthy_us=healthy_us,
        cut_again=after[-1].tres == site.cut,
        slowest_s=max(one.took_s for one in (*well, *opening, *passed, *after)),
        late=late,
    )


def cost_us(site: FaultSite, until_s: float = math.inf) -> tuple[float, list[Submitted]]:
    """Submit some jobs, fewer if they take longer; return slurmctld's own median time for one job, and the jobs.

    Not the mean, because a busy machine makes some of them late.
    """
    submitted: list[Submitted] = []
    each_us: list[int] = []
    while len(submitted) < COUNTED and time.monotonic() < until_s:
        site.reset_counters()
        submitted.append(site.submit())
        each_us.append(site.lock_time_us()[1])
    return statistics.median(each_us or [0]), submitted


def main() -> None:
    """Run the rows and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="WORD", help="run the faults whose name contains WORD")
    parser.add_argument("--format", default="table", choices=["table", "json", "csv", "markdown"])
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="put the rows into this release's table in a page"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        campaign = run_all(folder / "faults", [fault for fault in FAULTS if arguments.only in fault.name])
    rows = [outcome.row() for outcome in campaign.outcomes]
    if arguments.page:
        write_rows(arguments.page, campaign.release, rows, [fault.name for fault in FAULTS])
    if arguments.format == "markdown":
        print(markdown(campaign.release, rows))
    else:
        print_rows(rows, arguments.format, f"Faults on a real slurmctld {campaign.release}")
    for seen in campaign.breaker:
        note(", ".join(f"{what}: {value}" for what, value in seen.row().items()))
    wrong = sum(bool(one.complaint) for one in campaign.outcomes)
    wrong += sum(bool(seen.complaint()) for seen in campaign.breaker)
    note(f"{len(rows)} faults, {wrong} wrong")
    sys.exit(1 if wrong else 0)


@dataclass(frozen=True)
class Campaign:
    """The results of all rows on a release of Slurm, and what was seen of the breaker and of its pause."""

    release: str
    outcomes: tuple[Outcome, ...]
    breaker: tuple[BreakerSeen | PauseSeen, ...]


def run_all(directory: Path, faults: Sequence[Fault]) -> Campaign:
    """Run the rows, and watch the breaker, in one sandbox, which is ended afterwards."""
    note("starting a private Slurm")
    try:
        site = FaultSite.start(directory)
        outcomes = []
        for fault in faults:
            reason = fault.needs()
            if reason is not None:
                note(f"{fault.name}: skipped, {reason}")
                continue
            began_s = time.monotonic()
            outcomes.append(run(fault, site))
            verdict = outcomes[-1].complaint or "right"
            note(f"{fault.name}: {verdict} ({time.monotonic() - began_s:.1f} s)")
        seen: tuple[BreakerSeen | PauseSeen, ...] = ()
        if len(faults) == len(FAULTS):
            note("breaker, and its pause of 30 s twice")
            seen = (watch_breaker(site), watch_pause(site))
        return Campaign(site.sandbox.manifest.release.split()[-1], tuple(outcomes), seen)
    finally:
        if (directory / "sandbox.json").exists():
            cluster.stop(directory)


if __name__ == "__main__":
    main()
