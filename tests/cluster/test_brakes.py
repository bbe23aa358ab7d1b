"""A family with too many killed jobs is no longer cut, on a real Slurm with real memory limits, as AllocTRES shows.

RIGHTSIZER_BRAKE_JOBS=30 submits thirty at once to a model that predicts too little.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_plugin.brakes.pulled import pulled_file
from slurm_plugin.policy.braked import family_brake
from tests.cluster import conftest
from tests.cluster.recovery_site import (
    AS_ASKED,
    ASKED_MIB,
    HOLD,
    NEEDS_MIB,
    USER,
    Site,
    pasts_of,
    start_site,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# Submitted before any of them has ended: what is learned from the first helps none of the others.
AT_ONCE = int(os.environ.get("RIGHTSIZER_BRAKE_JOBS", "6"))
MOST_CUT = 30
PATIENCE_S = conftest.PATIENCE_S + 4 * AT_ONCE
MODEST = "true # modest\n"


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Iterator[Site]:
    site = start_site(make_folder(), 4, patience_s=PATIENCE_S)
    site.train(pasts_of({"greedy": HOLD, "modest": MODEST}))
    with conftest.ingesting(site.sandbox, site.folder):
        yield site


def test_cutting_stops_for_a_family_with_too_small_predictions_and_goes_on_for_others(site: Site) -> None:
    pulled, family = pulled_file(site.config.brakes), family_brake(USER, "greedy")
    bad = [site.submit("greedy", HOLD) for _ in range(AT_ONCE)]
    began_s = time.monotonic()
    site.wait_for(lambda: family in pulled.read().brakes)
    print(f"stopped {time.monotonic() - began_s:.1f} s after the last of {AT_ONCE} was submitted")
    site.wait_for(lambda: site.token_of("greedy", HOLD).reason == "braked")
    after = [site.submit("greedy", HOLD) for _ in range(3)]
    other = site.submit("modest", MODEST)
    for job in (*after, other):
        assert site.shell.wait_ended(job) == "COMPLETED"
    runs = site.runs(*bad, *after, other)
    assert len(bad) <= MOST_CUT
    assert all(run.mem_mib < NEEDS_MIB for job in bad for run in runs[str(job)])
    assert [runs[str(job)] for job in after] == [[AS_ASKED]] * 3
    [modest] = runs[str(other)]
    assert modest.mem_mib < ASKED_MIB
    # A person sees the reason, and releases the brake.
    release = f"rightsizer enable --family {USER}:greedy"
    assert release in site.shell.run("rightsizer", "doctor", "--format", "csv")
    site.shell.run("rightsizer", "enable", "--family", f"{USER}:greedy")
    site.wait_for(lambda: site.token_of("greedy", HOLD).reason != "braked")
