"""Which plugin measures jobs: what is printed, stored and read again while slurmctld does not say it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine

from accounting.errors import SlurmError
from accounting.ingest.run import IngestReport, IngestSettings
from accounting.records import Attempt
from accounting.slurm.sacct_records import Metering
from accounting.store.database import open_store
from accounting.store.records import read_attempts
from slurm_plugin.cli.ingest.settings import settings_anew, settings_of
from slurm_plugin.cli.ingest.watch import watch
from slurm_plugin.slurm.metering import UnknownMeter, most_likely, parse_metering, read_metering
from tests.builders import FakeSacct, SacctRow, executable, job_line, step_line
from tests.conftest import PATIENCE_S, Site
from tests.slurm_plugin.conftest import Run
from tests.waiting import wait_until

CONFIG = """\
ClusterName             = alpha
CgroupPlugin            = cgroup/v2
JobAcctGatherFrequency  = task=10
JobAcctGatherType       = jobacct_gather/cgroup
JobAcctGatherParams     = (null)
SLURM_VERSION           = 24.11.5
"""
KNOWN = Metering(release="24.11", gather="jobacct_gather/cgroup cgroup/v2", sampled_every_s=10)
UNKNOWN = "cannot tell which Slurm release and plugin measure jobs: scontrol failed: .*Unable to contact"


@dataclass
class Cluster:
    """A sacct with a release, and a slurmctld that may answer."""

    site: Site
    folder: Path

    def has(self, release: str, rows: list[SacctRow]) -> None:
        fake = FakeSacct(self.site.folder / "slurm", rows)
        told = f"echo 'slurm {release}'" if release else "exit 1"
        text = f'#!/bin/sh\nif [ "$1" = --version ]; then {told}; else exec {fake.command} "$@"; fi\n'
        self.site.configure(accounting={"sacct": str(executable(self.folder / "sacct", text))})

    def answers(self, config: str = CONFIG) -> None:
        executable(self.folder / "scontrol", f"#!/bin/sh\ncat <<'END'\n{config}END\n")

    def is_silent(self) -> None:
        said = "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)"
        executable(self.folder / "scontrol", f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")

    @property
    def sacct(self) -> str:
        return self.site.config.accounting.sacct

    def stored(self) -> list[Attempt]:
        engine = open_store(self.site.config.store.url)
        try:
            return read_attempts(engine)
        finally:
            engine.dispose()

    def labels(self) -> list[tuple[str, str, str]]:
        return [(one.slurm_release, one.gather, one.use.memory_quality) for one in self.stored()]


@pytest.fixture
def cluster(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    commands = tmp_path / "commands"
    commands.mkdir()
    monkeypatch.setenv("PATH", str(commands), prepend=":")
    own = Cluster(site, commands)
    own.has("24.11.5", near_its_limit())
    own.answers()
    return own


def near_its_limit() -> list[SacctRow]:
    """Return a job that ended recently with 7900 of 8000 MiB; if the page cache counts, some of that may be cache."""
    start_s, peak = int(time.time()) - 600, 7900 * 1024**2
    used = f"cpu=00:01:30,mem={peak}"
    return [job_line(7, start_s), step_line(7, start_s=start_s, MaxRSS=str(peak), TRESUsageInTot=used)]


def on_two_nodes() -> list[SacctRow]:
    """Return a job that ended recently; on 22.05 jobacct_gather/cgroup loses the tasks of its second node."""
    start_s = int(time.time()) - 600
    return [job_line(7, start_s, NNodes="2"), step_line(7, "0", start_s=start_s, NNodes="2", NTasks="2")]


def test_slurm_says_which_plugin_measures(cluster: Cluster) -> None:
    assert read_metering(cluster.sacct) == KNOWN


def test_the_release_is_known_even_if_slurmctld_is_silent(cluster: Cluster) -> None:
    cluster.is_silent()
    found = read_metering(cluster.sacct)
    assert isinstance(found, UnknownMeter)
    assert (found.release, found.gather, found.sampled_every_s) == ("24.11", "", 30)
    assert "Unable to contact slurm controller" in found.why


def test_the_slurmctld_of_another_cluster_does_not_say_what_measures(cluster: Cluster) -> None:
    cluster.site.configure(accounting={"sacct": cluster.sacct, "cluster": "Beta"})
    found = settings_of(cluster.site.config).metering
    assert isinstance(found, UnknownMeter)
    assert (found.release, found.gather) == ("", "")
    assert found.why == "slurmctld here is of cluster alpha, and accounting.cluster is beta"
    cluster.site.configure(accounting={"sacct": cluster.sacct, "cluster": "Alpha"})
    assert settings_of(cluster.site.config).metering == KNOWN


def test_slurmctld_gives_the_release_if_sacct_does_not(cluster: Cluster) -> None:
    cluster.has("", [])
    assert read_metering(cluster.sacct) == KNOWN
    cluster.answers(CONFIG.replace("SLURM_VERSION", "NO_VERSION"))
    found = read_metering(cluster.sacct)
    assert isinstance(found, UnknownMeter)
    assert (found.release, found.gather) == ("", KNOWN.gather)
    assert "release" in found.why


def test_a_cluster_without_a_gather_plugin_is_known_as_such() -> None:
    found = parse_metering(
        "25.11", CONFIG.replace("jobacct_gather/cgroup", "(null)").replace("cgroup/v2", "")
    )
    assert (type(found), found.gather) == (Metering, "")


def test_the_last_known_meter_stands_in_but_remains_a_guess() -> None:
    silent = UnknownMeter(release="25.11", why="it is down")
    assert most_likely(silent, KNOWN) == UnknownMeter(
        release="25.11", gather=KNOWN.gather, sampled_every_s=10, why="it is down"
    )
    assert most_likely(UnknownMeter(why="both are down"), KNOWN).release == "24.11"
    assert most_likely(KNOWN, silent) == KNOWN


@pytest.mark.parametrize("named", ["", "alpha"])
@pytest.mark.parametrize(
    ("release", "rows", "meanwhile", "known"),
    [
        ("24.11.5", near_its_limit, "sampled", "contaminated"),
        ("22.05.8", on_two_nodes, "sampled", "censored"),
    ],
)
def test_labels_without_a_known_meter_are_reported_and_later_corrected(
    release: str,
    rows: Callable[[], list[SacctRow]],
    meanwhile: str,
    known: str,
    named: str,
    cluster: Cluster,
    run: Run,
) -> None:
    cluster.site.configure(accounting={"cluster": named})
    cluster.has(release, rows())
    cluster.is_silent()
    first = run("ingest", "--format", "json")
    assert first.code == 0, first.err
    assert re.search(UNKNOWN, first.err)
    assert cluster.labels() == [(release[:5], "", meanwhile)]
    cluster.answers()
    second = run("ingest", "--format", "json")
    assert (second.code, "not known" in second.err) == (0, False)
    assert cluster.labels() == [(release[:5], KNOWN.gather, known)]
    # From then on the attempt is known by its digest, also without a known meter: no label gets worse.
    cluster.is_silent()
    assert run("ingest", "--since", time.strftime("%Y-%m-%d", time.localtime(time.time() - 86_400))).code == 0
    assert cluster.labels() == [(release[:5], KNOWN.gather, known)]


def test_the_meter_of_this_cluster_does_not_matter_for_a_dump(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    cluster.is_silent()
    dump = tmp_path / "dump.psv"
    dump.write_text("JobID|User|State|Submit|Start|End\n7|ann|COMPLETED|1700000000|1700000010|1700000090\n")
    ran = run("ingest", "--from-file", str(dump), "--cluster", "alpha", "--zone", "UTC")
    assert ran.code == 0, ran.err
    assert "who measures" not in ran.err


def test_a_watch_that_started_without_a_known_meter_finds_it(cluster: Cluster) -> None:
    # With this, all rounds are wide.
    cluster.site.configure(accounting={"overlap_s": 0})
    open_store(cluster.site.config.store.url, create=True).dispose()
    cluster.is_silent()
    watching = cluster.site.start("ingest", "--watch", "1")
    wait_until(lambda: cluster.labels() == [("24.11", "", "sampled")])
    cluster.answers()
    wait_until(lambda: cluster.labels() == [("24.11", KNOWN.gather, "contaminated")])
    watching.send_signal(signal.SIGTERM)
    said = watching.communicate(timeout=PATIENCE_S)[1].decode()
    assert watching.returncode == 0, said
    assert len(re.findall(UNKNOWN, said)) == 1
    assert said.count("Slurm's release and accounting plugin are known now") == 1


@pytest.fixture
def _own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_own_signals")
def test_a_watch_asks_again_after_a_failed_first_round(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[Metering] = []

    def one_round(_engine: Engine, settings: IngestSettings, *_: object, **__: object) -> IngestReport:
        rounds.append(settings.metering)
        if len(rounds) == 1:
            cluster.answers()
            raise SlurmError("slurmdbd is down, too")
        os.kill(os.getpid(), signal.SIGTERM)
        return IngestReport()

    monkeypatch.setattr("slurm_plugin.cli.ingest.watch._round", one_round)
    cluster.is_silent()
    config = cluster.site.config
    engine = open_store(config.store.url, create=True)
    watch(engine, settings_of(config), partial(settings_anew, config), 1, cluster.folder)
    engine.dispose()
    assert [type(one) for one in rounds] == [UnknownMeter, Metering]


def test_what_slurmctld_no_longer_answers_stays_as_it_was(cluster: Cluster) -> None:
    cluster.answers()
    config = cluster.site.config
    before = settings_of(config)
    cluster.is_silent()
    now = settings_anew(config, before)
    assert (before.cluster, now.cluster) == ("alpha", "alpha")
    assert isinstance(now.metering, UnknownMeter)
    assert now.metering.gather == before.metering.gather == KNOWN.gather
