"""What several tests of Slurm's output share."""

import pytest

from tests.slurm_plugin.slurm.captured import RELEASES, Captured


@pytest.fixture(scope="module", params=RELEASES)
def captured(request: pytest.FixtureRequest) -> Captured:
    return Captured(request.param)
