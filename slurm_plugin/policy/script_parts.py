"""What a script does with the number of CPUs that its job was given. Pure.

A script that starts a quarter of that number, or all but one, starts none if there are too few. A script that counts
up to it, with one run of its program for each, does less work with fewer, and nothing fails. This reads the shell,
Python, R and others, and the names that a script gives that number: `n = int(os.environ["SLURM_CPUS_PER_TASK"])`, and
`n // 4` further down.
"""

from __future__ import annotations

import re

import msgspec

# These tell a script what it was given; `detectCores()` and `os.cpu_count()` describe the node.
_GIVEN = (
    re.compile(r"SLURM_(?:CPUS_(?:PER_TASK|ON_NODE)|JOB_CPUS_PER_NODE)"),
    re.compile(r"nproc(?:[)`]|\(\))"),
    re.compile(r"availableCores\("),
    re.compile(r"availableParallelism\("),
    re.compile(r"sched_getaffinity\(\d"),
    re.compile(r"cpu_count(?:(?<=process_cpu_count)|(?<=joblib\.cpu_count)|(?<=loky\.cpu_count))\("),
)
_WORDS = ("_CPUS_", "nproc", "available", "sched_getaffinity", "cpu_count")
# The `-1` in `-p $N -1 reads` is an option, not a difference.
_SHARED = r"((?<![ \t])-|-(?=[ \t])|//?|%/%)[ \t]*(\d{1,3})\b"
# What may come between the number and the sign: its default if Slurm sets none, and closing brackets and quotes.
_DEFAULT = r"(?::?-\d+\}|[\"']?,[ \t]*(?:unset[ \t]*=[ \t]*)?[\"']?\d+[\"']?)?"
_PART = re.compile(rf"{_DEFAULT}[\]\"')}} \t]*{_SHARED}")
_NAME = re.compile(r"(?<!\w)([A-Za-z_]\w*)[ \t]*(?:=|<-)[^=;<]{0,80}\Z")
# What precedes the number where a script counts up to it.
_COUNTED = re.compile(
    r"(?:\bseq\b[^;|`]*|\brange\([^):;]*|\{\d+\.\.|\w\}?[ \t]*(?:<=?|-l[te])[ \t]*)[$({\"'\s]*\Z"
)
_NEAR = 80
_MOST_NAMES = 8
# A submission waits, and each use takes as long as a hundred characters. Nobody names the number more often by hand.
_MOST_USES = 250


class Parts(msgspec.Struct, frozen=True):
    """What a script does with its number of CPUs.

    `least_cpus`: for each part of that number (`n // 4`, `n - 1`), the CPUs per task for which the part is at least
    one. `counts_up`: the script counts up to the number, or names it too often to tell.
    """

    least_cpus: tuple[int, ...] = ()
    counts_up: bool = False


NO_PARTS = Parts()


def read_parts(script: str) -> Parts:
    """Return what a script does with the number of its CPUs."""
    if not any(word in script for word in _WORDS):
        return NO_PARTS
    uses = _uses(script)
    if len(uses) > _MOST_USES:
        return Parts(counts_up=True)
    parts = list[int]()
    counts_up = False
    for start, end in uses:
        if part := _PART.match(script, end):
            parts.append(int(part[2]) + (part[1] == "-"))
        counts_up = counts_up or bool(_COUNTED.search(_before(script, start)))
    return Parts(tuple(parts), counts_up)


def _uses(script: str) -> list[tuple[int, int]]:
    """Return where a script names that number: as given, or by a variable that holds all of it, not a part.

    If it is given too often already, variables are not looked for.
    """
    told = [given.span() for kind in _GIVEN for given in kind.finditer(script)]
    if len(told) > _MOST_USES:
        return told
    names = {
        name
        for start, end in told
        if not _PART.match(script, end)
        for name in _NAME.findall(_before(script, start))
    }
    named = (rf"{name}(?<![\w.-]{name})\b" for name in sorted(names)[:_MOST_NAMES])
    return told + [use.span() for name in named for use in re.finditer(name, script)]


def _before(script: str, start: int) -> str:
    """Return what precedes a place on its line, as far back as it matters."""
    return script[max(script.rfind("\n", 0, start) + 1, start - _NEAR) : start]
