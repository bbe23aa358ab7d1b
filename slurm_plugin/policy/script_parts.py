"""Of how many CPUs a part is still one: who starts a quarter of them, or all but one, starts none of too few. Pure.

Read is what a script divides the CPUs that its job was given by, or takes off them, in the shell, Python, R and others,
also by a name of its own for them: `n = int(os.environ["SLURM_CPUS_PER_TASK"])`, and `n // 4` further down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# By these a script knows what it was given; `detectCores()` and `os.cpu_count()` tell of the node.
_GIVEN = (
    re.compile(r"SLURM_(?:CPUS_(?:PER_TASK|ON_NODE)|JOB_CPUS_PER_NODE)"),
    re.compile(r"nproc(?:[)`]|\(\))"),
    re.compile(r"availableCores\("),
    re.compile(r"availableParallelism\("),
    re.compile(r"sched_getaffinity\(\d"),
    re.compile(r"cpu_count(?:(?<=process_cpu_count)|(?<=joblib\.cpu_count)|(?<=loky\.cpu_count))\("),
)
_WORDS = ("_CPUS_", "nproc", "available", "sched_getaffinity", "cpu_count")
# `-p $N -1 reads` is an option, and no difference.
_SHARED = r"((?<![ \t])-|-(?=[ \t])|//?|%/%)[ \t]*(\d{1,3})\b"
# What stands between it and the sign: its value where Slurm sets none, and the ends of what it is written in.
_DEFAULT = r"(?::?-\d+\}|[\"']?,[ \t]*(?:unset[ \t]*=[ \t]*)?[\"']?\d+[\"']?)?"
_PART = re.compile(rf"{_DEFAULT}[\]\"')}} \t]*{_SHARED}")
_NAME = re.compile(r"([A-Za-z_]\w*)[ \t]*(?:=|<-)[^=]{0,80}\Z")
_MOST_NAMES = 8


def least_cpus(script: str) -> Iterator[int]:
    """Yield the CPUs of a task of which each part in a script is one at least."""
    if not any(word in script for word in _WORDS):
        return
    names: set[str] = set()
    for given in (one for kind in _GIVEN for one in kind.finditer(script)):
        part = _PART.match(script, given.end())
        if part:
            yield _least(part)
        elif len(names) < _MOST_NAMES:
            before = script[script.rfind("\n", 0, given.start()) + 1 : given.start()]
            names.update(_NAME.findall(before))
    for name in sorted(names):
        for part in re.finditer(rf"{name}(?<![\w.-]{name})\b[\]\"')}} \t]*{_SHARED}", script):
            yield _least(part)


def _least(part: re.Match[str]) -> int:
    sign, number = part[1], int(part[2])
    return number + (sign == "-")
