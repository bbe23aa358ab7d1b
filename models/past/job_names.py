"""What a job's name says without the parts that only tell one run from another. Pure.

People number their jobs; workflow engines generate names from the sample, a run's UUID or a digest. Each such name
would be a family of one job, from which nothing is ever learned. RULES is the one table of what is removed. All code
that asks which jobs are alike, at submission, in training or behind a brake, asks `normal_name`.

Every rule takes time in proportion to the length of the name: no user can hold up the hook with a long one. A removed
part becomes `#`, which no rule matches: a normal name stays as it is, so stored keys can be normalised again.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

# A name of which nothing is left that a person could have meant. It is generic: it says nothing of what runs.
MACHINE_MADE = "##"
# What slurmdbd calls a job that was submitted without a name, as slurmrestd and Slurm's C API allow (22.05 to 26.05).
# The hook sees no name for it; under that, it would be like no job that ever ended.
NAMELESS = "allocation"
ENDINGS = (".sbatch", ".slurm", ".sh", ".job", ".sub")
# Size of the cache: the same names come again within a submission, and with the next one.
REMEMBERED = 2048

_NUMBER = re.compile(r"\d+")
# Matched against the reversed name: forwards, each ending would be tried as the first of a long row.
_ENDINGS_BACKWARDS = re.compile(f"(?:{'|'.join(re.escape(one[::-1]) for one in ENDINGS)})+")
_HEX_DIGITS = re.compile(r"[0-9a-f]{8}")


class Rule(NamedTuple):
    """A machine-made part of a name in lower case, and what replaces it.

    Only names that begin with `begins` are searched; if that is empty, only those with eight hexadecimal digits in a
    row. So nearly all names are done with at once.
    """

    begins: str
    found: re.Pattern[str]
    plain: str


# The end of a name is cut off, from the sample on. tests/models/past/test_job_names.py says where each form comes
# from.
CUTS = (
    # Nextflow: nf-PROCESS_(tag). No process has a bracket in its name.
    Rule("nf-", re.compile(r"(?s)_\(.*"), ""),
    # Snakemake's profiles: smk-rule-wildcard=value,…
    Rule("smk-", re.compile(r"(?s)[-.,]\w+=.*"), ""),
)
RULES = (
    # Cromwell: the first eight digits of the workflow's UUID. Without the prefix they might be a word, or a date.
    Rule("cromwell_", re.compile(r"(?<=\Acromwell_)[0-9a-f]{8}(?=_)"), "#"),
    # mktemp's own names, and those of Python's tempfile in which something follows a digit: `tmp_test_1` is a
    # person's.
    Rule("tmp", re.compile(r"(?<=\Atmp\.)[0-9a-z]{10}\Z"), "#"),
    Rule("tmp", re.compile(r"(?<=\Atmp)(?=[a-z_]*[0-9]+[a-z_])[0-9a-z_]{8}\Z"), "#"),
    # The folder in which executorlib's SlurmClusterExecutor keeps what it runs. The script names the function, with a
    # digest.
    Rule("executorlib_cache", re.compile(r"executorlib_cache\Z"), "#"),
    # A UUID, also with underscores in place of the dashes.
    Rule("", re.compile(r"[0-9a-f]{8}([-_])(?:[0-9a-f]{4}\1){3}[0-9a-f]{12}"), "#"),
    # MD5, SHA-1 and longer digests, also right after a word. The b of batchtools' `job` is not part of the digest.
    Rule("", re.compile(r"(?<!jo)[0-9a-f]{32,}"), "#"),
    # Part of a digest, as a word of its own, with two changes between letters and digits. `cafe2024` and `abc12345`
    # are people's.
    Rule(
        "",
        re.compile(r"(?<![^\W_])(?=[0-9]+[a-f]+[0-9]|[a-f]+[0-9]+[a-f])[0-9a-f]{8,31}(?![^\W_])"),
        "#",
    ),
)


# Names that are paths and are not called by their last part: Cylc's task.cycle.workflow/run1, whose workflow may have
# slashes of its own, and signac's project/job/operation/digest.
_CYLC = re.compile(r"\A[^/.]+\.\d[\dtz+-]*\.[^/]+(?=/)")
_DIGEST_BEHIND = re.compile(r"/[0-9a-f]{32}\Z")
# A last part that is a version says nothing without the part before it: Galaxy's tool ids, …/bowtie2/2.3.4.3+galaxy0.
_VERSION = re.compile(r"[\d#]+(?:\.[\d#]+)+[a-z]?(?:[-+][a-z]*[\d#]+)*")


class Named(NamedTuple):
    """A normal name, and whether a machine made a part of it."""

    name: str
    by_machine: bool


def normal_name(job_name: str) -> str:
    """Return a job name without numbers, machine-made parts, path and ending: `runs/Fit_012.sbatch` → `fit_#`.

    It is never empty: a job without a name is NAMELESS.
    """
    return read_name(job_name).name


def is_by_machine(job_name: str) -> bool:
    """Return whether a machine made a part of a name: the same name with another such part is no other work."""
    return read_name(job_name).by_machine


def without_machine_parts(job_name: str) -> str:
    """Return a name as a person gave it, or the normal name if a machine made a part of it."""
    named = read_name(job_name)
    return named.name if named.by_machine else job_name


@functools.lru_cache(maxsize=REMEMBERED)
def read_name(job_name: str) -> Named:
    """Return all that a name says; the names that were read last are cached."""
    if not job_name:
        return Named(NAMELESS, by_machine=False)
    # slurmctld gives slurmdbd ` for each " in a name (22.05 to 26.05): this makes sacct's name and the hook's the
    # same.
    whole = job_name.rstrip("/").lower().replace('"', "`")
    called = _without_runs(whole)
    last = _last_part(called)
    cut = _put_right(last, CUTS)
    stem = _without_endings(cut)
    plain = _put_right(stem, RULES)
    by_machine = plain != stem or cut != last or called != whole
    if not plain or (plain != stem and not any(map(str.isalpha, plain))):
        return Named(MACHINE_MADE, by_machine)
    return Named(_NUMBER.sub("#", plain), by_machine)


def without_digests(text: str) -> str:
    """Return a text without UUIDs and digests: a script of a job that a machine named holds further ones."""
    return _put_right(text, tuple(rule for rule in RULES if not rule.begins))


def _without_runs(path: str) -> str:
    """Return a name that is a path up to the part that the job is called by."""
    if "/" not in path:
        return path
    cylc = _CYLC.match(path)
    return cylc[0] if cylc else _DIGEST_BEHIND.sub("", path)


def _last_part(path: str) -> str:
    *_, before, last = "", *path.rsplit("/", 2)
    return f"{before}/{last}" if before and _VERSION.fullmatch(last) else last


def _put_right(name: str, rules: tuple[Rule, ...]) -> str:
    has_digits = bool(_HEX_DIGITS.search(name))
    for rule in rules:
        if name.startswith(rule.begins) if rule.begins else has_digits:
            name = rule.found.sub(rule.plain, name)
    return name


def _without_endings(name: str) -> str:
    """Return a name without script endings; a name that consists only of endings keeps the first."""
    found = _ENDINGS_BACKWARDS.match(name[::-1])
    if found is None:
        return name
    return name[: len(name) - found.end()] or name[: (name + ".").index(".", 1)]
