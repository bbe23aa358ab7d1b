"""How many licences a job asks for, as far as a plan knows: `matlab:2,ansys`, but not any of several (`a|b`). Pure."""

from __future__ import annotations

import re

from slurm_plugin.slurm.snapshot import QueuedJob

_SAID = "Licenses="
_NAME = r"[\w.@\-]+"
_ALL_OF = re.compile(rf"{_SAID}{_NAME}(?::\d{{1,9}})?(?:,{_NAME}(?::\d{{1,9}})?)*", re.ASCII)


def is_understood(text: str) -> bool:
    """Whether a job asks for licences in a form that a plan can count."""
    return _ALL_OF.fullmatch(text) is not None


def licences_of(job: QueuedJob) -> dict[str, int]:
    """Return how many of which licences a job asks for, or has; empty if it asks for none, or in another form."""
    found = next((text for text in job.other if is_understood(text)), _SAID)
    pairs = (pair.partition(":") for pair in found.removeprefix(_SAID).split(",") if pair)
    return {name: int(count or 1) for name, _, count in pairs}
