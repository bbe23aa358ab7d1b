"""The folder of artefacts: versions side by side, and a `current` link that is swapped in one step and logged."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from accounting.errors import ModelError
from accounting.owned_files import fix_for, hand_over, make_folder, sync
from models.demand.prediction import ChainSettings, Predictor
from models.versions.artefact import MANIFEST, load_predictor, unread
from models.versions.holding import Hold
from models.versions.promotion_log import append_promotion, locked_log, read_promotions, user_name
from models.versions.succession import Promotion, Succession, Why, succession

CURRENT, DRAFT = "current", ".draft-"


def versions(directory: Path) -> list[str]:
    """Return the versions in a registry, the oldest first; ModelError if this user may not look into it."""
    if is_closed(directory):
        raise ModelError(f"you may not read the models in {directory}; run this as the user who trains")
    # A name with a dot in front is a draft, or a version that is being removed.
    folders = (file.parent for file in directory.glob(f"*/{MANIFEST}"))
    return sorted(folder.name for folder in folders if folder.name[0] != "." and not folder.is_symlink())


def current_version(directory: Path) -> str | None:
    """Return the version that `current` names; None before the first promotion."""
    try:
        return (directory / CURRENT).readlink().name
    except OSError:
        return None


def current_folder(directory: Path) -> Path:
    """Return the folder of the current version; ModelError if there is none."""
    version = current_version(directory)
    if version is None and is_closed(directory):
        raise ModelError(
            f"you may not read the models in {directory}; run this as the user who trains, or run "
            "`sbatch --test-only SCRIPT`, which says what a job would get"
        )
    if version is None:
        raise ModelError(why_none_is_current(directory))
    return directory / version


def why_none_is_current(directory: Path) -> str:
    """Return why no model answers, and what to do: there is no model, or none was promoted."""
    there = versions(directory)
    if not there:
        return f"there is no model in {directory}; run `rightsizer train` first"
    return (
        f"none of the models in {directory} was promoted, so jobs keep what they ask for; see "
        f"`rightsizer models {there[-1]}` for the newest, and train again when more jobs have ended, or "
        "promote it"
    )


def is_closed(directory: Path) -> bool:
    """Return whether this user may not look into a registry."""
    try:
        (directory / CURRENT).lstat()
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


@contextlib.contextmanager
def new_version(directory: Path, version: str) -> Iterator[Path]:
    """Yield a folder to write an artefact into; it appears under its version only when all of it is on disk."""
    with writing(directory):
        make_folder(directory)
        draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=directory))
        hold = None
        try:
            hold = Hold(draft)
            yield draft
            for file in draft.iterdir():
                sync(file)
            draft.chmod(0o755)
            hand_over(draft, 0o755)
            for file in draft.iterdir():
                hand_over(file, 0o640)
            draft.rename(directory / version)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            if hold is not None:
                hold.close()
        sync(directory)


def promote_judged(directory: Path, version: str, opponent: str | None) -> bool:
    """Make a version current because the gate found it no worse than `opponent`, which was current (None: nothing was).

    Return False, and change nothing, if another version has become current since: the gate knows nothing of that one.
    Raises ModelError as `promote` does.
    """
    return promote(directory, version, "gate", instead_of=(opponent, None))


def promote(
    directory: Path, version: str, why: Why = "by hand", instead_of: Collection[str | None] | None = None
) -> bool:
    """Make a version the current one, and log it; do nothing if it is current by the log already.

    Return False, and change nothing, if the current version is not one of `instead_of`. ModelError if the version does
    not exist, or if the folder or its log cannot be written.
    """
    check_there(directory, version)
    with writing(directory), locked_log(directory) as log:
        # The process that held the log until now may have removed it.
        check_there(directory, version)
        before = known_succession(directory)
        if instead_of is not None and before.current not in instead_of:
            return False
        if before.current == version and before.held[-1].by:
            return True
        promotion = Promotion(
            time_s=time.time(),
            who=user_name(),
            version=version,
            why=why,
            before=before.current,
            manifest=hashlib.sha256((directory / version / MANIFEST).read_bytes()).hexdigest(),
        )
        append_promotion(log, promotion)
        # The log's own directory entry must survive a crash before the link changes.
        sync(directory)
        _swap(directory, version)
    return True


def check_there(directory: Path, version: str) -> None:
    """Raise ModelError if a registry does not have such a version, or no longer has it."""
    if version not in versions(directory):
        was = any(one.version == version for one in read_promotions(directory))
        raise ModelError(
            f"{(f'model {version} was removed from' if was else f'there is no model {version} in')} "
            f"{directory}; `rightsizer models` lists the existing ones"
        )


def hold_version(directory: Path, version: str) -> Hold:
    """Keep a version from being removed while this process uses it; ModelError if it is gone."""
    try:
        return Hold(directory / version)
    except OSError as error:
        raise unread(directory / version, error) from None


def load_version(directory: Path, version: str, settings: ChainSettings) -> Predictor:
    """Return the predictor of a version as the service loads it; ModelError if any check fails.

    The log knows the manifest that was promoted: a version that was changed afterwards is refused, even if its
    digests and its seal were changed as well.
    """
    promoted = [one.manifest for one in read_promotions(directory) if one.version == version and one.manifest]
    predictor = load_predictor(directory / version, settings, promoted[-1] if promoted else "")
    if predictor.model != version:
        raise ModelError(
            f"{directory / version} contains the model {predictor.model}; run `rightsizer train`"
        )
    return predictor


def _swap(directory: Path, version: str) -> None:
    link = directory / f".{CURRENT}-{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(version)
    try:
        link.replace(directory / CURRENT)
    finally:
        link.unlink(missing_ok=True)
    sync(directory)


def current_since_s(directory: Path) -> float | None:
    """Return since when `current` names what it names (unix seconds), whoever changed it; None before the first."""
    try:
        return (directory / CURRENT).lstat().st_mtime
    except OSError:
        return None


def known_succession(directory: Path) -> Succession:
    """Return which versions were current one after the other, by the log and by what `current` names now."""
    return succession(read_promotions(directory), current_version(directory))


class Earlier(msgspec.Struct, frozen=True):
    """What a rollback may go back to, the nearest first.

    `logged` are the versions that were current before, by the log. `by_name` are versions with older names; it is
    empty if the log reaches back to the first version.
    """

    logged: tuple[str, ...]
    by_name: tuple[str, ...]


def earlier(directory: Path) -> Earlier:
    """Return what there is to go back to, without versions that were removed meanwhile."""
    there, promotions = versions(directory), read_promotions(directory)
    known = succession(promotions, current_version(directory))
    logged = (held.version for held in reversed(known.held[:-1]))
    oldest = known.held[0].version if known.held and not known.from_the_first else ""
    # If a version is in the log, but not in `logged`, a rollback went back from it.
    named = {one.version for one in promotions} | {held.version for held in known.held}
    return Earlier(
        logged=tuple(version for version in logged if version in there and version != known.current),
        by_name=tuple(version for version in reversed(there) if version < oldest and version not in named),
    )


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Turn an OSError within the `with` into a ModelError."""
    try:
        yield
    except OSError as error:
        fix = fix_for(
            error,
            "run this as the service's user, give that user the folder (chown), or set models.directory",
        )
        raise ModelError(f"cannot write models to {directory}: {error.strerror}; {fix}") from None
