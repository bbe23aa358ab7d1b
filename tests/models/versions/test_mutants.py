"""Mutants of a promoted model: none is loaded, none ends the service, and the last good model goes on answering.

RIGHTSIZER_MUTANTS=10000 python -m pytest -s tests/models/versions/test_mutants.py
"""

from __future__ import annotations

import logging
import os
import random
import resource
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from accounting.decisions.token import find_token
from accounting.errors import ModelError
from models.demand.prediction import ChainSettings
from models.training import training
from models.versions import registry
from models.versions.artefact import MANIFEST, load_predictor, read_manifest, sealed
from models.versions.promotion_log import LOG
from slurm_plugin.config.settings import Config
from slurm_plugin.service.answers import Answers
from slurm_plugin.service.current_facts import CurrentFacts
from slurm_plugin.service.current_model import CurrentModel
from slurm_plugin.service.journal import Journal
from slurm_plugin.service.protocol import decode_reply
from tests.builders import past
from tests.conftest import RECENT_JOBS, TrainedModel
from tests.models.versions.mutants import DAMAGE, MADE_TO_FIT, Files, Maker
from tests.slurm_plugin.service.asking import KNOWN, line_of

MUTANTS = int(os.environ.get("RIGHTSIZER_MUTANTS", "200"))
SETTINGS = ChainSettings()
# Far more than any load takes, on the busiest machine.
MOST_S = 20.0
MOST_GROWTH_MIB = 500


@dataclass
class Served:
    """A service that has a good model, and another version that is current and about to be changed."""

    directory: Path
    good: str
    victim: str
    ours: dict[str, bytes]
    other: dict[str, bytes]
    model: CurrentModel
    answers: Answers
    slowest_s: float = 0.0
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def folder(self) -> Path:
        return self.directory / self.victim

    def put(self, files: Files) -> None:
        for name, content in files.items():
            if content is None:
                (self.folder / name).unlink()
            else:
                (self.folder / name).write_bytes(content)

    def restore(self, files: Files) -> None:
        self.put({name: self.ours[name] for name in files})

    def refresh(self) -> bool:
        """Let the service look at the current version as if it were new; return whether that version is used now."""
        self.model._seen, self.model._refusal = self.good, None
        begin_s = time.monotonic()
        self.model.refresh()
        self.slowest_s = max(self.slowest_s, time.monotonic() - begin_s)
        assert self.model.predictor is not None
        return self.model.predictor.model != self.good

    def answer(self) -> str:
        """Return the name of the model with which the service answers."""
        sent: list[bytes] = []
        assert self.answers.handle(line_of(KNOWN), sent.append)
        token = find_token(decode_reply(sent[0]).token)
        assert token is not None
        return token.model


@pytest.fixture(scope="module")
def registry_of_two(
    trained_model: TrainedModel, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A registry with the good model, which is current, and another one."""
    directory = tmp_path_factory.mktemp("two") / "models"
    shutil.copytree(trained_model.directory, directory, symlinks=True)
    attempts = past(80, seed=2)
    return directory, training.save(training.train(attempts, RECENT_JOBS), directory, attempts[-1].row.end_s)


@pytest.fixture
def served(
    trained_model: TrainedModel, registry_of_two: tuple[Path, str], tmp_path: Path
) -> Iterator[Served]:
    directory = tmp_path / "models"
    shutil.copytree(registry_of_two[0], directory, symlinks=True)
    good, victim = trained_model.version, registry_of_two[1]
    config = msgspec.convert(
        {"mode": "enforce", "service": {"limits_needed": False}, "models": {"directory": str(directory)}},
        Config,
    )
    model = CurrentModel(directory, SETTINGS)
    model.refresh()
    answers = Answers(config, model, CurrentFacts(config), Journal(tmp_path / "journal"))
    registry.promote(directory, victim)
    ours, other = (
        {file.name: file.read_bytes() for file in (directory / version).iterdir()}
        for version in (victim, good)
    )
    logging.disable(logging.CRITICAL)
    yield Served(directory, good, victim, ours, other, model, answers)
    logging.disable(logging.NOTSET)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def says_the_same(served: Served) -> bool:
    """Whether the victim's files are what was promoted, except for white space in its manifest."""
    try:
        same_manifest = read_manifest(served.folder) == msgspec.json.decode(
            served.ours[MANIFEST], type=type(read_manifest(served.folder))
        )
    except ModelError:
        return False
    return same_manifest and all(
        (served.folder / name).read_bytes() == content
        for name, content in served.ours.items()
        if name != MANIFEST
    )


def load_alone(served: Served) -> bool:
    """Whether the victim loads where no log mentions it; a ModelError is the only exception it may raise."""
    log = served.directory / LOG
    logged = log.read_bytes()
    log.unlink()
    try:
        registry.load_version(served.directory, served.victim, SETTINGS)
    except ModelError:
        return False
    finally:
        log.write_bytes(logged)
    return True


def try_one(served: Served, make: Maker, draw: random.Random, *, damaged: bool) -> None:
    files = make(served.ours, served.other, draw)
    served.put(files)
    try:
        changed = any(served.ours[name] != content for name, content in files.items())
        assert served.refresh() != changed, (make.__name__, [*files])
        if changed:
            assert served.answer() == served.good
        loads = load_alone(served)
        if damaged and loads:
            assert says_the_same(served), (make.__name__, [*files])
        served.seen[f"{make.__name__}{' loads without the log' if loads and changed else ''}"] += 1
    finally:
        served.restore(files)


def test_no_mutant_of_a_promoted_model_is_served(served: Served) -> None:
    draw = random.Random(20_26)
    before_mib = peak_mib()
    good = served.model.predictor
    for number in range(MUTANTS):
        damaged = number % 4 != 0
        make = draw.choice(DAMAGE if damaged else MADE_TO_FIT)
        try_one(served, make, draw, damaged=damaged)
        if served.model.predictor is not good:  # a mutant equal to the original was loaded
            served.model.predictor = good
    print(
        f"\n{MUTANTS} mutants, the slowest {served.slowest_s * 1000:.0f} ms, {peak_mib() - before_mib:.0f} MiB"
    )
    for what, times in sorted(served.seen.items()):
        print(f"  {what}: {times}")
    assert served.slowest_s < MOST_S
    assert peak_mib() - before_mib < MOST_GROWTH_MIB
    assert served.refresh(), "the whole one is refused"
    assert served.answer() == served.victim


@pytest.mark.parametrize(
    "name", ["/dev/zero", "../../../../../../dev/zero", "a\x00b", "x/../memory.onnx", ""]
)
def test_a_manifest_may_name_only_files_in_its_own_folder(served: Served, name: str) -> None:
    manifest = read_manifest(served.folder)
    digests = {**manifest.digests, name: "0" * 64}
    changed = sealed(msgspec.structs.replace(manifest, digests=digests))
    served.put({MANIFEST: msgspec.json.encode(changed)})
    with pytest.raises(ModelError, match="rightsizer train"):
        load_predictor(served.folder, SETTINGS)


def test_a_file_that_never_ends_is_not_read(served: Served) -> None:
    file = served.folder / "history.json"
    for what in ("device", "pipe", "holes"):
        file.unlink()
        if what == "device":
            file.symlink_to("/dev/zero")
        elif what == "pipe":
            os.mkfifo(file)
        else:
            file.touch()
            os.truncate(file, 2**42)
        with pytest.raises(ModelError, match="rightsizer train"):
            load_predictor(served.folder, SETTINGS)


def test_a_whole_model_under_the_name_of_another_is_refused(served: Served) -> None:
    served.put(served.other)
    assert load_predictor(served.folder, SETTINGS).model == served.good
    assert not load_alone(served)


def test_a_promoted_model_changed_consistently_is_refused_by_the_log(served: Served) -> None:
    manifest = read_manifest(served.folder)
    changed = sealed(msgspec.structs.replace(manifest, attempts=manifest.attempts + 1))
    served.put({MANIFEST: msgspec.json.encode(changed)})
    assert load_alone(served)
    assert not served.refresh()
    assert served.answer() == served.good
    with pytest.raises(ModelError, match="not the promoted one"):
        registry.load_version(served.directory, served.victim, SETTINGS)
