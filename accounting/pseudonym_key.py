"""The site's key for pseudonyms: a file that nobody else can read. Who has it can tell which pseudonym is whose."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from accounting.errors import ConfigError

KEY_BYTES = 32
# A key as `openssl rand -hex 32` prints it has 64.
LEAST_CHARS = 32


def read_key(file: Path) -> bytes:
    """Return the key in a file; ConfigError where others can read it, or it is missing, no file, or too short."""
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            key = opened.read(4096).strip()
    except OSError as error:
        raise ConfigError(
            f"cannot read the pseudonym key {file}: {error.strerror}; `rightsizer config pseudonym-key FILE` makes one"
        ) from None
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"the pseudonym key {file} is readable by others; run `chmod 600 {file}`")
    if len(key) < LEAST_CHARS:
        raise ConfigError(
            f"the pseudonym key {file} has {len(key)} characters, fewer than {LEAST_CHARS}; "
            "`openssl rand -hex 32` prints a good one"
        )
    return key


def make_key(file: Path) -> None:
    """Write a new key of mode 0600; ConfigError where the file is there already or cannot be made."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(secrets.token_hex(KEY_BYTES) + "\n")
    except FileExistsError:
        raise ConfigError(
            f"{file} is there already, and a new key gives everybody another pseudonym; name another file"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot make {file}: {error.strerror}; give a path that you may write") from None
