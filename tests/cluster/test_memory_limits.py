"""What slurm.conf says of memory, on every installed release: never more than without us, and as planned."""

from pathlib import Path

import pytest

from tests.cluster.matrix.form import Form
from tests.cluster.matrix.limited import (
    FORMS,
    REFUSED_FORMS,
    REFUSED_SHAPE,
    SHAPE,
    UNCOUNTED_FORMS,
    UNCOUNTED_SHAPE,
    VIRTUAL_FORMS,
    VIRTUAL_SHAPE,
)
from tests.cluster.matrix.prefixes import chosen_prefix, releases, why_missing
from tests.cluster.matrix.release import Release, Trial, run_release, sandbox_run, trained_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RELEASES = releases()


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> Release:
    """Return the release with the limit, after all forms and their untouched twins have run on it."""
    prefix: Path | None = RELEASES[request.param]
    reason = why_missing(prefix)
    if reason:
        pytest.skip(reason)
    return run_release(prefix, FORMS, SHAPE)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_allocation_is_as_planned_and_never_more_than_without_us(release: Release, form: Form) -> None:
    cell = release.cell(form)
    for ours, twin in zip(cell.ours.allocations, cell.twin.allocations, strict=True):
        assert all(ours[word] <= twin[word] for word in ours), (ours, twin)
    assert not cell.problem


def test_memory_that_slurm_does_not_allocate_stays_as_requested(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("uncounted")
    if reason := why_missing(None):
        pytest.skip(reason)
    with trained_cluster(folder / "site", None, UNCOUNTED_FORMS, UNCOUNTED_SHAPE) as sandbox:
        trial = Trial(sandbox, UNCOUNTED_FORMS, folder)
        trial.submit()
        cells = trial.collect()
        asked = sandbox_run(sandbox, "sacct", "--allocations", "--noheader", "--format=ReqMem").split()
    assert [cell.problem for cell in cells] == ["", "", ""]
    assert all("mem" not in ran.allocations[0] for cell in cells for ran in (cell.ours, cell.twin))
    assert asked == ["8000M"] * 6


def test_the_memory_that_a_job_may_map_is_not_cut(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("virtual")
    if reason := why_missing(None):
        pytest.skip(reason)
    with trained_cluster(folder / "site", None, VIRTUAL_FORMS, VIRTUAL_SHAPE) as sandbox:
        trial = Trial(sandbox, VIRTUAL_FORMS, folder)
        trial.submit()
        assert [cell.problem for cell in trial.collect()] == [""] * len(VIRTUAL_FORMS)


def test_a_request_that_slurm_refuses_is_still_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("refused")
    if reason := why_missing(chosen_prefix()):
        pytest.skip(reason)
    with trained_cluster(folder / "site", chosen_prefix(), REFUSED_FORMS, REFUSED_SHAPE) as sandbox:
        trial = Trial(sandbox, REFUSED_FORMS, folder)
        trial.submit()
        cells = trial.collect()
    words = ("Memory required by task is not available", "More processors requested than permitted")
    for cell, said in zip(cells[:4], (words[0], *words, words[1]), strict=True):
        assert [ran.states for ran in (cell.ours, cell.twin)] == [(), ()], cell.ours
        assert said in cell.ours.said, cell.ours.said
    assert [cell.problem for cell in cells[4:]] == ["", ""]
