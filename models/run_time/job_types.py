"""The type of a job: which jobs run the same kind of program. Pure: names, scripts and the site's rules in, a name out.

A type is wider than a family (models/past/families.py), which is one user's: how run time depends on resources is a
matter of the program, not of who starts it. A site's rule decides first. Without one, a workflow's `A:B:TOOL` is
typed by its last component: the tool decides how time depends on resources, the pipeline around it only decides what
the tool is fed, and only the tool gathers enough jobs to learn from. If a tool does different things at different
places of a pipeline, a rule over the job's name can tell them apart. If the name says nothing, the script decides.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

import msgspec

from models.past.families import GENERIC_NAMES
from models.past.job_names import normal_name

# Nextflow submits `nf-PIPELINE_TOOL_(sample)`: neither the prefix nor the sample is part of the program.
_WORKFLOW_MARK = re.compile(r"^nf-(?=.)")
_SAMPLE = re.compile(r"[ _]?\([^()]*\)$")


class TypeRule(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of type `name`: each list fits if any of its patterns (`*`, `?`) does; an empty list always fits."""

    name: str
    job_name: tuple[str, ...] = ()
    partition: tuple[str, ...] = ()
    account: tuple[str, ...] = ()

    def fits(self, job_name: str, partition: str, account: str) -> bool:
        """Return whether a job falls under this rule; upper and lower case are different."""
        pairs = ((self.job_name, job_name), (self.partition, partition), (self.account, account))
        return all(
            not patterns or any(fnmatch.fnmatchcase(value, pattern) for pattern in patterns)
            for patterns, value in pairs
        )


def job_type(
    rules: Sequence[TypeRule],
    job_name: str,
    partition: str,
    account: str,
    script_signature: str = "",
) -> str | None:
    """Return the type of a job: the first rule that fits, else by name or script; None if neither says anything."""
    for rule in rules:
        if rule.fits(job_name, partition, account):
            return rule.name
    return found_type(job_name, script_signature)


def found_type(job_name: str, script_signature: str = "") -> str | None:
    """Return the type by a job's own name or script, without any rule; None if neither says anything."""
    tool = normal_name(_SAMPLE.sub("", _WORKFLOW_MARK.sub("", job_name)).rsplit(":", 1)[-1])
    if tool not in GENERIC_NAMES:
        return tool
    return f"script {script_signature}" if script_signature else None
