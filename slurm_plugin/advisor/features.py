"""Which nodes a job asks for by --constraint, as far as a plan knows: with a feature, or any of several. Pure.

It decides which constraints are understood: `a100` and `a100|h100`, not `a100&ib`, counts of nodes or
`[rack1|rack2]`.
"""

from __future__ import annotations

import re

from slurm_plugin.slurm.snapshot import QueuedJob

_SAID = "Features="
_ANY_OF = re.compile(rf"{_SAID}([\w.\-]+(?:\|[\w.\-]+)*)", re.ASCII)


def is_understood(text: str) -> bool:
    """Whether a constraint of a job consists of features that a plan knows."""
    return _ANY_OF.fullmatch(text) is not None


def features_of(job: QueuedJob) -> tuple[str, ...]:
    """Return the features of which the job's nodes must have one; empty if it asks for none, or in another form."""
    found = next((match for text in job.other if (match := _ANY_OF.fullmatch(text))), None)
    return tuple(found[1].split("|")) if found else ()


def pool_name(partition: str, feature: str) -> str:
    """Return the name of a partition's nodes with a feature: no partition has a blank in its name."""
    return f"{partition} {feature}"
