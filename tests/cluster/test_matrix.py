"""Every way of asking on every release of Slurm that is here: what is allocated is what matrix/table.py says.

Once through slurmctld's hook, and once as direct srun commands that ask by themselves.
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
    """All releases that can run here, as they are and with clients that ask, two at a time: most of it is waiting."""
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
    """A release once all its forms have run; the test skips where it cannot be run here."""
    reason = why_missing(RELEASES[name])
    if reason:
        pytest.skip(reason)
    return runs[name, clients].result()


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest, runs: Mapping[tuple[str, bool], Future[Release]]) -> Release:
    """A release after all forms ran on it, submitted together on one sandbox."""
    return release_of(runs, request.param, clients=False)


@pytest.fixture(scope="module", params=RELEASES)
def release_with_clients(
    request: pytest.FixtureRequest, runs: Mapping[tuple[str, bool], Future[Release]]
) -> Release:
    """A release whose clients ask, after the direct forms ran on it."""
    return release_of(runs, request.param, clients=True)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_allocated_as_the_table_says(release: Release, form: Form) -> None:
    assert not release.cell(form).problem


@pytest.mark.parametrize("form", AS_CLIENT, ids=lambda form: form.name)
def test_a_direct_srun_is_allocated_as_the_table_says(release_with_clients: Release, form: Form) -> None:
    assert not release_with_clients.cell(form).problem
