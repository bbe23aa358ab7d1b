"""The Slurm release that the commands belong to."""

from __future__ import annotations

import re

from accounting.errors import SlurmError
from slurm_plugin.slurm.command import run


def read_release() -> tuple[int, ...]:
    """Return the release as numbers, (22, 5, 8); raises SlurmError if scontrol is missing or does not say."""
    return parse_release(run("scontrol", "--version"))


def parse_release(text: str) -> tuple[int, ...]:
    """Read `slurm-wlm 22.05.8`; raises SlurmError if there is no release in it."""
    found = re.search(r"\b(\d+)\.(\d+)(?:\.(\d+))?", text)
    if found is None:
        raise SlurmError(f"scontrol gives no release: {text.strip()!r}; put Slurm's commands on the PATH")
    return tuple(int(number) for number in found.groups(default="0"))
