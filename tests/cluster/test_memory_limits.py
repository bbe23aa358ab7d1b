"""MaxMemPerCPU in slurm.conf, on every release that is here: never more than without us, and as planned."""

from pathlib import Path

import pytest

from tests.cluster.matrix.form import Form
from tests.cluster.matrix.limited import FORMS, SHAPE
from tests.cluster.matrix.prefixes import releases, why_missing
from tests.cluster.matrix.release import Release, run_release

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RELEASES = releases()


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> Release:
    """A release with the limit, after all forms and their untouched twins ran on it."""
    prefix: Path | None = RELEASES[request.param]
    reason = why_missing(prefix)
    if reason:
        pytest.skip(reason)
    return run_release(prefix, FORMS, SHAPE)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_never_more_than_without_us_and_as_planned(release: Release, form: Form) -> None:
    cell = release.cell(form)
    for ours, twin in zip(cell.ours.allocations, cell.twin.allocations, strict=True):
        assert all(ours[word] <= twin[word] for word in ours), (ours, twin)
    assert not cell.problem
