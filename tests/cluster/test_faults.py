"""Whatever breaks, a job is accepted within a bounded time, unchanged or correctly cut: the campaign, row by row.

RIGHTSIZER_FAULTS=all includes those that take long.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.campaign import run, watch_breaker
from tests.cluster.fault import Fault
from tests.cluster.fault_site import FaultSite
from tests.cluster.faults import FAULTS
from tests.cluster.pause import watch_pause

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

IN_FULL = os.environ.get("RIGHTSIZER_FAULTS") == "all"


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> FaultSite:
    return FaultSite.start(make_folder() / "faults")


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if IN_FULL or not fault.is_long], ids=lambda fault: fault.name
)
def test_the_job_is_accepted(fault: Fault, site: FaultSite) -> None:
    reason = fault.needs()
    if reason is not None:
        pytest.skip(reason)
    outcome = run(fault, site)
    assert outcome.complaint == ""


def test_the_service_is_left_alone_for_thirty_seconds_and_then_probed_once(site: FaultSite) -> None:
    assert watch_pause(site).complaint() == ""


def test_an_open_breaker_costs_nothing_more_and_closes_again(site: FaultSite) -> None:
    assert watch_breaker(site).complaint() == ""
