"""Which jobs are alike. Pure: names and scripts in, keys out.

A job belongs to several families, from the narrowest to the widest; a predictor takes the narrowest that has
seen enough. Numbers in names and scripts are dropped, so that `fit-01` and `fit-02` are one family.
"""

from __future__ import annotations

import functools
import hashlib
import re

from accounting.request import JobRequest

Family = tuple[str, ...]

SIGNATURE_CHARS = 12
# As much of a script as the hook sends. Every signature is taken from the same part.
SCRIPT_BYTES = 8192
# Names that say nothing about what runs: sbatch and the schedulers of workflows give them by themselves.
GENERIC_NAMES = frozenset(
    {
        "",
        "wrap",
        "sbatch",
        "bash",
        "sh",
        "interactive",
        "job",
        "run",
        "test",
        "script",
        "submit",
        "slurm",
        "python",
    }
)

_NUMBER = re.compile(r"\d+")
_BLANK = re.compile(r"\s+")


# The same script comes with many different requests.
@functools.lru_cache(maxsize=512)
def script_signature(script: str) -> str:
    """Return a short digest of what a batch script does, '' for an empty one.

    Comments, `#SBATCH` lines, white space and numbers do not count: a changed request or input number is still
    the same work.
    """
    head = script.encode(errors="replace")[:SCRIPT_BYTES].decode(errors="ignore")
    lines = (_BLANK.sub(" ", line).strip() for line in head.splitlines())
    body = "\n".join(_NUMBER.sub("0", line) for line in lines if line and not line.startswith("#"))
    return hashlib.sha256(body.encode()).hexdigest()[:SIGNATURE_CHARS] if body else ""


def normal_name(job_name: str) -> str:
    """Return a job name without its numbers, path and ending: `runs/Fit_012.sbatch` → `fit_#`."""
    stem = job_name.rsplit("/", 1)[-1].lower()
    for ending in (".sbatch", ".slurm", ".sh", ".job"):
        stem = stem.removesuffix(ending)
    return _NUMBER.sub("#", stem)


def family_keys(request: JobRequest) -> tuple[Family, ...]:
    """Return the families of a job, the narrowest first; none where nothing tells it from others."""
    name = normal_name(request.job_name)
    keys: list[Family] = []
    if request.script_signature:
        keys.append(("user+name+script", request.user, name, request.script_signature))
    if name not in GENERIC_NAMES:
        keys.append(("user+name", request.user, name))
    return tuple(keys)


def family_name(job_name: str, script_signature: str = "") -> str:
    """Return what a person calls a job's family: its normal name, with the script where the name says nothing."""
    name = normal_name(job_name)
    if name not in GENERIC_NAMES:
        return name
    return f"{name or 'no name'} ({script_signature or 'script not known'})"


def is_alike(family: str) -> bool:
    """Whether jobs of a family, named by `family_name`, can be taken to be alike."""
    return not family.endswith("(script not known)")


def cohort_key(request: JobRequest) -> Family:
    """Return the wide group whose habit of asking too much is a feature: the user, and nobody else.

    An account's or a partition's habit would let anybody's jobs move everybody's predictions.
    """
    return ("user", request.user)


def describe_family(family: Family) -> str:
    """Return a family in words, for people."""
    kind, user, name, *_ = (*family, "", "")
    script = " and the same script" if kind == "user+name+script" else ""
    return f"jobs of {user} named {name}{script}"
