"""A site's key files, which nobody else may read: a key can identify pseudonyms, or forge the journal's links."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Literal

from accounting.errors import ConfigError

KEY_BYTES = 32
# A key made by `openssl rand -hex 32` has 64.
LEAST_CHARS = 32

# As in `rightsizer config KIND-key`, which makes one; below, what a different key would do.
Kind = Literal["pseudonym", "journal"]
_ANOTHER: dict[Kind, str] = {
    "pseudonym": "gives everybody a different pseudonym",
    "journal": "does not match the journal's existing lines",
}


def read_key(file: Path, kind: Kind = "pseudonym") -> bytes:
    """Return the key in a file; ConfigError if others can read it, or it is missing, not a file, or too short."""
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            key = opened.read(4096).strip()
    except OSError as error:
        makes = f"`rightsizer config {kind}-key FILE` makes one"
        fix = (
            "make the user of this process its owner (chown)" if isinstance(error, PermissionError) else makes
        )
        raise ConfigError(f"cannot read the {kind} key {file}: {error.strerror}; {fix}") from None
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"other users may read the {kind} key {file}; run `chmod 600 {file}`")
    if len(key) < LEAST_CHARS:
        raise ConfigError(
            f"the {kind} key {file} has {len(key)} characters, fewer than {LEAST_CHARS}; `openssl rand "
            "-hex 32` prints a good one"
        )
    return key


def journal_key(file: str) -> bytes:
    """Return the key for the journal's links that `service.journal_key` names, b"" if none. Raises as `read_key`."""
    return read_key(Path(file), "journal") if file else b""


def make_key(file: Path, kind: Kind = "pseudonym") -> None:
    """Write a new key with mode 0600; ConfigError if the file exists or cannot be made."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(secrets.token_hex(KEY_BYTES) + "\n")
    except FileExistsError:
        raise ConfigError(
            f"{file} exists already, and a new key {_ANOTHER[kind]}; give another file name"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot make {file}: {error.strerror}; give a path that you may write") from None
