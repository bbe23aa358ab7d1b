"""What several tests of Slurm's output and of the gateway share."""

from dataclasses import dataclass

import pytest

from slurm_plugin.slurm.lease import Clock
from tests.slurm_plugin.slurm.captured import RELEASES, Captured


@pytest.fixture(scope="module", params=RELEASES)
def captured(request: pytest.FixtureRequest) -> Captured:
    return Captured(request.param)


@dataclass
class TurnedClock:
    """The clock that the gateway sees, which a test turns."""

    since_boot_s: float = 10.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TurnedClock:
    turned = TurnedClock()
    monkeypatch.setattr("slurm_plugin.slurm.gateway.now", lambda: Clock(1000.0, "boot", turned.since_boot_s))
    return turned
