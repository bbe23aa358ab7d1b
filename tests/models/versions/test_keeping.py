"""Which versions of a registry stay, and that only the others are ever removed, wherever the removal is interrupted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.demand.prediction import ChainSettings
from models.training import training
from models.versions import registry
from models.versions.artefact import CARD_JSON, HISTORY, MANIFEST
from models.versions.going_back import gate_of, rollback_target
from models.versions.holding import Hold, nobody_holds
from models.versions.keeping import DAY_S, Keep, Known, current_until_s, why_kept
from models.versions.promotion_log import LOG, locked_log, read_promotions
from models.versions.pruning import GONE, leftovers, prune, stays
from models.versions.succession import Promotion, encode_promotion
from tests.builders import DEEP
from tests.conftest import TrainedModel
from tests.models.versions.mutants import Whole, fitting

SETTINGS = ChainSettings()
NOW_S = 1_800_000_000.0
KEEP = Keep(days=30, newest=2)


def name(number: int) -> str:
    return f"20260101T0000{number:02d}.000Z-abcdef"


def known(count: int, **changes: object) -> Known:
    """`count` versions, all of them made a year ago."""
    bare = Known(
        made_s={name(number): NOW_S - 365 * DAY_S for number in range(count)},
        current=name(count - 1),
        current_until_s={},
    )
    return msgspec.structs.replace(bare, **changes)


def reasons(of: Known) -> list[str]:
    return list(why_kept(of, KEEP, NOW_S).values())


def test_the_current_version_and_the_newest_others_stay() -> None:
    assert reasons(known(5)) == ["", "", "among the newest others", "among the newest others", "current"]
    assert reasons(known(2)) == ["among the newest others", "current"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"back_to": {name(0)}}, "a rollback would go back to it"),
        ({"held": {name(0)}}, "in use by a running process"),
        ({"current_until_s": {name(0): NOW_S - 29 * DAY_S}}, "was current recently"),
        ({"current_until_s": {name(0): NOW_S - 31 * DAY_S}}, ""),
        ({"current": name(0)}, "current"),
    ],
    ids=str,
)
def test_versions_that_are_needed_stay_in_addition_to_the_newest(change: dict[str, object], why: str) -> None:
    found = reasons(known(6, **change))
    assert found[0] == why
    assert found.count("among the newest others") == 2


def test_versions_that_are_young_or_not_from_a_training_stay() -> None:
    by_a_person = ("before-the-upgrade", f"{name(1)}.bak")
    made_s = {
        name(0): NOW_S - 3600,
        **dict.fromkeys(by_a_person, 0.0),
        name(1): 0.0,
        name(2): 0.0,
        name(3): 0.0,
    }
    found = why_kept(known(1, made_s=made_s, current=None), KEEP, NOW_S)
    assert found[name(0)] == "made within a day"
    assert {found[one] for one in by_a_person} == {"its name is not one that a training gives"}
    assert [version for version, why in found.items() if not why] == [name(1)]


def promotion(version: str, before: str | None, time_s: float) -> Promotion:
    return Promotion(time_s=time_s, who="root", version=version, why="gate", before=before)


def test_a_version_was_current_until_the_next_one_took_over() -> None:
    log = [promotion("a", None, 10.0), promotion("b", "a", 500.0), promotion("c", "by-hand", 900.0)]
    assert current_until_s(log) == {"a": 500.0, "b": 500.0, "c": 900.0, "by-hand": 900.0}


@given(count=st.integers(1, 12), newest=st.integers(1, 12), current=st.integers(0, 11))
def test_as_many_versions_stay_as_configured_and_they_are_the_newest(
    count: int, newest: int, current: int
) -> None:
    found = why_kept(known(count, current=name(current % count)), Keep(1, newest), NOW_S)
    assert found[name(current % count)] == "current"
    others = [bool(why) for version, why in found.items() if version != name(current % count)]
    assert sum(others) == min(newest, count - 1)
    assert others == sorted(others)


@pytest.fixture
def models(tmp_path: Path, trained_model: TrainedModel) -> Path:
    """A registry of six old versions, each promoted long ago, one after the other."""
    directory = tmp_path / "models"
    for number in range(6):
        version = training.save(trained_model.trained, directory, 1_700_000_000 + number * DAY_S)
        registry.promote(directory, version)
    age(directory)
    return directory


def age(directory: Path) -> None:
    """Make everything in a registry a year old."""
    then_s = time.time() - 365 * DAY_S
    log = [msgspec.structs.replace(one, time_s=then_s) for one in read_promotions(directory)]
    (directory / LOG).write_bytes(b"".join(map(encode_promotion, log)))
    for path in directory.iterdir():
        os.utime(path, (then_s, then_s), follow_symlinks=False)


def test_old_versions_go_and_a_rollback_still_has_where_to_go(models: Path) -> None:
    there = registry.versions(models)
    told = stays(models, Keep(30, 1), SETTINGS, time.time())
    assert [version for version, why in told.items() if not why] == there[:3]
    assert registry.versions(models) == there
    pruned = prune(models, Keep(30, 1), SETTINGS)
    assert (pruned.versions, pruned.leftovers, pruned.problems) == (there[:3], [], [])
    assert registry.versions(models) == there[3:]
    assert registry.current_version(models) == there[-1]
    assert rollback_target(models, SETTINGS).version == there[-2]
    assert prune(models, Keep(30, 1), SETTINGS).versions == []
    with pytest.raises(ModelError, match=f"model {there[0]} was removed from"):
        registry.promote(models, there[0])


def test_where_the_nearest_version_is_damaged_the_next_one_stays_for_a_rollback(models: Path) -> None:
    there = registry.versions(models)
    (models / there[-2] / HISTORY).write_text("damaged")
    (models / there[-3] / HISTORY).unlink()
    age(models)
    told = stays(models, Keep(30, 1), SETTINGS, time.time())
    assert told[there[-4]] == "a rollback would go back to it"
    assert list(told.values()).count("") == 3
    prune(models, Keep(30, 1), SETTINGS)
    assert rollback_target(models, SETTINGS).version == there[-4]


@pytest.mark.parametrize("card", [b"[]", b'{"verdict":{"passed":"by hand"}}', DEEP])
def test_a_card_that_this_release_cannot_read_is_reported_and_prevents_no_rollback(
    models: Path, card: bytes
) -> None:
    folder = models / registry.versions(models)[-2]
    ours: Whole = {MANIFEST: (folder / MANIFEST).read_bytes()}
    for name, content in {CARD_JSON: card, **fitting(ours, {CARD_JSON: card})}.items():
        (folder / name).write_bytes(content or b"")
    with pytest.raises(ModelError, match=f"the card of model {folder.name} is another version's"):
        gate_of(folder)
    (models / LOG).unlink()
    assert rollback_target(models, SETTINGS).version == folder.name


def run_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def killed_in_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    """Wait until a process prints a line; at the end, kill it and wait until it has gone."""
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


HOLDS = """
import sys, time
from pathlib import Path
from models.versions.holding import Hold
hold = Hold(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_a_version_used_by_another_process_stays_as_long_as_that_lives(models: Path) -> None:
    oldest = registry.versions(models)[0]
    with killed_in_the_end(run_python(HOLDS, str(models / oldest))):
        assert stays(models, Keep(30, 1), SETTINGS, time.time())[oldest] == "in use by a running process"
        assert oldest not in prune(models, Keep(30, 1), SETTINGS).versions
    assert prune(models, Keep(30, 1), SETTINGS).versions == [oldest]


def test_a_version_that_is_being_removed_cannot_be_held(tmp_path: Path) -> None:
    with nobody_holds(tmp_path) as free:
        assert free
        with pytest.raises(BlockingIOError):
            Hold(tmp_path)
    first, second = Hold(tmp_path), Hold(tmp_path)
    first.close()
    with nobody_holds(tmp_path) as free:
        assert not free
    second.close()


KILLED_AMID = """
import os, signal, sys
from pathlib import Path
from models.versions import pruning
from models.demand.prediction import ChainSettings
from models.versions.keeping import Keep
def begin_to_remove(folder):
    (folder / "history.json").unlink()
    os.kill(os.getpid(), signal.SIGKILL)
pruning.shutil.rmtree = begin_to_remove
pruning.prune(Path(sys.argv[1]), Keep(30, 1), ChainSettings())
"""


def test_a_removal_that_is_killed_leaves_whole_versions_and_leftovers_that_go_next_time(models: Path) -> None:
    there = registry.versions(models)
    process = run_python(KILLED_AMID, str(models))
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert registry.versions(models) == there[3:]
    assert all((models / version / HISTORY).exists() for version in there[3:])
    left = sorted(path.name for path in leftovers(models))
    assert left == [f"{GONE}{version}" for version in there[:3]]
    assert sorted(prune(models, Keep(30, 1), SETTINGS).leftovers) == left
    assert leftovers(models) == []


TRAINS = """
import sys, time
from pathlib import Path
from models.versions import registry
with registry.new_version(Path(sys.argv[1]), "v1") as draft:
    (draft / "manifest.json").write_text("{}")
    print("writing", flush=True)
    time.sleep(600)
"""


def drafts(models: Path) -> Sequence[Path]:
    return list(models.glob(f"{registry.DRAFT}*"))


def test_a_draft_stays_while_its_maker_lives_and_goes_once_that_was_killed(models: Path) -> None:
    with killed_in_the_end(run_python(TRAINS, str(models))):
        age(models)
        prune(models, Keep(30, 9), SETTINGS)
        [draft] = drafts(models)
        assert (draft / MANIFEST).exists()
    [draft] = drafts(models)
    os.utime(draft)
    assert prune(models, Keep(30, 9), SETTINGS).leftovers == [], (
        "who has just made it may be about to hold it"
    )
    age(models)
    assert prune(models, Keep(30, 9), SETTINGS).leftovers == [draft.name]
    assert drafts(models) == []


def test_a_link_that_was_never_swapped_in_goes(models: Path) -> None:
    link = models / f".{registry.CURRENT}-1"
    link.symlink_to("nowhere")
    assert leftovers(models) == []
    age(models)
    assert prune(models, Keep(30, 9), SETTINGS).leftovers == [link.name]
    assert registry.current_version(models) == registry.versions(models)[-1]


def test_a_version_removed_while_its_promotion_waits_is_not_promoted(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest, newest = registry.versions(models)[0], registry.versions(models)[-1]

    @contextlib.contextmanager
    def locked_after_a_removal(directory: Path) -> Iterator[int]:
        assert oldest in prune(directory, Keep(30, 1), SETTINGS).versions
        with locked_log(directory) as log:
            yield log

    monkeypatch.setattr("models.versions.registry.locked_log", locked_after_a_removal)
    with pytest.raises(ModelError, match="was removed from"):
        registry.promote(models, oldest)
    assert registry.current_version(models) == newest
    assert read_promotions(models)[-1].version == newest


def test_a_registry_that_does_not_exist_has_nothing_to_remove(tmp_path: Path) -> None:
    assert prune(tmp_path / "none", KEEP, SETTINGS).versions == []
    assert list(tmp_path.iterdir()) == []
