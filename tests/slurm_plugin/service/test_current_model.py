"""The service's model: refused for a fault of the machine, it is tried again; refused for its content, it is not."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import shutil
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from accounting.errors import UnreadModelError
from models.demand.prediction import ChainSettings
from models.training import training
from models.versions import registry
from models.versions.artefact import GOLDEN, read_manifest
from models.versions.holding import nobody_holds
from slurm_plugin.service.current_model import LEAST_PAUSE_S, MOST_PAUSE_S, CurrentModel
from tests.conftest import TrainedModel

SETTINGS = ChainSettings()


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Served:
    """A registry with a model in use, and a newer one next to it."""

    models: Path
    old: str
    new: str
    model: CurrentModel
    clock: Clock
    log: pytest.LogCaptureFixture
    tried: list[str] = field(default_factory=list)

    def refusals(self) -> list[str]:
        return [one.getMessage() for one in self.log.records if one.levelno == logging.ERROR]

    def in_use(self) -> str:
        self.model.refresh()
        assert self.model.predictor is not None
        return self.model.predictor.model


@pytest.fixture
def served(
    tmp_path: Path,
    trained_model: TrainedModel,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> Served:
    models = tmp_path / "models"
    old, new = (training.save(trained_model.trained, models, 1_700_000_000 + later_s) for later_s in (0, 60))
    registry.promote(models, old)
    clock = Clock()
    served = Served(models, old, new, CurrentModel(models, SETTINGS, clock), clock, caplog)
    assert served.in_use() == old
    load = registry.load_version

    def counted(directory: Path, version: str, settings: ChainSettings) -> object:
        served.tried.append(version)
        return load(directory, version, settings)

    monkeypatch.setattr(registry, "load_version", counted)
    return served


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    """Make every attempt to open a file fail because too many are open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_model_that_could_not_be_opened_for_a_moment_is_in_use_a_moment_later(served: Served) -> None:
    registry.promote(served.models, served.new)
    with no_more_files():
        assert served.in_use() == served.old
        # First it is not due again, then it is, and fails as before.
        assert served.in_use() == served.old
        served.clock.now_s += LEAST_PAUSE_S
        assert served.in_use() == served.old
    [said] = served.refusals()
    assert "Too many open files" in said
    assert "tries again" in said
    assert served.in_use() == served.old, "the second pause is longer"
    served.clock.now_s += LEAST_PAUSE_S
    assert served.in_use() == served.old
    served.clock.now_s += LEAST_PAUSE_S
    assert served.in_use() == served.new
    assert len(served.refusals()) == 1


def test_the_pause_grows_up_to_the_maximum(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_little(*_: object) -> None:
        served.tried.append("")
        raise MemoryError

    monkeypatch.setattr("models.versions.artefact.read_all", too_little)
    registry.promote(served.models, served.new)
    for second in range(4 * int(MOST_PAUSE_S)):
        served.clock.now_s = float(second)
        served.model.refresh()
    # Each try is noted twice: at 0, 1, 3, 7, …, 255, 511, then every 300 s.
    assert len(served.tried) == 2 * 12
    assert "too little memory" in served.refusals()[0]
    assert len(served.refusals()) == 1


def test_a_model_refused_for_its_content_is_tried_again_once_its_files_change(served: Served) -> None:
    golden = served.models / served.new / GOLDEN
    whole = golden.read_bytes()
    golden.write_bytes(b"[]")
    registry.promote(served.models, served.new)
    for _ in range(5):
        assert served.in_use() == served.old
        served.clock.now_s += MOST_PAUSE_S
    assert served.tried == [served.new]
    golden.write_bytes(whole)
    assert served.in_use() == served.new
    assert served.tried == [served.new] * 2
    assert len(served.refusals()) == 1


def test_a_version_that_is_put_back_is_in_use_again(served: Served) -> None:
    away = served.models.parent / "away"
    registry.promote(served.models, served.new)
    shutil.move(served.models / served.new, away)
    assert served.in_use() == served.old
    shutil.move(away, served.models / served.new)
    served.clock.now_s += LEAST_PAUSE_S
    assert served.in_use() == served.new


def test_a_model_promoted_again_after_a_refusal_is_tried_and_reported_at_once(served: Served) -> None:
    (served.models / served.new / GOLDEN).write_bytes(b"[]")
    for _ in range(2):
        registry.promote(served.models, served.new)
        assert served.in_use() == served.old
        registry.promote(served.models, served.old, "rollback")
        assert served.in_use() == served.old
    assert served.tried == [served.new] * 2
    assert len(served.refusals()) == 2


def test_the_model_in_use_is_held_and_the_one_before_no_longer(served: Served) -> None:
    def is_free(version: str) -> bool:
        with nobody_holds(served.models / version) as free:
            return free

    assert (is_free(served.old), is_free(served.new)) == (False, True)
    registry.promote(served.models, served.new)
    assert served.in_use() == served.new
    assert (is_free(served.old), is_free(served.new)) == (True, False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a moment")
def test_a_model_closed_to_its_reader_counts_as_unread_and_not_as_damaged(served: Served) -> None:
    folder = served.models / served.new
    for above in (served.models, *served.models.parents[:3]):
        above.chmod(0o755)
    (folder / "manifest.json").chmod(0o600)
    os.seteuid(65534)
    try:
        with pytest.raises(UnreadModelError, match="Permission denied"):
            read_manifest(folder)
    finally:
        os.seteuid(0)


class Garbage:
    """An object that refers to itself, so that only a garbage collection finds it."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_from_before_a_model_came_into_use_is_still_collected(served: Served) -> None:
    gc.disable()
    garbage = weakref.ref(Garbage())
    registry.promote(served.models, served.new)
    assert served.in_use() == served.new
    gc.collect()
    assert garbage() is None


def test_a_reload_keeps_nothing_of_the_model_before(served: Served) -> None:
    before = weakref.ref(served.model.predictor)
    registry.promote(served.models, served.new)
    assert served.in_use() == served.new
    served.model.catch_up()
    gc.collect()
    assert before() is None
