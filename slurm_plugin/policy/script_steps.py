"""The sruns in a script: what each asks for, and which run side by side. Pure; continued lines must be joined."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

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
_WORDS = frozenset(("do", "done", "then", "else", "if", "fi", "case", "esac"))
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


class Step(msgspec.Struct, frozen=True):
    """An srun inside a script: its line from its name on, and whether the script goes on without waiting for it.

    `place` is where it begins.
    """

    options: str
    background: bool
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
    return [
        Step(step[1], background, step.start())
        for step, background in zip(found, in_background(body, found), strict=True)
    ]


def in_background(body: str, found: Sequence[re.Match[str]]) -> list[bool]:
    """Return for each match whether the script goes on without waiting for the command that it is in.

    Nor does it wait if that command is in a group, or in a function, that is left in the background.
    """
    if not found:
        return []
    starts = [match.start() for match in found]
    # One pass for all: a search for each would read on to the end of a long line.
    ends, groups = _ends_and_groups(body, starts)
    left = _left_names(body, ends) if groups else set()
    in_groups = bytearray(len(found))
    for opened, closed, first, last in groups:
        if _is_left(ends, closed + 1) or _function_name(body, opened) in left:
            in_groups[first:last] = b"\1" * (last - first)
    return [
        bool(in_group) or _is_left(ends, match.end())
        for match, in_group in zip(found, in_groups, strict=True)
    ]


def held_at_once(amounts: Sequence[tuple[float, bool]]) -> float:
    """Return how much steps hold at a time: all those in the background at once, each of the others by itself."""
    alone = max((amount for amount, background in amounts if not background), default=0)
    return max(alone, sum(amount for amount, background in amounts if background))


def _is_left(ends: Sequence[tuple[int, bool]], place: int) -> bool:
    """Whether the command at a place is left in the background when it ends."""
    return ends[bisect.bisect_left(ends, (place, False))][1]


def _function_name(body: str, opened: int) -> str:
    """Return the name of the function whose body a group is; '' if there is none."""
    found = _FUNCTION.match(body[max(0, opened - 80) : opened][::-1])
    return found[1][::-1] if found else ""


def _left_names(body: str, ends: Sequence[tuple[int, bool]]) -> set[str]:
    """Return the first words of the commands that are left in the background."""
    names = (_command_name(body, begin, end) for (begin, _), (end, in_back) in pairwise(ends) if in_back)
    return set(filter(None, names))


def _command_name(body: str, begin: int, end: int) -> str:
    """Return the first word of the last command of a list that follows one sign (at `begin`) and ends at another."""
    # Plain calls for speed: a script may have thousands.
    begin = max(begin, body.rfind("&&", begin + 1, end) + 1, body.rfind("||", begin + 1, end) + 1)
    command = _NAMED.match(body, begin + 1, end)
    return command[1] if command else ""


def _ends_and_groups(
    body: str, starts: Sequence[int]
) -> tuple[list[tuple[int, bool]], list[tuple[int, int, int, int]]]:
    """Return where lists of commands end, with whether that leaves them in the background; and groups.

    Of a group it is where it opens and closes, and which of the commands that begin at `starts` it has: from the first
    to before the last.
    """
    ends, groups, opened = [(-1, False)], list[tuple[int, int, int, int]](), list[tuple[str, int]]()
    for place, sign in _signs(body, starts):
        if sign in _OPENERS:
            opened.append((sign, place))
        elif sign in _OPENER:
            # The `a)` of a `case` closes nothing.
            if not opened or opened[-1][0] != _OPENER[sign]:
                continue
            _, begin = opened.pop()
            first, last = bisect.bisect(starts, begin), bisect.bisect(starts, place)
            if first < last:
                groups.append((begin, place + len(sign) - 1, first, last))
        elif sign not in _JOINS and sign not in _WORDS:
            ends.append((place, sign == "&"))
    ends.append((len(body), False))
    return ends, groups


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
    started = (step for step in steps if is_farm or (is_loop and step.background))
    return [step for step in started if not _OVERLAPS.search(step.options)]
