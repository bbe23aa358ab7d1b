"""The sruns in a script: what each asks for, and which run side by side. Pure; continued lines must be joined."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

_INNER = re.compile(r"srun(?<!\wsrun)\b(?!=)([^\n;|&]*)")
# Where lists of commands end. A lone `&` leaves a list in the background, with all that `&&` and `||` join; `2>&1`,
# `&>` and `|&` end none.
_END = r"\n|;|&&|\|\||(?<![<>|&])&(?![>&])"
_LIST_END = re.compile(_END)
_JOINS = ("&&", "||")
# What stands in quotes ends no command outside of them (`srun sh -c 'cd a; ./fit' &`). Only what a shell is told to run
# may go over several lines: an apostrophe anywhere else would otherwise hide what follows. How far back a quote may
# have begun is bounded where it has signs of its own, since each that is never closed is looked through.
_QUOTED = (
    r"(?<=c )(?:'[^']*'|\"[^\"\\]*\"|\"(?:[^\"\\]|\\.){0,300}\")"
    r"|'[^'\n]*'|\"[^\"\\\n]*\"|\"(?:[^\"\\\n]|\\.){0,100}\""
)
# What closes a group, and what opens it.
_OPENER = {")": "(", "}": "{", "done": "do", "fi": "if", "esac": "case"}
_OPENERS = frozenset(_OPENER.values())
_WAIT = "wait"
_WORDS = frozenset(("do", "done", "then", "else", "if", "fi", "case", "esac", _WAIT))
# It waits for all that is in the background, unless it names a job or a process.
_FOR_ALL = re.compile(r"wait[ \t]*(?:[\n;&|#]|\Z)")
_SIGN = re.compile(rf"{_QUOTED}|[(){{}}]|{_END}|\b(?:{'|'.join(sorted(_WORDS))})\b")
# A function's name before its body, read backwards, and that of a command.
_FUNCTION = re.compile(r"\s*(?:\)\s*\(\s*)?([\w-]+)")
_NAMED = re.compile(r"\s*(?:do\s+|then\s+|else\s+|\{\s+)?([\w-]+)")
_LOOP = re.compile(r"\b(?:for|while|until|foreach|repeat|function)\b|\(\)")
# GNU parallel, recognised by its options, what it starts, or its list of inputs; xargs with several processes.
_FARM = re.compile(
    r"parallel(?<![\w-]parallel)[ \t]+[\"']?(?:-|srun)|:::|xargs\b[^\n|;]{0,80}\s-(?:\w*P|-max-procs)"
)
# Arithmetic is short: each unclosed `$((` would otherwise be looked through to the end of the line.
_WORD = re.compile(r"(?:\$\(\([^)]{0,80}\)\)|\"[^\"]*\"|'[^']*'|`[^`]*`|\S)+")
# Options of srun that take no argument.
_FLAGS = frozenset(
    (
        "--exact", "--exclusive", "--overlap", "--whole", "--overcommit", "--oversubscribe", "--label", "--multi-prog",
        "--pty", "--contiguous", "--spread-job", "--use-min-nodes", "--no-kill", "--kill-on-bad-exit", "--unbuffered",
        "--verbose", "--quiet", "--disable-status", "--quit-on-interrupt", "--preserve-env", "--immediate",
        *(f"-{letter}" for letter in "HIKOQXZklsuv"),
    )
)  # fmt: skip
_OVERLAPS = re.compile(r"\s--overlap\b")


class Turn(NamedTuple):
    """When a command of a script runs: whether the script goes on without waiting for it, and until when it may run.

    `waits` is how often the script has waited before for all that is in the background. `stays`: it is in a function,
    or in the background of a subshell, so that later ones need not wait for it.
    """

    background: bool
    waits: int = 0
    stays: bool = False


WAITED_FOR = Turn(background=False)


class _End(NamedTuple):
    """Where a list of commands ends, and whether that leaves it in the background, and in that of a subshell."""

    place: int
    leaves: bool = False
    in_subshell: bool = False


class Step(msgspec.Struct, frozen=True):
    """An srun inside a script: its line from its name on, when it runs, and where it begins."""

    options: str
    turn: Turn = WAITED_FOR
    place: int = 0

    @property
    def own(self) -> str:
        """Its line up to its program, as far as that can be read: `srun -n $N sh -c $COMMAND` asks for no CPUs."""
        end, takes_next = 0, False
        for word in _WORD.finditer(self.options):
            text = word[0]
            # A variable may stand for more options.
            if not takes_next and text[0] not in '-$"':
                break
            takes_next = not takes_next and text[0] == "-" and _takes_next(text)
            end = word.end()
        return self.options[:end]


def _takes_next(option: str) -> bool:
    is_whole = "=" not in option if option.startswith("--") else len(option) == 2
    return is_whole and option not in _FLAGS


def read_steps(body: str) -> list[Step]:
    """Return the sruns of a script in their order."""
    found = list(_INNER.finditer(body))
    return [Step(step[1], turn, step.start()) for step, turn in zip(found, turns(body, found), strict=True)]


def turns(body: str, found: Sequence[re.Match[str]]) -> list[Turn]:
    """Return for each match when the command that it is in runs.

    The script does not wait for a command that is in a group, or in a function, that is left in the background.
    """
    if not found:
        return []
    starts = [match.start() for match in found]
    # One pass for all: a search for each would read on to the end of a long line.
    ends, groups, waits = _ends_and_groups(body, starts)
    left = _left_names(body, ends) if groups else set()
    in_left, in_function = bytearray(len(found)), bytearray(len(found))
    for opened, closed, first, last in groups:
        name, all_in_it = _function_name(body, opened), b"\1" * (last - first)
        if _end_of(ends, closed + 1).leaves or name in left:
            in_left[first:last] = all_in_it
        if name and body[opened] == "{":
            in_function[first:last] = all_in_it
    own = (_end_of(ends, match.end()) for match in found)
    return [
        Turn(
            background=end.leaves or bool(group),
            waits=bisect.bisect(waits, start),
            stays=end.in_subshell or bool(function),
        )
        for start, end, group, function in zip(starts, own, in_left, in_function, strict=True)
    ]


def held_at_once(amounts: Iterable[tuple[float, Turn]]) -> float:
    """Return how much commands, in their order, hold at a time, each together with what is in the background then."""
    most = left = staying = 0.0
    waits = 0
    for amount, turn in amounts:
        if turn.waits > waits:
            left, waits = 0.0, turn.waits
        most = max(most, staying + left + amount)
        if turn.background and turn.stays:
            staying += amount
        elif turn.background:
            left += amount
    return most


def _end_of(ends: Sequence[_End], place: int) -> _End:
    """Return where the command at a place ends."""
    return ends[bisect.bisect_left(ends, (place,))]


def _function_name(body: str, opened: int) -> str:
    """Return the name of the function whose body a group is; '' if there is none."""
    found = _FUNCTION.match(body[max(0, opened - 80) : opened][::-1])
    return found[1][::-1] if found else ""


def _left_names(body: str, ends: Sequence[_End]) -> set[str]:
    """Return the first words of the commands that are left in the background."""
    names = (_command_name(body, before.place, end.place) for before, end in pairwise(ends) if end.leaves)
    return set(filter(None, names))


def _command_name(body: str, begin: int, end: int) -> str:
    """Return the first word of the last command of a list that follows one sign (at `begin`) and ends at another."""
    # Plain calls for speed: a script may have thousands.
    begin = max(begin, body.rfind("&&", begin + 1, end) + 1, body.rfind("||", begin + 1, end) + 1)
    command = _NAMED.match(body, begin + 1, end)
    return command[1] if command else ""


def _ends_and_groups(
    body: str, starts: Sequence[int]
) -> tuple[list[_End], list[tuple[int, int, int, int]], list[int]]:
    """Return where lists of commands end; groups; and where the script waits for all that is in the background.

    Of a group it is where it opens and closes, and which of the commands that begin at `starts` it has: from the first
    to before the last. Waits in groups are left out.
    """
    ends, groups, opened = [_End(-1)], list[tuple[int, int, int, int]](), list[tuple[str, int]]()
    waits, subshells = list[int](), 0
    for place, sign in _signs(body, starts):
        if sign in _OPENERS:
            opened.append((sign, place))
            subshells += sign == "("
        elif sign in _OPENER:
            # The `a)` of a `case` closes nothing.
            if not opened or opened[-1][0] != _OPENER[sign]:
                continue
            _, begin = opened.pop()
            subshells -= sign == ")"
            first, last = bisect.bisect(starts, begin), bisect.bisect(starts, place)
            if first < last:
                groups.append((begin, place + len(sign) - 1, first, last))
        elif sign == _WAIT:
            if not opened and _FOR_ALL.match(body, place):
                waits.append(place)
        elif sign not in _JOINS and sign not in _WORDS:
            ends.append(_End(place, leaves=sign == "&", in_subshell=sign == "&" and subshells > 0))
    ends.append(_End(len(body)))
    return ends, groups, waits


def _signs(body: str, starts: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield what begins and ends groups, and what ends commands, with its place.

    Quotes hide what is in them, unless one of the commands that begin at `starts` is
    (`bash -c 'srun ./a & srun ./b & wait'`). A word of the shell's is one only where a command may begin (`dd if=x`).
    """
    begin = 0
    for sign in _SIGN.finditer(body):
        first, last = sign.span()
        text = sign[0]
        if text in _WORDS:
            if body[begin:first].strip(" \t"):
                continue
            yield first, text
        elif text[0] not in "'\"":
            yield first, text
        else:
            if bisect.bisect(starts, first) < bisect.bisect(starts, last):
                yield from ((end.start(), end[0]) for end in _LIST_END.finditer(body, first, last))
            continue
        begin = last


def farmed(body: str, steps: list[Step]) -> list[Step]:
    """Return the steps of which more may run at once than are written: how often a loop starts one is not counted."""
    if not steps:
        return []
    is_farm, is_loop = bool(_FARM.search(body)), bool(_LOOP.search(body))
    started = (step for step in steps if is_farm or (is_loop and step.turn.background))
    return [step for step in started if not _OVERLAPS.search(step.options)]
