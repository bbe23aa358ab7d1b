"""Every way of asking on every release of Slurm that is here: what is allocated is what matrix/table.py says.

Once through slurmctld's hook, and once as direct srun commands that ask by themselves.
"""

from pathlib import Path

import pytest

from tests.cluster.matrix.form import Form
from tests.cluster.matrix.prefixes import releases, why_missing
from tests.cluster.matrix.release import Release, run_release
from tests.cluster.matrix.table import AS_CLIENT, FORMS

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RELEASES = releases()


def prefix_of(name: str) -> Path | None:
    """The prefix of a release; the test skips where it cannot be run here."""
    reason = why_missing(RELEASES[name])
    if reason:
        pytest.skip(reason)
    return RELEASES[name]


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> Release:
    """A release after all forms ran on it, submitted together on one sandbox."""
    return run_release(prefix_of(request.param), FORMS)


@pytest.fixture(scope="module", params=RELEASES)
def release_with_clients(request: pytest.FixtureRequest) -> Release:
    """A release whose clients ask, after the direct forms ran on it."""
    return run_release(prefix_of(request.param), AS_CLIENT, clients=True)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_allocated_as_the_table_says(release: Release, form: Form) -> None:
    assert not release.cell(form).problem


@pytest.mark.parametrize("form", AS_CLIENT, ids=lambda form: form.name)
def test_a_direct_srun_is_allocated_as_the_table_says(release_with_clients: Release, form: Form) -> None:
    assert not release_with_clients.cell(form).problem
