"""When the service asks Slurm for its limits, and what holds while Slurm does not answer."""

import logging
from types import SimpleNamespace

import pytest

from accounting.errors import SlurmError
from slurm_plugin.config import Config
from slurm_plugin.policy.facts import MemoryTerms, SiteFacts
from slurm_plugin.service import current_facts
from slurm_plugin.service.current_facts import CHECK_S, RETRY_S, CurrentFacts

KNOWN = SiteFacts(memory=MemoryTerms(max_per_cpu_mib=2000))


class Slurm:
    """Answers `gather` and tells the time, both as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.asked = 0
        self.complaint = ""
        monkeypatch.setattr(current_facts, "gather", self.gather)
        monkeypatch.setattr(current_facts, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def gather(self, _config: Config) -> SiteFacts:
        self.asked += 1
        if self.complaint:
            raise SlurmError(self.complaint)
        return KNOWN


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(monkeypatch)


def test_slurm_is_asked_at_once_and_then_now_and_again(slurm: Slurm) -> None:
    facts = CurrentFacts(Config())
    asked = []
    for passed_s in (0.0, RETRY_S, CHECK_S):
        slurm.now_s = 1000.0 + passed_s
        facts.refresh_when_due()
        asked.append(slurm.asked)
    assert asked == [1, 1, 2]
    assert facts.facts is KNOWN


def test_a_slurm_that_is_away_is_asked_again_soon_and_complained_of_once(
    slurm: Slurm, caplog: pytest.LogCaptureFixture
) -> None:
    facts = CurrentFacts(Config())
    slurm.complaint = "scontrol failed"
    with caplog.at_level(logging.WARNING):
        for times in range(3):
            slurm.now_s = 1000.0 + times * RETRY_S
            facts.refresh_when_due()
    assert (slurm.asked, len(caplog.records)) == (3, 1)
    assert facts.facts.memory is None
    slurm.complaint = ""
    slurm.now_s += RETRY_S
    facts.refresh_when_due()
    assert facts.facts is KNOWN
    slurm.complaint = "sacctmgr failed"
    slurm.now_s += CHECK_S
    facts.refresh_when_due()
    assert facts.facts is KNOWN
