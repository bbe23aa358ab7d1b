"""Every form of request on every installed release of Slurm: what is allocated is what matrix/table.py says.

Once through slurmctld's hook, and once as direct srun commands that ask for themselves.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.cluster.matrix.form import Form
from tests.cluster.matrix.prefixes import releases, why_missing
from tests.cluster.matrix.release import Release, run_release
from tests.cluster.matrix.table import AS_CLIENT, FORMS

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RELEASES = releases()


@pytest.fixture(scope="module")
def runs() -> Iterator[Mapping[tuple[str, bool], Future[Release]]]:
    """Run all releases that can run here, plain and with clients that ask, two at a time: most of it is waiting."""
    here = {name: prefix for name, prefix in RELEASES.items() if not why_missing(prefix)}
    pool = ThreadPoolExecutor(2)
    try:
        hooked = {(name, False): pool.submit(run_release, prefix, FORMS) for name, prefix in here.items()}
        asking = {
            (name, True): pool.submit(run_release, prefix, AS_CLIENT, clients=True)
            for name, prefix in here.items()
        }
        yield hooked | asking
    finally:
        pool.shutdown(cancel_futures=True)


def release_of(runs: Mapping[tuple[str, bool], Future[Release]], name: str, *, clients: bool) -> Release:
    """Return a release once all its forms have run; skip the test if the release cannot run here."""
    reason = why_missing(RELEASES[name])
    if reason:
        pytest.skip(reason)
    return runs[name, clients].result()


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest, runs: Mapping[tuple[str, bool], Future[Release]]) -> Release:
    """Return a release after all forms have run on it, submitted together in one sandbox."""
    return release_of(runs, request.param, clients=False)


@pytest.fixture(scope="module", params=RELEASES)
def release_with_clients(
    request: pytest.FixtureRequest, runs: Mapping[tuple[str, bool], Future[Release]]
) -> Release:
    """Return a release whose clients ask, after the direct forms have run on it."""
    return release_of(runs, request.param, clients=True)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_allocation_is_the_one_in_the_table(release: Release, form: Form) -> None:
    assert not release.cell(form).problem


@pytest.mark.parametrize("form", AS_CLIENT, ids=lambda form: form.name)
def test_a_direct_srun_gets_the_allocation_in_the_table(release_with_clients: Release, form: Form) -> None:
    assert not release_with_clients.cell(form).problem
