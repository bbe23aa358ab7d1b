"""Every way of asking on every release of Slurm that is here: what is allocated is what matrix/table.py says."""

from pathlib import Path

import pytest

from tests.cluster.matrix.form import Form
from tests.cluster.matrix.prefixes import releases, why_missing
from tests.cluster.matrix.release import Release, run_release
from tests.cluster.matrix.table import FORMS

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RELEASES = releases()


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> Release:
    """A release after all forms ran on it, submitted together on one sandbox."""
    prefix: Path | None = RELEASES[request.param]
    reason = why_missing(prefix)
    if reason:
        pytest.skip(reason)
    return run_release(prefix, FORMS)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_allocated_as_the_table_says(release: Release, form: Form) -> None:
    assert not release.cell(form).problem
