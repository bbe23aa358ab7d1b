"""Check that what the configuration names exists and is usable: time zone, files, URLs; does not ask databases."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from accounting.errors import ConfigError, SlurmError, StoreError
from slurm_plugin.cli.output import note
from slurm_plugin.config.settings import Config


def check_reached(config: Config) -> None:
    """Raise RightsizerError if a time zone, file or URL that the configuration names cannot be used.

    A file that this process may not read is not checked; a note says so.
    """
    from accounting.key_file import journal_key, read_key
    from slurm_plugin.config.energy import energy_site

    energy_site(config.energy)
    pseudonyms = config.accounting.pseudonym_key
    secrets: dict[str, tuple[str, Callable[[], object]]] = {
        "the key of the journal": (
            config.service.journal_key,
            partial(journal_key, config.service.journal_key),
        ),
        "the key of pseudonyms": (pseudonyms, partial(read_key, Path(pseudonyms)) if pseudonyms else bytes),
        "slurmdbd's URL": (config.accounting.slurmdbd_url_file, partial(_check_slurmdbd_url, config)),
        "the store's URL": (config.store.url_file, partial(_check_store_url, config)),
    }
    for what, (file, use) in secrets.items():
        if is_closed(file):
            note(f"{what} is not checked: you may not read {file}")
        else:
            use()


def is_closed(file: str) -> bool:
    """Whether a file exists but this process may not read it, which does not mean that the file is wrong."""
    try:
        os.stat(file)  # noqa: PTH116 - "" is no file, where Path's is the current folder
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(file, os.R_OK)


def _check_store_url(config: Config) -> None:
    from accounting.store.database import check_url
    from slurm_plugin.config.secret_urls import store_url

    try:
        check_url(store_url(config))
    except StoreError as error:
        raise ConfigError(str(error)) from None


def _check_slurmdbd_url(config: Config) -> None:
    from slurm_plugin.config.secret_urls import slurmdbd_url

    if not (url := slurmdbd_url(config)):
        return
    from accounting.dumps.slurmdbd import check_url

    try:
        check_url(url)
    except SlurmError as error:
        raise ConfigError(str(error)) from None
