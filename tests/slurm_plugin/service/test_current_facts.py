"""When the service asks Slurm for its limits, and what holds while Slurm does not answer, or only in part."""

import logging
import resource
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from accounting.decisions.decision import decode_decision
from slurm_plugin.brakes.pulled import FILE, Pulled, pulled_file
from slurm_plugin.config.settings import Brakes, Config, Rule
from slurm_plugin.policy.braked import ALL, family_brake
from slurm_plugin.policy.facts import ANYBODY, SLURM_PARTS, MemoryTerms, Minimum, Partition, SiteFacts
from slurm_plugin.policy.submission import OPTED_OUT, ClientSubmission
from slurm_plugin.service import current_facts
from slurm_plugin.service.clients import make_client_handler
from slurm_plugin.service.current_facts import CHECK_S, RETRY_S, CurrentFacts
from slurm_plugin.service.decide import SITE_NOT_KNOWN
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.protocol import VERSION, ClientRequest, decode_reply, encode_request
from slurm_plugin.slurm.facts import Gathered
from tests.builders import SCRIPT, executable
from tests.conftest import Site, TrainedModel
from tests.slurm_plugin.service.asking import KNOWN as ASKED
from tests.slurm_plugin.service.asking import asked, handler_of, install, line_of, model_in_use

CONFIG = "AccountingStorageType = accounting_storage/slurmdbd\nClusterName = here\nMaxMemPerCPU = 2000\n"
ASSOCIATIONS = (
    "here|root|||normal|\nhere|lone|alice||large|\nhere|lone|eve||normal|\nthere|lone|bob||large|\n"
)
PARTITIONS = "PartitionName=main Default=YES QoS=N/A MaxMemPerCPU=1000\n"
NODE = "NodeName=n CoresPerSocket=4 CPUTot=8 Sockets=1 ThreadsPerCore=2 Partitions=main\n"
MAIN = Partition(memory=MemoryTerms(max_per_cpu_mib=1000), is_default=True)


class Slurm:
    """Tells the time, and has commands that answer or fail as the test says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self._folder = folder
        monkeypatch.setattr(current_facts, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        for command, part in (
            ("scontrol", '$(echo "$*" | sed "s/.* //")'),
            ("sacctmgr", '$(echo "$*" | sed "s/.* show \\([a-z]*\\) .*/\\1/")'),
        ):
            executable(
                folder / command,
                f"#!/bin/sh\necho {part} >> {folder}/log.{command}\ncat {folder}/said.{part} 2>/dev/null && exit 0\n"
                f"echo {command} is away >&2\nexit 1\n",
            )

    def says(self, **said: str | None) -> None:
        """Let a part give this answer from now on; None makes it fail."""
        for part, text in said.items():
            file = self._folder / f"said.{part}"
            file.unlink(missing_ok=True)
            if text is not None:
                file.write_text(text)

    def says_all(self) -> None:
        self.says(
            config=CONFIG,
            partition=PARTITIONS,
            node=NODE,
            qos="large|cpu=8,mem=32000M\n",
            associations=ASSOCIATIONS,
        )

    def asked(self, part: str = "qos") -> int:
        """Return how often sacctmgr was asked for a part."""
        log = self._folder / "log.sacctmgr"
        return log.read_text().split().count(part) if log.exists() else 0


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(tmp_path, monkeypatch)


@pytest.fixture
def enforcing(slurm: Slurm, site: Site, trained_model: TrainedModel) -> Site:
    """A site that cuts, within limits that Slurm tells."""
    install(site, trained_model)
    site.configure(mode="enforce", service={"limits_needed": True})
    slurm.says_all()
    return site


def test_slurm_is_asked_at_once_and_then_at_intervals(slurm: Slurm) -> None:
    slurm.says_all()
    facts = CurrentFacts(Config())
    asked = []
    for passed_s in (0.0, RETRY_S, CHECK_S):
        slurm.now_s = 1000.0 + passed_s
        facts.refresh_when_due()
        asked.append(slurm.asked())
    assert asked == [1, 1, 2]
    assert facts.facts.memory == MemoryTerms(max_per_cpu_mib=2000)
    assert facts.facts.partitions == {"main": MAIN}
    assert facts.facts.qos_minimums == {"large": Minimum(cpus=8, mem_mib=32000)}
    assert (facts.facts.cpus_per_core, facts.facts.missing) == ({"main": 2}, frozenset())


def test_a_reload_asks_slurm_at_the_next_look(slurm: Slurm) -> None:
    slurm.says_all()
    facts = CurrentFacts(Config())
    facts.refresh_when_due()
    facts.retune(Config(), {})
    facts.refresh_when_due()
    assert slurm.asked() == 2


def test_what_changes_while_slurm_is_asked_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, groups = CurrentFacts(Config()), {"lab": frozenset({"alice"})}
    changes = [lambda: facts.hold(ALL), lambda: facts.retune(Config(mode="enforce"), groups)]

    def gather_meanwhile(known: SiteFacts) -> Gathered:
        changes.pop(0)()
        return Gathered(known, ())

    monkeypatch.setattr(current_facts, "gather", gather_meanwhile)
    while changes:
        facts.refresh()
    assert facts.facts.brakes == {ALL}
    assert facts.facts.groups == groups


def test_a_slurm_that_is_away_is_asked_again_soon_and_reported_once(
    slurm: Slurm, caplog: pytest.LogCaptureFixture
) -> None:
    facts = CurrentFacts(Config())
    with caplog.at_level(logging.WARNING):
        for times in range(3):
            slurm.now_s = 1000.0 + times * RETRY_S
            facts.refresh_when_due()
    assert (slurm.asked(), len(caplog.records)) == (3, 1)
    assert facts.facts.missing == SLURM_PARTS
    slurm.says_all()
    slurm.now_s += RETRY_S
    facts.refresh_when_due()
    assert not facts.facts.missing


@pytest.mark.parametrize(
    ("silent", "missing"),
    [
        ("qos", {"qos_minimums", "given_qos"}),
        ("associations", {"given_qos"}),
        ("node", {"cpus_per_core"}),
        ("partition", {"partitions"}),
        # What a partition does not set is as in the cluster.
        ("config", {"memory", "partitions", "given_qos"}),
    ],
)
def test_a_command_that_fails_loses_only_its_own_part_and_what_was_known_stays(
    slurm: Slurm, silent: str, missing: set[str]
) -> None:
    slurm.says_all()
    slurm.says(**{silent: None})
    facts = CurrentFacts(Config())
    assert not facts.refresh()
    assert facts.facts.missing == missing
    slurm.says_all()
    assert facts.refresh()
    known = facts.facts
    slurm.says(**{silent: None})
    assert not facts.refresh()
    assert facts.facts == known


def test_a_part_that_changes_counts_while_another_is_silent(slurm: Slurm) -> None:
    slurm.says_all()
    facts = CurrentFacts(Config())
    facts.refresh()
    slurm.says(qos=None, node=NODE.replace("CPUTot=8", "CPUTot=4"))
    facts.refresh()
    assert facts.facts.cpus_per_core == facts.facts.most_sockets == {"main": 1}
    assert facts.facts.qos_minimums["large"].cpus == 8


def test_the_default_qos_of_users_are_asked_for_only_if_a_qos_has_a_minimum(slurm: Slurm) -> None:
    slurm.says_all()
    slurm.says(qos="large|\n", associations=None)
    facts = CurrentFacts(Config())
    assert facts.refresh()
    assert (facts.facts.missing, slurm.asked("associations")) == (frozenset(), 0)
    slurm.says_all()
    assert facts.refresh()
    assert slurm.asked("associations") == 1
    assert facts.facts.given_qos == {("lone", "alice"): {"large"}, ANYBODY: frozenset()}


def test_without_slurmdbd_there_are_no_qos_to_wait_for(slurm: Slurm) -> None:
    slurm.says_all()
    slurm.says(config="AccountingStorageType = accounting_storage/none\n", qos=None)
    facts = CurrentFacts(Config())
    assert facts.refresh()
    assert (facts.facts.qos_minimums, facts.facts.missing) == ({}, frozenset())


def test_nothing_is_cut_until_slurm_has_said_what_it_allows(slurm: Slurm, enforcing: Site) -> None:
    slurm.says(qos=None)
    facts = CurrentFacts(enforcing.config)
    handle = handler_of(enforcing, facts)
    grants = []
    for qos in (None, "normal|cpu=4\n", None):
        slurm.says(qos=qos)
        facts.refresh()
        grants.append(decode_reply(asked(handle, line_of(ASKED))).grant)
        asked(handle, line_of(msgspec.structs.replace(ASKED, comment="rightsize=off")))
    assert not grants[0]
    assert grants[1]
    assert grants[2] == grants[1]
    [journal] = Path(enforcing.config.service.journal).iterdir()
    made = [decode_decision(line) for line in journal.read_bytes().splitlines()]
    reasons = [one.reason for one in made if one]
    assert reasons[::2] == [SITE_NOT_KNOWN, "resized", "resized"]
    assert set(reasons[1::2]) == {OPTED_OUT}


def test_a_job_of_a_partition_made_since_is_kept_and_slurm_is_asked_again_soon(
    slurm: Slurm, enforcing: Site
) -> None:
    facts = CurrentFacts(enforcing.config)
    facts.refresh_when_due()
    handle = handler_of(enforcing, facts)
    slurm.says(partition=PARTITIONS + "PartitionName=new QoS=N/A\n", node=NODE.replace("=main", "=main,new"))
    job, nowhere = (msgspec.structs.replace(ASKED, partition=name) for name in ("new", "new,none"))
    grants = []
    for passed_s in (1.0, RETRY_S - 1.0, RETRY_S):
        slurm.now_s = 1000.0 + passed_s
        facts.refresh_when_due()
        grants.append(decode_reply(asked(handle, line_of(job))).grant)
    assert not grants[0]
    assert not grants[1]
    assert grants[2]
    # Anybody may name a partition that does not exist.
    before = slurm.asked()
    for second in range(20):
        slurm.now_s = 1000.0 + RETRY_S + second
        facts.refresh_when_due()
        assert not decode_reply(asked(handle, line_of(nowhere))).grant
    assert slurm.asked() - before == 1


def test_a_job_whose_partition_is_known_has_slurm_asked_no_sooner(slurm: Slurm, enforcing: Site) -> None:
    facts = CurrentFacts(enforcing.config)
    facts.refresh_when_due()
    assert decode_reply(asked(handler_of(enforcing, facts), line_of(ASKED))).grant
    slurm.now_s += CHECK_S - 1.0
    facts.refresh_when_due()
    assert slurm.asked() == 1


def test_a_client_that_names_a_partition_made_since_has_slurm_asked_again_too(
    slurm: Slurm, enforcing: Site
) -> None:
    slurm.says(qos="normal|\n")
    facts = CurrentFacts(enforcing.config)
    facts.refresh_when_due()
    journal = Journal(Path(enforcing.config.service.journal))
    handle = make_client_handler(enforcing.config, model_in_use(enforcing.config), facts, journal)
    job = ClientSubmission(batch=False, other=(), name="fit", script=SCRIPT, cpus_per_task=8, partition="new")
    line = encode_request(ClientRequest(v=VERSION, id="7", kind="cli", job=job))
    before = slurm.asked()
    for passed_s in (1.0, RETRY_S):
        slurm.now_s = 1000.0 + passed_s
        assert not decode_reply(handle(line, 1000, "alice") or b"").grant
        facts.refresh_when_due()
    assert slurm.asked() - before == 1


def test_brakes_that_cannot_be_read_for_a_moment_stop_everything_only_for_that_moment(tmp_path: Path) -> None:
    brakes = msgspec.structs.replace(Config().brakes, directory=str(tmp_path))
    facts = CurrentFacts(msgspec.structs.replace(Config(), brakes=brakes))
    (tmp_path / FILE).write_text("[]", encoding="utf-8")
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # No file can be opened any more.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        facts.refresh_brakes()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    assert facts.facts.brakes == {ALL}
    facts.refresh_brakes()
    assert facts.facts.brakes == frozenset()


def test_a_brake_that_is_not_written_down_yet_holds_at_the_first_look_too(tmp_path: Path) -> None:
    brakes = msgspec.structs.replace(Config().brakes, directory=str(tmp_path))
    facts = CurrentFacts(msgspec.structs.replace(Config(), brakes=brakes))
    family = family_brake("alice", "fit")
    for brake in (family, ALL):
        facts.hold(brake)
    facts.refresh_brakes()
    assert facts.facts.brakes == {family, ALL}
    pulled_file(brakes).pull(Pulled(brake=ALL, time_s=0.0, why=""))
    facts.refresh_brakes()
    assert facts.facts.brakes == {ALL}
    assert pulled_file(brakes).let_go(ALL)
    facts.refresh_brakes()
    assert not facts.facts.brakes


def test_the_members_of_groups_are_known_before_slurm_was_asked(tmp_path: Path) -> None:
    config = Config(rules=(Rule(name="r", group=("root",)),), brakes=Brakes(directory=str(tmp_path)))
    assert "root" in CurrentFacts(config).facts.groups["root"]
