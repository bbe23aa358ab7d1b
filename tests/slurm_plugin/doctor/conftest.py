"""A site in which the doctor finds nothing, and one of which only the surroundings exist."""

from collections.abc import Iterator

import pytest

from tests.conftest import Site, TrainedModel
from tests.slurm_plugin.conftest import Run
from tests.slurm_plugin.doctor.installation import Installation, listening
from tests.slurm_plugin.doctor.surrounded import Surrounded
from tests.slurm_plugin.surroundings import surround


@pytest.fixture
def whole(
    site: Site, run: Run, trained_model: TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installation]:
    surround(site, monkeypatch)
    installation = Installation(site, run, trained_model.trained)
    installation.store()
    installation.train()
    (site.folder / "journal").mkdir()
    with listening(site.socket):
        yield installation


@pytest.fixture
def surrounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> Surrounded:
    surround(site, monkeypatch)
    return Surrounded(site)
