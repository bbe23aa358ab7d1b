"""What the advisor keeps from cycle to cycle, in a file that is written whole or not at all.

A file that cannot be read is put aside, and the advisor starts afresh.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from accounting.damage import UNREADABLE
from accounting.errors import ServiceError
from accounting.owned_files import fix_for, make_folder, replace_whole
from models.planning.shadow import Shadow

log = logging.getLogger(__name__)

NAME = "state.json"


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The queue as it would be without us; None: not known."""

    shadow: Shadow | None = None


def read_state(folder: Path) -> State:
    """Return what was kept; nothing if there is no file, or if it is damaged, which is logged."""
    file = folder / NAME
    try:
        return _decoded(file)
    except FileNotFoundError:
        return State()
    except OSError as error:
        raise _refused(folder, error) from None


def _decoded(file: Path) -> State:
    content = file.read_bytes()
    try:
        return msgspec.json.decode(content, type=State)
    except UNREADABLE as error:
        aside = file.with_suffix(".damaged")
        file.replace(aside)
        log.warning(
            "%s was damaged (%s) and is put aside as %s; the queue without us is the real one anew",
            file,
            error,
            aside,
        )
        return State()


def write_state(folder: Path, state: State) -> None:
    """Write what is to be kept; raises ServiceError if the disk refuses it."""
    try:
        make_folder(folder)
        replace_whole(folder / NAME, msgspec.json.encode(state))
    except OSError as error:
        raise _refused(folder, error) from None


def _refused(folder: Path, error: OSError) -> ServiceError:
    fix = fix_for(error, "set advisor.directory to a folder that the advisor's user may write")
    return ServiceError(f"cannot write the advisor's state to {folder}: {error.strerror}; {fix}")
