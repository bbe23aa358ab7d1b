"""The values of a script's own variables: numbers, Slurm's variables, and commands that start ranks or threads. Pure.

`NP=16` and an `srun -n $NP` further down mean `srun -n 16`; so do `launch="srun -n 16"` and `$launch`. A variable that
a script sets in two ways, in a loop, on a condition or by a command is left as written: its value cannot be read.
Sums, products and fractions of known numbers are computed (`$((NODES*8))`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Words that may precede a variable that a command sets, including those of the C shell.
_BEFORE = frozenset(
    ("export", "local", "readonly", "declare", "typeset", "-i", "-r", "-x", "set", "@", "then", "do")
)
# Sums, products and fractions of Slurm's own numbers: they follow what the job was given.
_SLURMS = r"\$?\{?SLURM_(?!ARRAY)\w+\}?"
FOLLOWING = rf"\$\(\(\s*{_SLURMS}(?:\s*[-+*/]\s*{_SLURMS}|\s*[-/]\s*\d+)*\s*\)\)"
# No differences: where all digits are nines (`_fixes_nothing` in script_floors.py), nothing would be left of them.
_ARITHMETIC = re.compile(r"\$\(\([ \t]*(\w{1,40}(?:[ \t]*[+*/][ \t]*\w{1,40}){0,5})[ \t]*\)\)")
_NUMBERS = re.compile(r"\d{1,6}(?:\s*[+*/]\s*\d{1,6})*")
_FACTOR = re.compile(r"([*/]?)\s*(\d+)")
# What stands where a variable of the script's environment or an argument is not given.
DEFAULT = r"\$\{\w{1,40}:?-"
# What may precede a number: a sign or blanks, and a quote.
IS = "(?:=|[ \\t]+)"
QUOTE = "[\"']?"
# A number that only the shell knows. Slurm's own variables follow what the job was given, so they are not among
# these.
UNREAD = rf"(?:`|(?!\$\{{?SLURM_(?!ARRAY)|{FOLLOWING})\$)"
# Launchers of MPI ranks, other than srun: Open MPI's and PRRTE's, MPICH's and Intel's, HPE's, MVAPICH's, Julia's,
# TACC's and Cray's.
LAUNCHERS = (
    "mpirun", "mpiexec", "orterun", "prterun", "prun", "mpiexec_mpt", "mpirun_rsh", "mpiexecjl", "ibrun", "aprun",
)  # fmt: skip
# Such a command and its options, also by its path, or only options.
_STARTS = rf"(?:[\w.+${{}}-]{{0,40}}/){{0,9}}(?:srun|gmx(?:_\w+)?|mdrun(?:_\w+)?|(?:{'|'.join(LAUNCHERS)})(?:\.\w+)?)"
_COMMAND = rf"(?:{_STARTS}(?=[ \t]|\Z)|-)[-\w \t=:.,/%@+${{}}]*"
_READABLE = re.compile(
    rf"(?:{_COMMAND}|\d[\w.]*|\$SLURM_\w+|\$\{{SLURM_\w+(?::-\w*)?\}}|{DEFAULT}\d+\}}|{FOLLOWING})"
)
# A command's own: filled in, they would only make the script longer.
_FOLDERS = re.compile(r"^(?!-)[^\s(]*/")
_SETS = re.compile(rf"=[ \t]*[\"']?(?:\([ \t]*)?(?:\d|-|{_STARTS}\b|\$\{{?SLURM_|{DEFAULT}\d|\$\(\()")
# Variables that a command sets, wherever in it: options such as `--mem=2G` are none. Arithmetic may have blanks.
_SET_IN = re.compile(
    r"(?:(?<=[\s;&|(){}\"'])|^)([A-Za-z_]\w*)[-+*/]?=(?!=)"
    r"|(?:\(\(|\blet[ \t]+[\"'])[ \t]*([A-Za-z_]\w*)[ \t]*(?:<<|[-+*/%])?=(?!=)"
    r"|\b([A-Za-z_]\w*)\+\+|\+\+([A-Za-z_]\w*)"
)
_USED = re.compile(r"\"?\$\{(\w+)\[[@*]\]\}\"?|\$(?:\{(\w+)(?::?-[^{}\n]{0,40})?\}|(\w+))")
# Variables made of others (`B=$A$A`, `C=$B$B`) would double with each line, and a submission waits. No longer value is
# read, and a script that would grow by more than this is left as written.
_MOST_CHARS, _MOST_GROWTH = 80, 8192


def with_values(body: str) -> str:
    """Return a script with its variables filled in if readable; its lines must be joined, without comments."""
    if "$" not in body or not ("$((" in body or _SETS.search(body)):
        return body
    values: dict[str, str | None] = {}
    _read_all(body, values)
    # A loop or a function may use a value that is set only further down.
    read = _read_all(body, {name: None for name, value in values.items() if value is None})
    return read if len(read) <= len(body) + _MOST_GROWTH else body


def _read_all(body: str, values: dict[str, str | None]) -> str:
    return "\n".join(";".join(_read(part, values) for part in line.split(";")) for line in body.split("\n"))


def _read(part: str, values: dict[str, str | None]) -> str:
    """Return a command with the values known so far filled in, and record what it sets."""
    filled = part
    if values and "$" in part:
        filled = _USED.sub(lambda used: values.get(used[1] or used[2] or used[3]) or used[0], part)
    if "$((" in filled:
        filled = _ARITHMETIC.sub(lambda found: _computed(found[1], values) or found[0], filled)
    # No value sets a variable, and with all values filled in a command may be a hundred times as long.
    before, sign, _ = part.partition("=")
    words = before.split() if sign else []
    if part.lstrip().startswith("for "):
        values.update(dict.fromkeys(part.split()[1:2]))
    elif words and words[-1].isidentifier() and _BEFORE.issuperset(words[:-1]):
        _set(words[-1], filled.partition("=")[2], values)
        return filled
    if sign or "++" in part:
        # Set only sometimes (`[ $BIG ] && NP=16`, `else NP=16`, `case … in a) NP=16`).
        values.update((found[found.lastindex or 0], None) for found in _SET_IN.finditer(part))
    return filled


def _set(name: str, value: str, values: dict[str, str | None]) -> None:
    plain = value.partition(" #")[0].strip().strip("\"'")
    if plain[:1] == "(" and plain[-1:] == ")":
        plain = plain[1:-1].strip()
    read = _FOLDERS.sub("", plain) if len(plain) <= _MOST_CHARS and _READABLE.fullmatch(plain) else None
    values[name] = read if values.get(name, read) == read else None


def _computed(arithmetic: str, values: Mapping[str, str | None]) -> str:
    """Return the result of a shell's arithmetic; '' if a part of it is not known."""
    numbers = re.sub(r"\b[A-Za-z_]\w*", lambda name: values.get(name[0]) or name[0], arithmetic)
    if not _NUMBERS.fullmatch(numbers):
        return ""
    total = 0
    for term in numbers.split("+"):
        product = 1
        for sign, number in _FACTOR.findall(term):
            if sign == "/" and not int(number):
                return ""
            product = product // int(number) if sign == "/" else product * int(number)
        total += product
    return str(total)
