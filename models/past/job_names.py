"""What a job's name says once the parts that only tell one run from another are gone. Pure.

People number their jobs; workflow engines name them by machine: by the sample, by a run's UUID, by a digest. Each of
such names alone is a family of one, of which nothing is ever learned. RULES is the one table of what goes; whoever
asks which jobs are alike, at submission, in training or behind a brake, asks `normal_name`.

Every rule takes time in proportion to the name: no user can hold up the hook with a long one. What has gone is `#`,
which no rule takes again: a name that is normal stays as it is, so keys that were stored can be made normal anew.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

# A name of which nothing is left that a person could have meant. A generic one: it tells nothing of what runs.
MACHINE_MADE = "##"
# What slurmdbd calls a job that came without a name, as slurmrestd and Slurm's C API let it (22.05 to 26.05): by the
# hook's word for that, which is none, it would be no job that ever ended.
NAMELESS = "allocation"
ENDINGS = (".sbatch", ".slurm", ".sh", ".job")
# The same names come again within a submission, and with the next one.
REMEMBERED = 2048

_NUMBER = re.compile(r"\d+")
# From the end on: forwards each ending would be tried as the first of a long row.
_ENDINGS_BACKWARDS = re.compile(f"(?:{'|'.join(re.escape(one[::-1]) for one in ENDINGS)})+")
_HEX_DIGITS = re.compile(r"[0-9a-f]{8}")


class Rule(NamedTuple):
    """A machine's part of a name in lower case, and what stands in its place.

    Only names that begin with `begins` are looked at, and without that those with eight hexadecimal digits in a row:
    nearly all names are done with at once.
    """

    begins: str
    found: re.Pattern[str]
    plain: str


# Ends of names: what follows is the sample. tests/models/past/test_job_names.py says where each form comes from.
CUTS = (
    # Nextflow: nf-PROCESS_(tag). No process has a bracket in its name.
    Rule("nf-", re.compile(r"(?s)_\(.*"), ""),
    # Snakemake's profiles: smk-rule-wildcard=value,…
    Rule("smk-", re.compile(r"(?s)[-.,]\w+=.*"), ""),
)
RULES = (
    # Cromwell: the first eight digits of the workflow's UUID. Alone they might be a word, or a date.
    Rule("cromwell_", re.compile(r"(?<=\Acromwell_)[0-9a-f]{8}(?=_)"), "#"),
    # mktemp's own names, and Python's, of which some digit is not the last: `tmp_test_1` is a person's.
    Rule("tmp", re.compile(r"(?<=\Atmp\.)[0-9a-z]{10}\Z"), "#"),
    Rule("tmp", re.compile(r"(?<=\Atmp)(?=[a-z_]*[0-9]+[a-z_])[0-9a-z_]{8}\Z"), "#"),
    # A UUID, also where another separator stands for the dash.
    Rule("", re.compile(r"[0-9a-f]{8}([-_])(?:[0-9a-f]{4}\1){3}[0-9a-f]{12}"), "#"),
    # MD5, SHA-1 and longer digests, also behind a word. The b of batchtools' `job` is no digit of it.
    Rule("", re.compile(r"(?<!jo)[0-9a-f]{32,}"), "#"),
    # Part of a digest, a word of its own: letters and digits change twice. `cafe2024` and `abc12345` are people's.
    Rule(
        "",
        re.compile(r"(?<![^\W_])(?=[0-9]+[a-f]+[0-9]|[a-f]+[0-9]+[a-f])[0-9a-f]{8,31}(?![^\W_])"),
        "#",
    ),
)


# Where the last part of a path is not what it is called by: Cylc's task.cycle.workflow/run1, whose workflow may have
# slashes of its own, and signac's project/job/operation/digest.
_CYLC = re.compile(r"\A[^/.]+\.\d[\dtz+-]*\.[^/]+(?=/)")
_DIGEST_BEHIND = re.compile(r"/[0-9a-f]{32}\Z")


class Named(NamedTuple):
    """A normal name, and whether a machine had a part in it."""

    name: str
    by_machine: bool


def normal_name(job_name: str) -> str:
    """Return a job name without numbers, machines' parts, path and ending: `runs/Fit_012.sbatch` → `fit_#`.

    It is never empty: no name at all is NAMELESS.
    """
    return read_name(job_name).name


def is_by_machine(job_name: str) -> bool:
    """Whether a machine had a part in a name: it is no other work that has another such part."""
    return read_name(job_name).by_machine


def without_machine_parts(job_name: str) -> str:
    """Return a name as its person gave it; the normal one where a machine had a part in it."""
    named = read_name(job_name)
    return named.name if named.by_machine else job_name


@functools.lru_cache(maxsize=REMEMBERED)
def read_name(job_name: str) -> Named:
    """Return all that is seen in a name; those that were read last are remembered."""
    if not job_name:
        return Named(NAMELESS, by_machine=False)
    # slurmctld gives slurmdbd ` for each " of a name (22.05 to 26.05): sacct's name and the hook's are one.
    whole = job_name.rstrip("/").lower().replace('"', "`")
    called = _without_runs(whole)
    last = called.rsplit("/", 1)[-1]
    cut = _put_right(last, CUTS)
    stem = _without_endings(cut)
    plain = _put_right(stem, RULES)
    by_machine = plain != stem or cut != last or called != whole
    if not plain or (plain != stem and not any(map(str.isalpha, plain))):
        return Named(MACHINE_MADE, by_machine)
    return Named(_NUMBER.sub("#", plain), by_machine)


def without_digests(text: str) -> str:
    """Return a text without UUIDs and digests: scripts of jobs that a machine named hold more of them."""
    return _put_right(text, tuple(rule for rule in RULES if not rule.begins))


def _without_runs(path: str) -> str:
    """Return a name that is a path up to the part that it is called by."""
    if "/" not in path:
        return path
    cylc = _CYLC.match(path)
    return cylc[0] if cylc else _DIGEST_BEHIND.sub("", path)


def _put_right(name: str, rules: tuple[Rule, ...]) -> str:
    has_digits = bool(_HEX_DIGITS.search(name))
    for rule in rules:
        if name.startswith(rule.begins) if rule.begins else has_digits:
            name = rule.found.sub(rule.plain, name)
    return name


def _without_endings(name: str) -> str:
    """Return a name without the endings of scripts; one that is nothing else keeps its first."""
    found = _ENDINGS_BACKWARDS.match(name[::-1])
    if found is None:
        return name
    return name[: len(name) - found.end()] or name[: (name + ".").index(".", 1)]
