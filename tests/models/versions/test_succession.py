"""Promotions in a log: where a rollback leads, whatever crashed or was swapped by hand."""

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.versions import registry
from models.versions.artefact import MANIFEST
from models.versions.promotion_log import LOG, append_promotion, locked_log, read_promotions
from models.versions.succession import Promotion, decode_promotions, encode_promotion, succession

VERSIONS = ("v1", "v2", "v3", "v4")


def make_versions(directory: Path) -> None:
    for version in VERSIONS:
        with registry.new_version(directory, version) as folder:
            (folder / MANIFEST).write_text("{}")


def swap_by_hand(directory: Path, version: str) -> None:
    (directory / "current").unlink(missing_ok=True)
    (directory / "current").symlink_to(version)


def log_and_crash(directory: Path, version: str) -> None:
    """Leave what a process leaves that dies between the log and the link."""
    with locked_log(directory) as log:
        before = registry.current_version(directory)
        promotion = Promotion(time_s=1.0, who="ann", version=version, why="gate", before=before)
        append_promotion(log, promotion)


def tear(directory: Path, version: str) -> None:
    """Leave what a process leaves that dies in the middle of a line."""
    line = encode_promotion(Promotion(time_s=1.0, who="ann", version=version, why="gate", before=None))
    with (directory / LOG).open("ab") as log:
        log.write(line[: len(line) // 2])


@pytest.fixture
def models(tmp_path: Path) -> Path:
    make_versions(tmp_path)
    return tmp_path


def back(directory: Path) -> str | None:
    """Roll back as the command does; None where there is nothing to go back to."""
    known = registry.earlier(directory)
    for version in (*known.logged, *known.by_name):
        registry.promote(directory, version, "rollback")
        return version
    return None


STEPS = st.lists(
    st.tuples(st.sampled_from(["promote", "rollback", "crash", "tear"]), st.sampled_from(VERSIONS)),
    max_size=14,
)


@given(STEPS)
def test_a_rollback_undoes_the_last_promotion_whatever_crashed_meanwhile(
    steps: list[tuple[str, str]],
) -> None:
    """The model is a stack: promotions push, rollbacks pop, and a crash changes nothing."""
    with tempfile.TemporaryDirectory() as name:
        directory, stack = Path(name), list[str]()
        make_versions(directory)
        for action, version in steps:
            if action == "promote":
                registry.promote(directory, version)
                if stack[-1:] != [version]:
                    stack.append(version)
            elif action == "rollback":
                returned = back(directory)
                if len(stack) > 1:
                    stack.pop()
                    assert returned == stack[-1]
                else:
                    assert returned is None
            elif action == "crash":
                log_and_crash(directory, version)
            else:
                tear(directory, version)
            assert registry.current_version(directory) == (stack[-1] if stack else None)
            known = registry.known_succession(directory)
            assert [held.version for held in known.held] == stack
            assert known.from_the_first


@given(STEPS, st.lists(st.sampled_from(VERSIONS), max_size=3))
def test_links_swapped_by_hand_are_part_of_what_was_current(
    steps: list[tuple[str, str]], swapped: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        make_versions(directory)
        for at, (action, version) in enumerate(steps):
            if at < len(swapped):
                swap_by_hand(directory, swapped[at])
            if action == "promote":
                registry.promote(directory, version)
            elif action == "rollback":
                back(directory)
        current = registry.current_version(directory)
        assert registry.known_succession(directory).current == current
        was = registry.earlier(directory)
        assert current not in (*was.logged[:1], *was.by_name)
        assert all(version in VERSIONS for version in was.logged)


def test_rollbacks_after_promotions_out_of_order_follow_the_promotions(models: Path) -> None:
    for version in ("v1", "v3", "v1", "v4"):
        registry.promote(models, version)
    assert [back(models), back(models), back(models), back(models)] == ["v1", "v3", "v1", None]
    assert registry.current_version(models) == "v1"


def test_a_promotion_after_rollbacks_starts_from_there(models: Path) -> None:
    for version in ("v1", "v2", "v3"):
        registry.promote(models, version)
    back(models)
    registry.promote(models, "v4")
    assert [back(models), back(models), back(models)] == ["v2", "v1", None]


def test_a_registry_of_an_earlier_release_goes_back_by_name_where_nothing_was_logged(models: Path) -> None:
    swap_by_hand(models, "v3")
    assert registry.earlier(models) == registry.Earlier((), ("v2", "v1"))
    registry.promote(models, "v4", "gate")
    assert [back(models), back(models), back(models), back(models)] == ["v3", "v2", "v1", None]


def test_a_version_that_was_rolled_back_is_not_reached_by_its_name(models: Path) -> None:
    swap_by_hand(models, "v3")
    registry.promote(models, "v1")
    assert [back(models), back(models), back(models)] == ["v3", "v2", None]


def test_a_rollback_never_leads_to_the_current_version(models: Path) -> None:
    for version in ("v1", "v2", "v1"):
        registry.promote(models, version)
    assert registry.earlier(models).logged == ("v2",)


def test_a_version_removed_meanwhile_is_not_gone_back_to(models: Path) -> None:
    for version in ("v1", "v2", "v3"):
        registry.promote(models, version)
    (models / "v2" / MANIFEST).unlink()
    assert back(models) == "v1"
    assert [held.version for held in registry.known_succession(models).held] == ["v1"]
    assert back(models) is None


def test_promoting_the_current_version_records_once_who_answers_for_it(models: Path) -> None:
    swap_by_hand(models, "v2")
    for _ in range(3):
        registry.promote(models, "v2", "gate")
    [promotion] = read_promotions(models)
    assert (promotion.version, promotion.before, promotion.why) == ("v2", "v2", "gate")
    held = registry.known_succession(models).held
    assert [(one.version, one.by) for one in held] == [("v2", promotion)]


def test_a_crash_between_log_and_link_promotes_nothing(models: Path) -> None:
    registry.promote(models, "v1")
    registry.promote(models, "v2")
    log_and_crash(models, "v3")
    assert registry.known_succession(models).current == "v2"
    assert back(models) == "v1"


def test_a_swap_by_hand_is_undone_like_a_promotion(models: Path) -> None:
    registry.promote(models, "v1")
    swap_by_hand(models, "v4")
    known = registry.known_succession(models)
    assert (known.held[-1].by, registry.current_since_s(models) is not None) == (None, True)
    # Also where the version is promoted afterwards: from then on it is known by whom.
    registry.promote(models, "v4")
    assert registry.known_succession(models).held[-1].by is not None
    assert back(models) == "v1"


def test_after_a_swap_by_hand_a_log_does_not_reach_back_to_the_first_version(models: Path) -> None:
    swap_by_hand(models, "v2")
    registry.promote(models, "v3")
    swap_by_hand(models, "v4")
    assert [back(models), back(models), back(models), back(models)] == ["v3", "v2", "v1", None]


def test_a_rollback_into_lines_that_were_damaged_goes_on_by_name(models: Path) -> None:
    for version in ("v2", "v3", "v4"):
        registry.promote(models, version)
    registry.promote(models, "v3", "rollback")
    lines = (models / LOG).read_bytes().splitlines(keepends=True)
    (models / LOG).write_bytes(lines[0] + b"damaged\n" + b"damaged\n" + lines[3])
    assert registry.earlier(models) == registry.Earlier((), ("v1",))


def test_removing_the_link_starts_the_succession_again(models: Path) -> None:
    registry.promote(models, "v1")
    registry.promote(models, "v2")
    (models / "current").unlink()
    assert registry.earlier(models) == registry.Earlier((), ())
    registry.promote(models, "v3")
    assert back(models) is None


def test_a_log_that_cannot_be_read_is_an_error(models: Path) -> None:
    (models / LOG).mkdir()
    with pytest.raises(ModelError, match=r"cannot read .*promotions\.jsonl"):
        registry.known_succession(models)
    with pytest.raises(ModelError, match="cannot write models"):
        registry.promote(models, "v1")
    assert registry.current_version(models) is None


@given(st.binary(max_size=200))
def test_damage_in_a_log_loses_only_the_damaged_lines(rubbish: bytes) -> None:
    promotion = Promotion(time_s=2.0, who="ann", version="v1", why="gate", before=None)
    line = encode_promotion(promotion)
    lines = (line + rubbish.replace(b"\n", b"") + b"x\n" + line).splitlines()
    read = decode_promotions(lines)
    assert read[0] == read[-1] == promotion
    assert succession(read, "v1").current == "v1"


def test_a_log_line_is_the_promotion_that_was_written() -> None:
    promotion = Promotion(time_s=2.5, who="ann as root", version="v1", why="rollback", before="v2")
    assert decode_promotions([encode_promotion(promotion)]) == [promotion]
    assert msgspec.json.decode(encode_promotion(promotion))["who"] == "ann as root"
