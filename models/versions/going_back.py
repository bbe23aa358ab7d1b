"""Which version a rollback goes to. It reads and loads versions, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from accounting.damage import UNREADABLE
from accounting.errors import ModelError, UnreadModelError
from models.demand.prediction import ChainSettings
from models.versions import registry
from models.versions.artefact import CARD_JSON, read_part


class Target(msgspec.Struct, frozen=True):
    """The version to go back to, None if there is none, and why nearer ones are passed over.

    `unread` are those of them that may load another time: a fault of the machine was in the way.
    """

    version: str | None
    passed_over: dict[str, str]
    unread: frozenset[str]


class _Verdict(msgspec.Struct):
    passed: bool


class _Gated(msgspec.Struct):
    """The part of a card that holds the gate's verdict."""

    verdict: _Verdict | None


def gate_of(folder: Path) -> Literal["not asked", "passed", "refused"]:
    """Return what the promotion gate said of a model; ModelError if its card is damaged, or another version's."""
    content = read_part(folder, CARD_JSON)
    try:
        verdict = None if content is None else msgspec.json.decode(content, type=_Gated).verdict
    except UNREADABLE as error:
        raise ModelError(
            f"the card of model {folder.name} is another version's: {error}; run `rightsizer train`"
        ) from None
    if verdict is None:
        return "not asked"
    return "passed" if verdict.passed else "refused"


def rollback_target(directory: Path, settings: ChainSettings) -> Target:
    """Return the nearest earlier version that the service would load; ModelError if the log cannot be read.

    If the log does not reach back to the first version, those that are older by name follow, without those that the
    gate refused.
    """
    known = registry.earlier(directory)
    passed_over: dict[str, str] = {}
    unread: set[str] = set()
    not_refused = (version for version in known.by_name if not _is_refused(directory / version))
    for version in (*known.logged, *not_refused):
        try:
            registry.load_version(directory, version, settings)
        except ModelError as error:
            passed_over[version] = str(error)
            if isinstance(error, UnreadModelError):
                unread.add(version)
        else:
            return Target(version, passed_over, frozenset(unread))
    return Target(None, passed_over, frozenset(unread))


def _is_refused(folder: Path) -> bool:
    try:
        return gate_of(folder) == "refused"
    except ModelError:
        return False
