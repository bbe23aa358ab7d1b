"""Training, the artefact it leaves, and the registry that holds it: a damaged model is never served."""

import hashlib
import math
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ModelError
from accounting.records import Attempt
from models.demand.chain import Estimate
from models.demand.features import FEATURES
from models.demand.prediction import ChainSettings, Predictor
from models.past.attempts import past_job, request_of
from models.past.held import Held
from models.past.jobs import LEARNED, Learned
from models.training import training
from models.training.quantile import predict
from models.training.served import onnx_of, splits_of
from models.versions import registry
from models.versions.artefact import (
    HISTORY,
    MANIFEST,
    OnnxGrowth,
    StoredFamily,
    StoredHistory,
    load_predictor,
    read_manifest,
    sealed,
    stored_history,
)
from tests.builders import attempt, past, request
from tests.conftest import RECENT_JOBS, TrainedModel

SETTINGS = ChainSettings()


@pytest.fixture
def folder(trained_model: TrainedModel, tmp_path: Path) -> Path:
    """A copy of the trained model, for the test to damage."""
    return Path(shutil.copytree(trained_model.folder, tmp_path / "copy"))


def test_serving_a_model_sends_nothing_and_leaves_nothing_in_a_home(tmp_path: Path) -> None:
    """ONNX Runtime would keep a database of events there, to be sent."""
    code = "import models.versions.artefact, onnxruntime; onnxruntime.get_available_providers()"
    environment = os.environ | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("ORT_DISABLE_TELEMETRY", None)  # set in this process, which has imported models too
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, cwd=Path(__file__).parents[3])
    assert list(tmp_path.rglob("*")) == []


def test_every_dimension_is_learned_from_the_past(trained_model: TrainedModel) -> None:
    assert set(trained_model.trained.fitted) == set(LEARNED)
    manifest = read_manifest(trained_model.folder)
    assert (manifest.attempts, manifest.features, manifest.gpu_sources) == (90, FEATURES, ("nvml",))
    # Each of the three families has no past at its first job; the last fifth of the others is used for calibration.
    assert {trained_on.rows for trained_on in manifest.growth.values()} == {70}


def estimates(predictor: Predictor, past: Attempt) -> tuple[Estimate | None, ...]:
    """All estimates of a predictor for the request of a past attempt."""
    request = request_of(past)
    prediction = predictor.predict(request)
    return prediction.memory, prediction.cores, prediction.gpus, predictor.wall_time(request)


def test_the_served_model_predicts_like_the_trained_one(trained_model: TrainedModel) -> None:
    trained = trained_model.trained
    ours = Predictor("trained", trained.history, trained.growth(SETTINGS.most_failures), SETTINGS)
    served = load_predictor(trained_model.folder, SETTINGS)
    for one in trained_model.attempts:
        for left, right in zip(estimates(ours, one), estimates(served, one), strict=True):
            assert left is not None
            assert right is not None
            assert right.upper == pytest.approx(left.upper, rel=1e-4)
            assert (right.likely, right.jobs) == (left.likely, left.jobs)


def test_onnx_and_xgboost_agree_also_on_unknown_features(trained_model: TrainedModel) -> None:
    for dimension, fitted in trained_model.trained.fitted.items():
        served = onnx_growth(trained_model.folder, dimension)
        for row in trained_model.trained.matrices[dimension].inputs[::7]:
            asked = np.where(np.eye(len(row), dtype=bool), np.float32(math.nan), row)
            told = predict(fitted.booster, asked)
            assert [served(one) for one in asked.tolist()] == pytest.approx(told.tolist(), abs=1e-4)


def onnx_growth(folder: Path, dimension: str) -> OnnxGrowth:
    splits = msgspec.json.decode((folder / f"{dimension}.splits.json").read_bytes(), type=list[list[float]])
    return OnnxGrowth((folder / f"{dimension}.onnx").read_bytes(), splits)


@pytest.fixture(scope="module")
def branching() -> training.Trained:
    """Trees that split: from XGBoost 3.4 on, those of 90 jobs do not."""
    return training.train(past(200), RECENT_JOBS)


@pytest.mark.parametrize("dimension", LEARNED)
def test_cached_answers_are_those_of_the_trees(branching: training.Trained, dimension: Learned) -> None:
    booster = branching.fitted[dimension].booster
    splits = splits_of(booster)
    served, asked = OnnxGrowth(onnx_of(booster), splits), random.Random(7)
    [*rows] = branching.matrices[dimension].inputs
    assert any(splits)
    for _ in range(2000):
        row = list(asked.choice(rows))
        for number, places in enumerate(splits):
            # On a split, right next to it, and where nothing is known.
            near = [math.nan, *row[number : number + 1]]
            for at in places:
                near += [at, math.nextafter(at, math.inf), at * (1 + 1e-6), at * (1 - 1e-6)]
            row[number] = asked.choice(near)
        assert served(row) == served.compute(row)


def seal_with(folder: Path, name: str, content: bytes) -> None:
    """Put another file into an artefact, with digests and a seal that say it belongs there."""
    (folder / name).write_bytes(content)
    manifest = read_manifest(folder)
    digests = {**manifest.digests, name: hashlib.sha256(content).hexdigest()}
    changed = sealed(msgspec.structs.replace(manifest, digests=digests))
    (folder / MANIFEST).write_bytes(msgspec.json.encode(changed))


@pytest.mark.parametrize(
    "splits", [[], [[]] * (len(FEATURES) - 1), [[2.0, 1.0], *[[]] * (len(FEATURES) - 1)]]
)
def test_invalid_splits_are_refused(splits: list[list[float]], folder: Path) -> None:
    content = msgspec.json.encode(splits)
    seal_with(folder, "memory.splits.json", content)
    with pytest.raises(ModelError, match="rightsizer train"):
        load_predictor(folder, SETTINGS)


def test_training_is_reproducible(trained_model: TrainedModel, tmp_path: Path) -> None:
    again = training.train(trained_model.attempts, RECENT_JOBS)
    version = training.save(again, tmp_path, trained_model.attempts[-1].row.end_s)
    assert version == trained_model.version
    assert read_manifest(tmp_path / version) == read_manifest(trained_model.folder)


def files_of_the_artefact() -> list[str]:
    names = [f"{dimension}.{ending}" for dimension in LEARNED for ending in ("onnx", "ubj", "splits.json")]
    return ["manifest.json", "history.json", "golden.json", *names]


def test_the_artefact_consists_of_these_files(trained_model: TrainedModel) -> None:
    assert sorted(file.name for file in trained_model.folder.iterdir()) == sorted(files_of_the_artefact())


@pytest.mark.parametrize("name", files_of_the_artefact())
def test_damage_of_any_file_is_found(name: str, folder: Path) -> None:
    content = (folder / name).read_bytes()
    places = range(0, len(content), max(1, len(content) // 40))
    damaged = [content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :] for place in places]
    for bad in [*damaged, b"", content[:-1], content[: len(content) // 2], content + b"{", b"\x00\xff" * 50]:
        (folder / name).write_bytes(bad)
        with pytest.raises(ModelError, match="rightsizer train"):
            load_predictor(folder, SETTINGS)
    (folder / name).unlink()
    with pytest.raises(ModelError, match="rightsizer train"):
        load_predictor(folder, SETTINGS)
    (folder / name).write_bytes(content)
    assert load_predictor(folder, SETTINGS).model


@pytest.mark.parametrize(
    "change",
    [{"format": 1}, {"features": ("other",)}, {"growth": {}}, {"digests": {}}],
)
def test_a_manifest_of_another_version_or_with_missing_parts_is_refused(
    change: dict[str, object], folder: Path
) -> None:
    changed = sealed(msgspec.structs.replace(read_manifest(folder), **change))
    (folder / MANIFEST).write_bytes(msgspec.json.encode(changed))
    with pytest.raises(ModelError, match="rightsizer train"):
        load_predictor(folder, SETTINGS)


def test_a_version_is_held_to_the_manifest_of_its_last_promotion(
    tmp_path: Path, trained_model: TrainedModel
) -> None:
    version, other = (training.save(trained_model.trained, tmp_path, at_s) for at_s in (0, 86400))
    registry.promote(tmp_path, version)
    manifest = read_manifest(tmp_path / version)
    changed = sealed(msgspec.structs.replace(manifest, attempts=manifest.attempts + 1))
    (tmp_path / version / MANIFEST).write_bytes(msgspec.json.encode(changed))
    with pytest.raises(ModelError):
        registry.load_version(tmp_path, version, SETTINGS)
    registry.promote(tmp_path, other)
    registry.promote(tmp_path, version)
    assert registry.load_version(tmp_path, version, SETTINGS).model == version


def test_a_copy_of_a_version_under_another_name_is_refused(
    trained_model: TrainedModel, tmp_path: Path
) -> None:
    shutil.copytree(trained_model.directory / trained_model.version, tmp_path / "copy")
    with pytest.raises(ModelError, match=f"contains the model {trained_model.version}"):
        registry.load_version(tmp_path, "copy", ChainSettings())


def test_a_manifest_of_another_format_is_not_called_damaged(folder: Path) -> None:
    """A manifest of format 2 had a growth model without `calibrated_on`."""
    (folder / MANIFEST).write_bytes(b'{"format": 2, "growth": {"memory": {"rows": 9}}}')
    with pytest.raises(ModelError, match="was made by another version"):
        load_predictor(folder, SETTINGS)


def test_a_model_that_answers_differently_than_in_training_is_refused(folder: Path) -> None:
    swapped = (folder / "cores.onnx").read_bytes()
    seal_with(folder, "memory.onnx", swapped)
    with pytest.raises(ModelError, match="self-test"):
        load_predictor(folder, SETTINGS)


def test_a_file_that_onnx_runtime_refuses_is_an_error_of_one_line(folder: Path) -> None:
    seal_with(folder, "memory.onnx", b"not a model")
    with pytest.raises(ModelError, match="ONNX Runtime rejects"):
        load_predictor(folder, SETTINGS)


def test_few_jobs_are_served_by_history_alone(tmp_path: Path) -> None:
    attempts = past(20)
    trained = training.train(attempts, RECENT_JOBS)
    assert trained.fitted == {}
    version = training.save(trained, tmp_path, 0)
    prediction = load_predictor(tmp_path / version, SETTINGS).predict(request_of(attempts[-1]))
    assert prediction.memory is not None


@pytest.mark.parametrize("attempts", [[], [attempt(start_s=0, elapsed_s=0, state="CANCELLED")]])
def test_a_past_without_usable_jobs_is_nothing_to_learn_from(attempts: list[object]) -> None:
    with pytest.raises(ModelError, match="ingest more accounting"):
        training.train(attempts, RECENT_JOBS)  # type: ignore[arg-type]


def make_versions(directory: Path, *versions: str) -> None:
    for version in versions:
        with registry.new_version(directory, version) as folder:
            (folder / MANIFEST).write_text("{}")


def test_promoting_a_version_makes_it_current(tmp_path: Path) -> None:
    make_versions(tmp_path, "v1", "v2", "v3")
    assert (registry.versions(tmp_path), registry.current_version(tmp_path)) == (["v1", "v2", "v3"], None)
    registry.promote(tmp_path, "v3")
    assert registry.current_version(tmp_path) == "v3"
    registry.promote(tmp_path, "v1")
    assert registry.current_folder(tmp_path) == tmp_path / "v1"
    assert registry.earlier(tmp_path) == registry.Earlier(("v3",), ())
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "current",
        "promotions.jsonl",
        "v1",
        "v2",
        "v3",
    ]


@pytest.mark.parametrize("version", ["v9", "current", "../outside", "", "."])
def test_only_a_version_of_the_registry_can_be_promoted(version: str, tmp_path: Path) -> None:
    make_versions(tmp_path / "models", "v1")
    make_versions(tmp_path, "outside")
    registry.promote(tmp_path / "models", "v1")
    with pytest.raises(ModelError, match="rightsizer models"):
        registry.promote(tmp_path / "models", version)
    assert registry.current_version(tmp_path / "models") == "v1"


def test_an_interrupted_version_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with registry.new_version(tmp_path, "v1") as folder:
            (folder / MANIFEST).write_text("{}")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_the_draft_of_a_killed_training_is_no_version(tmp_path: Path) -> None:
    make_versions(tmp_path, "v1")
    (tmp_path / ".draft-killed").mkdir()
    (tmp_path / ".draft-killed" / MANIFEST).write_text("{}")
    registry.promote(tmp_path, "v1")
    assert registry.versions(tmp_path) == ["v1"]
    assert registry.earlier(tmp_path) == registry.Earlier((), ())


def test_an_existing_version_is_not_overwritten(tmp_path: Path) -> None:
    make_versions(tmp_path, "v1")
    (tmp_path / "v1" / "mark").touch()
    with pytest.raises(ModelError, match="cannot write models"):
        make_versions(tmp_path, "v1")
    assert (tmp_path / "v1" / "mark").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["v1"]


def test_a_registry_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match=r"models\.directory"):
        make_versions(tmp_path / "file" / "models", "v1")
    make_versions(tmp_path, "v1")
    (tmp_path / "current").mkdir()
    with pytest.raises(ModelError, match=r"models\.directory"):
        registry.promote(tmp_path, "v1")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["current", "file", "promotions.jsonl", "v1"]
    assert registry.known_succession(tmp_path).held == ()


def test_an_empty_registry_says_what_to_do(tmp_path: Path) -> None:
    assert registry.versions(tmp_path / "none") == []
    with pytest.raises(ModelError, match="rightsizer train"):
        registry.current_folder(tmp_path / "none")


FAMILIES = st.lists(
    st.tuples(st.lists(st.text(max_size=8), max_size=3).map(tuple), st.integers(0, 3)), max_size=5
)


@pytest.mark.parametrize("indent", [1, -1])
@given(families=FAMILIES)
def test_a_history_read_family_by_family_equals_the_whole_history(
    indent: int, families: list[tuple[tuple[str, ...], int]]
) -> None:
    plain = past_job(attempt())
    job = msgspec.structs.replace(plain, script="]\n  ]\n", gpu_source=',\n "families": [\n')
    whole = StoredHistory(
        held={"memory": Held(5.0, 3)},
        families=tuple(StoredFamily(family, (job,) * count, (plain,) * count) for family, count in families),
    )
    held, read = stored_history(msgspec.json.format(msgspec.json.encode(whole), indent=indent))
    assert (held, tuple(read)) == (whole.held, whole.families)


def test_a_family_stored_without_jobs_remembered_beside_its_own_has_none() -> None:
    family, jobs, beside = ("user+name", "ann", "fit"), (past_job(attempt()),), (past_job(attempt(job_id=7)),)
    stored = msgspec.json.encode(StoredFamily(family, jobs, beside))
    before = msgspec.json.encode(msgspec.json.decode(stored)[:2])
    assert msgspec.json.decode(stored, type=StoredFamily).beside == beside
    assert msgspec.json.decode(before, type=StoredFamily) == StoredFamily(family, jobs)


def test_a_history_that_ends_too_early_is_damaged(trained_model: TrainedModel) -> None:
    content = (trained_model.folder / HISTORY).read_bytes()
    _, families = stored_history(content[: len(content) * 2 // 3])
    with pytest.raises(msgspec.DecodeError):
        list(families)


def test_a_family_named_by_an_older_release_is_found_by_todays_name(folder: Path) -> None:
    content = (folder / HISTORY).read_bytes()
    assert content.count(b'"fit"') == 2
    seal_with(folder, HISTORY, content.replace(b'"fit"', b'"nf-fit_(s#)"'))
    found = load_predictor(folder, SETTINGS).predict(request(job_name="nf-fit_(WT)", mem_per_node_mib=4000))
    assert found.memory is not None


def test_a_history_is_discarded_piece_by_piece(trained_model: TrainedModel) -> None:
    predictor = load_predictor(trained_model.folder, SETTINGS)
    families = read_manifest(trained_model.folder).families
    assert families > 2
    assert predictor.discard(families - 1)
    assert not predictor.discard(10)
