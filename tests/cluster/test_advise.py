"""The advisor on a real Slurm: sprio shows what it announced, and however it ends it leaves nothing behind.

RIGHTSIZER_KILLS=50 kills it fifty times.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.sandbox import cluster, daemons, teardown
from tests.cluster.advised_site import FILLS, Site, start_site
from tests.cluster.conftest import PATIENCE_S
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

KILLS = int(os.environ.get("RIGHTSIZER_KILLS", "3"))
LEASE_S = 2
# Every second kill comes at any time, the others during the writes or soon after: those are slow.
ANYWHERE_S, AMONG_WRITES_S = (0.4, 3.0), (0.0, 1.5)


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Site:
    settings = {
        name: {"lease_s": LEASE_S, "writes_per_s": writes_per_s}
        for name, writes_per_s in (("quick", 500), ("slow", 8))
    }
    return start_site(make_folder(), settings, (FILLS, FILLS))


def test_sprio_shows_what_is_applied_and_undo_restores_what_was_there(site: Site) -> None:
    before, jobs = site.factors(), site.jobs()
    assert set(before.values()) == {0}
    dry, _ = site.advise("quick", "--format", "json")
    assert site.factors() == before
    applied, said = site.advise("quick", "--once", "--apply", "--format", "json")
    rows = {str(row["job_id"]): row for row in json.loads(applied)}
    assert {row["job_id"] for row in json.loads(dry)} == {row["job_id"] for row in rows.values()}
    shown = site.factors()
    assert shown == {job: rows[job]["proposed_factor"] for job in shown}
    assert any(shown.values()), said
    # By Slurm's own order, short narrow jobs now come before long wide ones.
    order = site.shell.run("squeue", "--noheader", "--states=PENDING", "--sort=-p", "--format=%l").split()
    # The held one has no priority and comes last.
    assert order[:9] == ["5:00"] * 9
    site.advise("quick", "--undo")
    assert (site.factors(), site.jobs()) == (before, jobs)


def test_the_order_that_a_user_gives_their_own_jobs_by_nice_stays(site: Site) -> None:
    lines = site.shell.run("squeue", "--noheader", "--states=PENDING", "--format=%i %l").splitlines()
    limits = dict(map(str.split, lines))
    short, *others = (job for job in site.factors() if limits.get(job) == "5:00")
    site.shell.run("scontrol", "update", f"JobId={short}", "Nice=20")
    try:
        site.advise("quick", "--once", "--apply")
        factors = site.factors()
        # Among equal priorities the job that came first precedes it: it passes no long job of its user.
        assert factors[short] <= min(factors[job] for job in limits if limits[job] == "5:00:00")
        assert min(factors[job] for job in others) > factors[short]
    finally:
        site.advise("quick", "--undo")
        site.shell.run("scontrol", "update", f"JobId={short}", "Nice=0")
    assert set(site.factors().values()) == {0}


def test_no_factor_outlives_its_lease_whenever_the_advisor_is_killed(site: Site, tmp_path: Path) -> None:
    before, jobs = site.factors(), site.jobs()
    draw, cut_off = random.Random(7), 0
    for kill in range(KILLS):
        advisor = site.start("slow", tmp_path / "log")
        if kill % 2:
            time.sleep(draw.uniform(*ANYWHERE_S))
        else:
            wait_until(lambda: any(site.factors().values()), "the advisor changes nothing")
            time.sleep(draw.uniform(*AMONG_WRITES_S))
        advisor.send_signal(signal.SIGKILL)
        advisor.wait()
        cut_off += sum(1 for factor in site.factors().values() if factor) > 0

        def is_undone() -> bool:
            site.advise("quick", "--undo", "--expired")
            return site.factors() == before

        wait_until(is_undone, "a factor outlived its lease")
        assert site.jobs() == jobs
    assert cut_off, "no kill came while factors were in force"
    # The next cycle works normally.
    site.advise("quick", "--once", "--apply")
    assert any(site.factors().values())
    site.advise("quick", "--undo")
    assert site.factors() == before


def test_a_restart_of_slurmctld_during_a_cycle_loses_nothing(site: Site, tmp_path: Path) -> None:
    before, jobs = site.factors(), site.jobs()
    log = tmp_path / "log"
    advisor = site.start("quick", log)
    try:
        wait_until(lambda: any(site.factors().values()), "the advisor changes nothing")
        teardown.end_daemon(site.sandbox.layout, daemons.SLURMCTLD)
        wait_until(
            lambda: b"the queue is left as it is" in log.read_bytes(),
            "the advisor does not say that it failed",
        )
        cluster.bring_up([daemons.slurmctld(site.sandbox.cluster)], site.sandbox.cluster, lambda _: None)
        known = log.read_bytes().count(b" waiting job")
        wait_until(lambda: log.read_bytes().count(b" waiting job") > known, "no cycle after the restart")
    finally:
        advisor.send_signal(signal.SIGTERM)
        assert advisor.wait(PATIENCE_S) == 0, log.read_text(encoding="utf-8")
    assert log.read_bytes().count(b"the queue is left as it is") <= 2
    # sprio shows a job once the scheduler has looked at it.
    wait_until(lambda: site.factors().keys() == before.keys(), "a job is lost")
    assert (site.factors(), site.jobs()) == (before, jobs)
