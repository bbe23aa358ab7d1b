"""Where other releases of Slurm are: those that `tools/setup releases` made, and those that a user names."""

from __future__ import annotations

import os
from pathlib import Path

from accounting.errors import SandboxError
from slurm_plugin.sandbox.release import find_programs

PREFIXES_VARIABLE = "RIGHTSIZER_SLURM_PREFIXES"
PREFIX_VARIABLE = "RIGHTSIZER_SLURM_PREFIX"
RELEASES_VARIABLE = "RIGHTSIZER_RELEASES"
SYSTEM = "system"
# What `tools/setup releases` makes; what is missing on this machine is skipped by name.
MADE = ("24.11", "26.05")


def releases_folder() -> Path:
    """Return the folder where `tools/setup releases` keeps a root file system for each release."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(RELEASES_VARIABLE) or cache / "slurm-rightsizer" / "releases")


def chosen_prefix() -> Path | None:
    """Return the prefix whose Slurm the tests on one release use, $RIGHTSIZER_SLURM_PREFIX; None: this system's."""
    text = os.environ.get(PREFIX_VARIABLE)
    return Path(text) if text else None


def named_prefixes() -> dict[str, Path]:
    """Return the prefixes of $RIGHTSIZER_SLURM_PREFIXES (a:b), by their own path."""
    return {text: Path(text) for text in os.environ.get(PREFIXES_VARIABLE, "").split(":") if text}


def other_releases() -> dict[str, Path]:
    """Return the releases other than this system's, with a name for each; their folders need not exist."""
    return {**{name: releases_folder() / name for name in MADE}, **named_prefixes()}


def releases() -> dict[str, Path | None]:
    """Return all releases that may run here, with a name for each; this system's own has no prefix."""
    return {SYSTEM: None, **other_releases()}


def why_missing(prefix: Path | None) -> str | None:
    """Say why the Slurm of a prefix (None: this system's) cannot run; None if it can."""
    if prefix is not None and not prefix.is_dir():
        return f"there is no {prefix}; `tools/setup releases` makes it where it can"
    try:
        find_programs(prefix)
    except SandboxError as error:
        return str(error)
    return None
