"""The values of a script's own variables, if it sets them to a number or to one of Slurm's variables. Pure.

`NP=16` and an `srun -n $NP` further down mean `srun -n 16`. A variable that a script sets in two ways, in a loop or
by a command is left as written: its value cannot be read.
"""

from __future__ import annotations

import re

# Words that may precede a variable that a command sets, including those of the C shell.
_BEFORE = frozenset(
    ("export", "local", "readonly", "declare", "typeset", "-i", "-r", "-x", "set", "@", "then", "do")
)
# Sums, products and fractions of Slurm's own numbers: they follow what the job was given.
_SLURMS = r"\$?\{?SLURM_(?!ARRAY)\w+\}?"
FOLLOWING = rf"\$\(\(\s*{_SLURMS}(?:\s*[-+*/]\s*{_SLURMS}|\s*[-/]\s*\d+)*\s*\)\)"
_READABLE = re.compile(rf"(?:\d[\w.]*|\$SLURM_\w+|\$\{{SLURM_\w+(?::-\w*)?\}}|{FOLLOWING})")
_SETS = re.compile(r"=[ \t]*[\"']?(?:\d|\$\{?SLURM_|\$\(\()")
_USED = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
# Variables made of others (`B=$A$A`, `C=$B$B`) would double with each line, and a submission waits. No longer value is
# read, and a script that would grow by more than this is left as written.
_MOST_CHARS, _MOST_GROWTH = 80, 8192


def with_values(body: str) -> str:
    """Return a script with its variables filled in if readable; its lines must be joined, without comments."""
    if "$" not in body or not _SETS.search(body):
        return body
    values: dict[str, str | None] = {}
    read = "\n".join(";".join(_read(part, values) for part in line.split(";")) for line in body.split("\n"))
    return read if len(read) <= len(body) + _MOST_GROWTH else body


def _read(part: str, values: dict[str, str | None]) -> str:
    """Return a command with the values known so far filled in, and record what it sets."""
    if values and "$" in part:
        part = _USED.sub(lambda used: values.get(used[1] or used[2]) or used[0], part)
    before, sign, value = part.partition("=")
    if sign:
        words = before.split()
        if words and words[-1].isidentifier() and _BEFORE.issuperset(words[:-1]):
            _set(words[-1], value, values)
    elif part.lstrip().startswith("for "):
        values.update(dict.fromkeys(part.split()[1:2]))
    return part


def _set(name: str, value: str, values: dict[str, str | None]) -> None:
    plain = value.partition(" #")[0].strip().strip("\"'")
    read = plain if len(plain) <= _MOST_CHARS and _READABLE.fullmatch(plain) else None
    values[name] = read if values.get(name, read) == read else None
