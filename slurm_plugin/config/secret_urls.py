"""The databases' URLs: from the configuration, or from files that other users cannot read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from accounting.errors import ConfigError
from slurm_plugin.config.settings import Config

# Far more than a URL with a password needs.
MOST_BYTES = 4096


def store_url(config: Config) -> str:
    """Return the accounting store's URL; ConfigError if `store.url_file` cannot be used."""
    return _read(config.store.url_file, "store.url_file") or config.store.url


def slurmdbd_url(config: Config) -> str:
    """Return the URL of slurmdbd's database, '' for none; ConfigError if the file that holds it cannot be used."""
    file = config.accounting.slurmdbd_url_file
    return _read(file, "accounting.slurmdbd_url_file") or config.accounting.slurmdbd_url


def _read(name: str, key: str) -> str:
    """Return the one line of the file `name`, '' if `name` is empty; `key` names the setting in errors.

    Raises ConfigError if the file cannot be read, if other users may access it, or if it does not hold exactly one
    line.
    """
    if not name:
        return ""
    try:
        with Path(name).open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            text = opened.read(MOST_BYTES).decode("utf-8", errors="replace").strip()
    except OSError as error:
        raise ConfigError(
            f"cannot read {name}: {error.strerror}; {key} must name a file that this user may read"
        ) from None
    if mode & stat.S_IRWXO:
        raise ConfigError(
            f"every user may read {name}, but {key} names a file with a secret; run `chmod o= {name}`"
        )
    if not text or "\n" in text:
        raise ConfigError(
            f"{name} contains {('several lines' if text else 'nothing')}; {key} needs a file with exactly "
            "one URL"
        )
    return text
