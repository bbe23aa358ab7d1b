"""The advisor while slurmctld is away: once it answers, no factor outlives its lease, no job is lost, cycles go on.

RIGHTSIZER_OUTAGE=600 makes the outage ten minutes, and tries each kind of outage in both tests.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import cluster, daemons, teardown
from tests.cluster.advised_site import FILLS, Site, start_site, until
from tests.cluster.conftest import PATIENCE_S
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

OUTAGE_S = int(os.environ.get("RIGHTSIZER_OUTAGE", "20"))
IN_FULL = "RIGHTSIZER_OUTAGE" in os.environ
LEASE_S = max(5, OUTAGE_S // 4)
ALL_JOBS = 2 + 4 + 8 + 20 + 1
WELL = {"COMPLETED", "RUNNING", "PENDING", "COMPLETING"}


@pytest.fixture
def away_file(make_folder: Callable[[], Path]) -> Path:
    """Return the file that ends the job on one node during the outage; others start once slurmctld is back."""
    return make_folder() / "away"


@pytest.fixture
def site(make_folder: Callable[[], Path], away_file: Path) -> Site:
    return start_site(make_folder(), {"own": {"lease_s": LEASE_S}}, (FILLS, until(away_file)))


@contextlib.contextmanager
def silent(site: Site) -> Iterator[None]:
    """Make slurmctld accept connections and never answer."""
    record = teardown.running_record(site.sandbox.layout, daemons.SLURMCTLD)
    assert record is not None
    os.kill(record.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(record.pid, signal.SIGCONT)


@contextlib.contextmanager
def gone(site: Site) -> Iterator[None]:
    """End slurmctld."""
    teardown.end_daemon(site.sandbox.layout, daemons.SLURMCTLD)
    try:
        yield
    finally:
        cluster.bring_up([daemons.slurmctld(site.sandbox.cluster)], site.sandbox.cluster, lambda _: None)


def states(site: Site) -> dict[str, str]:
    """Return what sacct says of every job that has started, for an array of each task."""
    said = site.shell.run(
        "sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "--format=JobID,State"
    )
    rows = (line.split("|") for line in said.splitlines())
    return {job: state.partition(" ")[0] for job, state in rows if "[" not in job}


def known_jobs(site: Site) -> dict[str, str]:
    """Return the states of all jobs; a job no longer in the queue is known to slurmdbd, or about to be."""
    queued = dict(
        line.split()
        for line in site.shell.run("squeue", "--array", "--noheader", "--format=%i %T").splitlines()
    )
    return states(site) | queued


def assert_nothing_lost(site: Site) -> None:
    """Check that every job waits, runs or has completed, in its first attempt."""
    wait_until(lambda: len(known_jobs(site)) >= ALL_JOBS, "a job is lost")
    known = known_jobs(site)
    assert len(known) == ALL_JOBS, known
    assert set(known.values()) <= WELL, known
    shown = site.shell.run("scontrol", "--oneliner", "show", "job").splitlines()
    assert all(" Restarts=0 " in line for line in shown)


@pytest.mark.parametrize("away", [silent, gone] if IN_FULL else [silent])
def test_an_advisor_outlasts_an_outage_of_slurmctld(
    site: Site,
    away_file: Path,
    tmp_path: Path,
    away: Callable[[Site], contextlib.AbstractContextManager[None]],
) -> None:
    log = tmp_path / "log"
    advisor = site.start("own", log)
    try:
        wait_until(lambda: any(site.factors().values()), "the advisor changes nothing")
        with away(site):
            away_file.touch()
            until_s = time.monotonic() + OUTAGE_S
            wait_until(lambda: b"the queue is left as it is" in log.read_bytes(), "it does not say so")
            time.sleep(max(0.0, until_s - time.monotonic()))
            assert advisor.poll() is None
            known = log.read_bytes().count(b" waiting job")
        wait_until(lambda: log.read_bytes().count(b" waiting job") > known + 1, "no cycle once it answers")
        assert_nothing_lost(site)
    finally:
        advisor.send_signal(signal.SIGTERM)
        code = advisor.wait(PATIENCE_S)
    assert code == 0, log.read_text(encoding="utf-8")
    assert not any(site.factors().values())
    assert_nothing_lost(site)


@pytest.mark.parametrize("away", [silent, gone] if IN_FULL else [gone])
def test_the_factors_of_an_advisor_that_dies_in_an_outage_are_undone_after_it(
    site: Site,
    away_file: Path,
    tmp_path: Path,
    away: Callable[[Site], contextlib.AbstractContextManager[None]],
) -> None:
    advisor = site.start("own", tmp_path / "log")
    wait_until(lambda: any(site.factors().values()), "the advisor changes nothing")
    with away(site):
        away_file.touch()
        time.sleep(OUTAGE_S / 2)
        advisor.kill()
        advisor.wait()
        time.sleep(OUTAGE_S / 2)
        # As the lease's timer does, while it cannot do anything.
        _, said = site.advise("own", "--undo", "--expired", code=1)
        assert "check that" in said
    wait_until(lambda: any(site.factors()), "slurmctld does not answer")
    back_s = time.monotonic()

    def is_undone() -> bool:
        site.advise("own", "--undo", "--expired")
        return not any(site.factors().values())

    wait_until(is_undone, "a factor outlived its lease")
    print(f"undone {time.monotonic() - back_s:.1f} s after slurmctld was back")
    assert_nothing_lost(site)
    # The next cycle works normally.
    applied, _ = site.advise("own", "--once", "--apply", "--format", "json")
    proposed = {str(row["job_id"]): row["proposed_factor"] for row in json.loads(applied)}
    shown = site.factors()
    assert shown
    assert shown == {job: proposed[job] for job in shown}
    site.advise("own", "--undo")
    assert not any(site.factors().values())
