"""The advisor on a real Slurm: what sprio shows is what it said, and nothing is left however it ends.

RIGHTSIZER_KILLS=50 kills it fifty times.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from slurm_plugin.config import load_config, render_config
from slurm_plugin.sandbox import cluster, daemons, teardown
from slurm_plugin.sandbox.cluster import Options, Sandbox
from tests.cluster.conftest import Shell
from tests.cluster.matrix.prefixes import chosen_prefix

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

KILLS = int(os.environ.get("RIGHTSIZER_KILLS", "3"))
PATIENCE_S = 40.0
LEASE_S = 1
# Every second kill comes at any time, the others among writes, or soon after: those are slow.
ANYWHERE_S, AMONG_WRITES_S = (0.4, 3.0), (0.0, 1.5)


class Site(NamedTuple):
    """A saturated cluster, and the configurations of an advisor: a quick one, and one that writes slowly."""

    sandbox: Sandbox
    shell: Shell
    quick: Path
    slow: Path

    def factors(self) -> dict[str, int]:
        """Return what sprio shows, by job."""
        lines = self.shell.run("sprio", "--noheader", "--format=%i %S").splitlines()
        return {job: int(factor) for job, factor in map(str.split, lines)}

    def advise(self, *options: str, slow: bool = False, code: int = 0) -> tuple[str, str]:
        return self.shell.run_both(
            "rightsizer", "advise", "--config", str(self.slow if slow else self.quick), *options, code=code
        )

    def start(self, *, slow: bool, log: Path) -> "subprocess.Popen[bytes]":
        """Start an advisor that goes on until it is stopped."""
        with log.open("ab") as errors:
            return subprocess.Popen(
                [
                    "rightsizer", "advise", "--config", str(self.slow if slow else self.quick), "--watch", "--apply",
                ],
                env={**os.environ, **self.sandbox.environment()},
                stderr=errors,
            )  # fmt: skip

    def jobs(self) -> set[str]:
        return set(self.shell.run("squeue", "--noheader", "--format=%i %T").splitlines())


def wait_for(what: Callable[[], bool], why: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < until_s, why
        time.sleep(0.1)


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Site:
    folder = make_folder()
    options = Options(
        directory=folder / "site", nodes=2, slurm_prefix=chosen_prefix(), hook=False, serve=False
    )
    sandbox = cluster.start(options)
    shell = Shell(sandbox)
    own = load_config(str(sandbox.layout.rightsizer_toml))
    files = []
    for name, writes_per_s in (("quick", 500), ("slow", 8)):
        advisor = msgspec.structs.replace(
            own.advisor,
            control_share=0.0,
            period_s=1,
            lease_s=LEASE_S,
            writes_per_s=writes_per_s,
            queue="scontrol",
        )
        files.append(folder / f"{name}.toml")
        files[-1].write_text(render_config(msgspec.structs.replace(own, advisor=advisor)), encoding="utf-8")
    site = Site(sandbox, shell, *files)
    for _ in range(2):
        shell.submit("--time=20", "--cpus-per-task=16", "--mem=1000", script="sleep 900")
    wait_for(lambda: len([job for job in site.jobs() if job.endswith("RUNNING")]) == 2, "nothing runs")
    for _ in range(4):
        shell.submit("--time=300", "--cpus-per-task=16", "--mem=1000", script="sleep 20")
    for _ in range(8):
        shell.submit("--time=5", "--cpus-per-task=2", "--mem=500", script="sleep 20")
    shell.submit("--time=5", "--array=1-20", "--mem=100", script="sleep 5")
    shell.submit("--time=5", "--hold", "--mem=100", script="sleep 5")
    wait_for(lambda: len(site.factors()) == 13, "sprio does not show what waits")
    return site


def test_what_is_applied_is_what_sprio_shows_and_undo_restores_it(site: Site) -> None:
    before, jobs = site.factors(), site.jobs()
    assert set(before.values()) == {0}
    dry, _ = site.advise("--format", "json")
    assert site.factors() == before
    applied, said = site.advise("--once", "--apply", "--format", "json")
    rows = {str(row["job_id"]): row for row in json.loads(applied)}
    assert {row["job_id"] for row in json.loads(dry)} == {row["job_id"] for row in rows.values()}
    shown = site.factors()
    assert shown == {job: rows[job]["proposed_factor"] for job in shown}
    assert any(shown.values()), said
    # Short narrow jobs come before long wide ones, by Slurm's own order.
    order = site.shell.run("squeue", "--noheader", "--states=PENDING", "--sort=-p", "--format=%l").split()
    # The held one has no priority and comes last.
    assert order[:9] == ["5:00"] * 9
    site.advise("--undo")
    assert (site.factors(), site.jobs()) == (before, jobs)


def test_whenever_it_is_killed_nothing_outlives_the_lease(site: Site, tmp_path: Path) -> None:
    before, jobs = site.factors(), site.jobs()
    draw, cut_off = random.Random(7), 0
    for kill in range(KILLS):
        advisor = site.start(slow=True, log=tmp_path / "log")
        if kill % 2:
            time.sleep(draw.uniform(*ANYWHERE_S))
        else:
            wait_for(lambda: any(site.factors().values()), "the advisor changes nothing")
            time.sleep(draw.uniform(*AMONG_WRITES_S))
        advisor.send_signal(signal.SIGKILL)
        advisor.wait()
        cut_off += sum(1 for factor in site.factors().values() if factor) > 0
        deadline_s = time.monotonic() + LEASE_S + PATIENCE_S

        def is_undone() -> bool:
            site.advise("--undo", "--expired")
            return site.factors() == before

        wait_for(is_undone, "a factor outlived its lease")
        assert time.monotonic() < deadline_s
        assert site.jobs() == jobs
    assert cut_off, "no kill came while factors were in force"
    # The next cycle is clean.
    site.advise("--once", "--apply")
    assert any(site.factors().values())
    site.advise("--undo")
    assert site.factors() == before


def test_a_slurmctld_that_is_restarted_in_a_cycle_loses_nothing(site: Site, tmp_path: Path) -> None:
    before, jobs = site.factors(), site.jobs()
    log = tmp_path / "log"
    advisor = site.start(slow=False, log=log)
    try:
        wait_for(lambda: any(site.factors().values()), "the advisor changes nothing")
        teardown.end_daemon(site.sandbox.layout, daemons.SLURMCTLD)
        wait_for(
            lambda: b"the queue is left as it is" in log.read_bytes(),
            "the advisor does not say that it failed",
        )
        cluster.bring_up([daemons.slurmctld(site.sandbox.cluster)], site.sandbox.cluster, lambda _: None)
        known = log.read_bytes().count(b"jobs wait")
        wait_for(lambda: log.read_bytes().count(b"jobs wait") > known, "no cycle after the restart")
    finally:
        advisor.send_signal(signal.SIGTERM)
        assert advisor.wait(PATIENCE_S) == 0, log.read_text(encoding="utf-8")
    assert log.read_bytes().count(b"the queue is left as it is") <= 2
    assert (site.factors(), site.jobs()) == (before, jobs)
